"""The folder in which the blocks of a page run, with the files and the trained models that they take for given."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests import images, sounds
from tests.cli.text_models import CONLLU
from tests.commands import run
from tests.convert.test_hugging_face import pickled
from tests.convert.test_sentences import new
from tests.docs.corpora import candidates, dialogues, write_jsonl, write_table, write_text
from tests.encoders.tiny_backbones import save
from twofold.recipe.file import recipe_folder, recipe_names

RUNS = {
    "banking": "label_banking",
    "breeds": "label_pets",
    "dialogue": "pretrain_dialogue",
    "enko": "translate_en_ko",
    "flights": "intent_slots",
    "ko": "rank_ko",
    "names": "tag_names",
    "numbers": "transcribe_numbers",
    "reviews": "label_ko",
    "street": "segment_street",
    "words": "pretrain_words",
}
"""Recipes of runs that do not bear the name of their recipe."""
STARTS = {"rank_cross": ("start=runs/rank_poly",)}
"""Changes without which a recipe does not train."""

Write = Callable[[Path], object]
QUERIES: list[dict[str, Any]] = [
    {"text": "my disk is full", "relevant": ["a1"]},
    {"text": "list a folder", "relevant": {"a2": 2, "a3": 0}},
]
ANSWERS = ["df -h shows free space", "ls shows a folder", "restart the machine", "sudo apt update", "free -h"]
TABLE = [{"de": f"Hund {number}", "en": f"dog {number}", "fr": f"chien {number}"} for number in range(24)]
USERS_RECIPE = """\
data: {train: my.tsv, held_out: 4}
source: de
target: en
input: {tokenizer: {size: 80}}
output: {tokenizer: {size: 80}}
encoder: {kind: rnn}
decoder: {kind: rnn}
"""


def answers(first: int = 1) -> list[dict[str, Any]]:
    return [
        {"id": f"a{number}", "text": f"{text} {number}", "lang": "en" if number % 2 else "ko", "year": 2019 + number}
        for number, text in enumerate(ANSWERS, start=first)
    ]


def users_recipe(path: Path) -> None:
    write_text(path, USERS_RECIPE)
    write_table(path.with_name("my.tsv"), TABLE)


def users_package(path: Path) -> None:
    """The encoder of docs/parts.md in a package."""
    path.mkdir()
    shutil.copy(path.with_name("bag.py"), path)
    (path / "__init__.py").touch()


def photos(path: Path) -> None:
    images.write_zip(path, {f"{number}.jpg": photo(number) for number in range(3)})


def photo(number: int) -> bytes:
    return images.encoded(images.noise(120, 160, number, 3), "jpeg")


def backbone(path: Path) -> None:
    save("bert", path)


def kept_by(write: Callable[[Path, Path], object]) -> Write:
    """A folder that is made from a saved backbone."""

    def made(path: Path) -> None:
        write(save("bert", path.with_name(f"{path.name}-saved")), path)

    return made


FILES: dict[str, Write] = {
    "answers.txt": lambda path: write_text(path, "\n".join(ANSWERS) + "\n"),
    "captions.txt": lambda path: write_text(path, "two dogs run on grass\na beach\n"),
    "answers.jsonl.gz": lambda path: write_jsonl(path, [*answers(), {"id": 17, "text": "a17", "lang": "en"}]),
    "manuals.jsonl.gz": lambda path: write_jsonl(path, [{**row, "text": f"{row['text']}. " * 40} for row in answers()]),
    "new.jsonl": lambda path: write_jsonl(path, [{"id": "a42", "text": "du -sh *", "lang": "en", "year": 2024}]),
    "changed.jsonl": lambda path: write_jsonl(path, [{"id": "a1", "text": "df -H", "lang": "en", "year": 2025}]),
    "my_pairs.jsonl": lambda path: write_jsonl(path, dialogues(60)),
    "pairs.jsonl": lambda path: write_jsonl(path, dialogues(60)),
    "corpus.jsonl": lambda path: write_jsonl(path, answers()),
    "queries.jsonl": lambda path: write_jsonl(path, QUERIES),
    "dev.jsonl.gz": lambda path: write_jsonl(path, candidates(6)),
    "valid.csv": lambda path: write_text(
        path, "Context,Ground Truth Utterance,Distractor_0\nhello __eou__ __eot__,hi __eou__,bye __eou__\n"
    ),
    "input.txt": lambda path: write_text(path, "Ein Hund\nzwei Hunde\n"),
    "intents.tsv": lambda path: write_table(path, [{"text": row["en"], "label": "red"} for row in TABLE]),
    "my.tsv": lambda path: write_table(path, TABLE),
    "pairs.tsv": lambda path: write_table(path, TABLE),
    "my.yaml": users_recipe,
    "readings.jsonl": lambda path: write_jsonl(
        path, [{"readings": [0.1 * row, 0.2, 0.3], "next": 0.1 * row} for row in range(60)]
    ),
    "my_package": users_package,
    "in.conllu": lambda path: write_text(path, CONLLU),
    "photos.zip": photos,
    "street.jpg": lambda path: path.write_bytes(photo(1)),
    "dog.jpg": lambda path: path.write_bytes(photo(2)),
    "beach.jpg": lambda path: path.write_bytes(photo(3)),
    "seven.wav": lambda path: path.write_bytes(sounds.encoded(sounds.spoken("low", 1))),
    "number.flac": lambda path: path.write_bytes(sounds.encoded(sounds.spoken("low high", 1), kind="FLAC")),
    "kcbert-base": kept_by(pickled),
    "my-sentence-model": kept_by(new),
}
"""Functions that make the files and folders that pages take for given."""
ALWAYS = ("my.tsv",)
"""Files that are made without being named: the data of the recipe that blocks of Python take for given."""


class Place:
    """Makes what a block needs before it runs.

    trained: folder of models that are trained once for all pages
    data: folder of TWOFOLD_DATA
    """

    def __init__(self, folder: Path, trained: Path, data: Path) -> None:
        self.folder, self.trained, self.data = folder, trained, data

    def prepare(self, text: str) -> None:
        """Makes files and runs that a command or a block of Python names and that are not here yet."""
        for name, write in FILES.items():
            named = re.search(rf"(?<![\w/.-]){re.escape(name)}\b", text) or name in ALWAYS
            if named and not (self.folder / name).exists():
                write(self.folder / name)
        for name in re.findall(r"\bruns/(\w+)", text):
            self._give(name, text)
        for name in re.findall(r"(?<!\.index )\b\w+\.index\b", text):
            if not (self.folder / name).exists() and "index build" not in text and "build_index" not in text:
                self._build(name)

    def _give(self, name: str, text: str) -> None:
        recipe = RUNS.get(name, name)
        if recipe in recipe_names():
            for file in (self.data / corpus_of(recipe)).iterdir():
                if re.search(rf"(?<![\w/]){re.escape(file.name)}\b", text):
                    shutil.copy(file, self.folder)
        place = self.folder / "runs" / name
        if trains_into(text, name):
            shutil.rmtree(place, ignore_errors=True)  # given, or trained by an earlier block
        elif not place.exists() and recipe in recipe_names():
            shutil.copytree(self.train(name), place)
        for needed in needed_by(text):
            if needed != name and not (self.folder / "runs" / needed).exists():
                self._give(needed, "")

    def _build(self, name: str) -> None:
        """Builds an index with a model that other pages use as well."""
        texts = self.folder / "indexed.jsonl"
        write_jsonl(texts, answers())
        result = run("index", "build", self.folder / name, "--model", self.train("rank_bi"), "--texts", texts)
        assert result.exit_code == 0, result.stderr

    def train(self, name: str) -> Path:
        """Trains a run by its recipe, unless another page did."""
        recipe, out = RUNS.get(name, name), Path("runs", name)
        if not (self.trained / out).exists():
            words = ["train", recipe, *STARTS.get(recipe, ())]
            for needed in needed_by(" ".join(words)):
                self.train(needed)
            with contextlib.chdir(self.trained):
                result = run(*words, "--out", out)
            assert result.exit_code == 0, f"{recipe}: {result.stderr}"
        return self.trained / out


def corpus_of(recipe: str) -> str:
    """Folder of a recipe's data in TWOFOLD_DATA."""
    text = (recipe_folder() / f"{recipe}.yaml").read_text(encoding="utf-8")
    corpus = re.search(r"\$\{TWOFOLD_DATA\}/(\w+)", text)
    assert corpus, recipe
    return corpus[1]


def trains_into(text: str, name: str) -> bool:
    """Returns True if the text begins a training in that run."""
    command = re.search(rf"--out runs/{name}\b", text) and "--resume" not in text
    called = re.search(rf"\btrain\([^)]*[\"']runs/{name}[\"']", text) and "resume=True" not in text
    return bool(command or called)


def needed_by(text: str) -> list[str]:
    """Runs that the recipes of the trainings in a text start from, or that their changes name."""
    needed = []
    for recipe in re.findall(r"train(?:\(\s*[\"']| )(\w+)", text):
        if recipe in recipe_names():
            content = (recipe_folder() / f"{recipe}.yaml").read_text(encoding="utf-8")
            needed += re.findall(r"^[^#\n]*?\b(?:start|model): runs/(\w+)", content, re.M)
            needed += re.findall(r"\bmodel: runs/(\w+)", content)
    needed += re.findall(r"[=]runs/(\w+)", text)
    return list(dict.fromkeys(needed))
