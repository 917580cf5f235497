"""Sounds on the command line: train, evaluate and predict, and one line for whatever cannot be used."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.cli.test_bad_input import tree
from tests.commands import answer, refusal, run
from tests.conftest import decoder, encoder, small_image_model, small_model
from tests.images import write_files, write_zip
from tests.sounds import (
    WORDS,
    bad_files,
    encoded,
    labeling,
    speech,
    speech_files,
    tone,
    transcribing,
    write_speech,
)
from twofold.data.tokenizer import TextTokenizer
from twofold.recipe.file import to_yaml


def write_recipe(path: Path, recipe: dict[str, Any]) -> Path:
    path.write_text(to_yaml(recipe), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Sounds in a folder and in an archive, and trainings of three steps: `tell`, `write` and `skip`."""
    folder = tmp_path_factory.mktemp("trained")
    table = write_speech(folder / "sounds", 8, words=2)
    write_speech(folder / "words", 8)
    write_zip(folder / "sounds.zip", {f"in/{name}": content for name, content in speech_files(speech(8, 2)).items()})
    recipes = {
        "tell": labeling(folder / "words/rows.tsv"),
        "write": transcribing(table, input={"folder": str(folder / "sounds.zip/in")}),
        "skip": labeling(folder / "words/rows.tsv", input={"broken": "skip"}),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TWOFOLD_CACHE", str(folder / "cache"))
        for name, recipe in recipes.items():
            result = run("train", write_recipe(folder / f"{name}.yaml", recipe), "--out", folder / name)
            assert result.exit_code == 0, result.stderr
        yield folder


def test_a_model_of_labels_is_judged_label_by_label(trained: Path) -> None:
    report = answer("evaluate", trained / "tell", trained / "words/rows.tsv")
    assert report["examples"] == 8
    assert {"loss", "accuracy", "macro_f1"} <= report["metrics"].keys()
    assert {line["label"] for line in report["labels"]} == set(WORDS)


def test_a_model_of_texts_is_judged_by_what_it_writes(trained: Path) -> None:
    report = answer("evaluate", trained / "write", trained / "sounds/rows.tsv")
    assert {"loss", "perplexity", "bleu", "chrf", "exact_match"} <= report["metrics"].keys()
    assert "bleu_by_length" not in report  # a sound has no length in words


def test_files_a_folder_an_archive_and_a_table_are_answered_alike(trained: Path, tmp_path: Path) -> None:
    paths = [str(trained / f"sounds/00{number}.wav") for number in range(8)]
    right = answer("predict", trained / "tell", *paths)["predictions"]
    assert [one["input"] for one in right] == paths
    assert all(one["output"] in WORDS and 0 < one["score"] < 1 for one in right)
    table = shutil.copy(trained / "sounds/rows.tsv", tmp_path / "rows.tsv")
    (tmp_path / "paths.txt").write_text("\n".join(paths))
    for given in (
        ("--file", trained / "sounds"),
        ("--file", trained / "sounds.zip/in"),
        ("--file", trained / "sounds.zip"),
        ("--file", trained / "sounds/rows.tsv"),
        ("--file", tmp_path / "paths.txt"),
        ("--file", table, "--folder", trained / "sounds.zip/in"),
        tuple(trained / f"sounds.zip/in/00{number}.wav" for number in range(8)),
    ):
        predictions = answer("predict", trained / "tell", *given)["predictions"]
        assert [one["output"] for one in predictions] == [one["output"] for one in right]
        assert [one["score"] for one in predictions] == pytest.approx([one["score"] for one in right], abs=1e-5)


def test_where_it_listened_is_drawn(trained: Path, tmp_path: Path) -> None:
    sound = trained / "sounds/001.wav"
    result = run("predict", trained / "write", sound, "--plot", tmp_path / "new/a.png")
    assert result.exit_code == 0, result.stderr
    with Image.open(tmp_path / "new/a.png") as drawn:
        assert drawn.width > 100
    run("predict", trained / "write", sound, "--plot", tmp_path / "a.svg")
    assert "<!-- seconds -->" in (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert run("predict", trained / "tell", sound, sound, "--plot", tmp_path / "b.png").exit_code == 0
    with Image.open(tmp_path / "b.png") as drawn:  # the spectrograms, with the labels above them
        assert drawn.height > 300


def test_the_same_seed_learns_the_same_and_another_does_not(trained: Path, tmp_path: Path) -> None:
    changes = ["input.augment={speed: [0.8, 1.2], noise: [5, 30], warp: [0.9, 1.1], time_masks: 1}"]
    losses = []
    for name, seed in (("one", 1), ("again", 1), ("other", 2)):
        result = run("train", trained / "write.yaml", *changes, f"train.seed={seed}", "--out", tmp_path / name)
        assert result.exit_code == 0, result.stderr
        lines = [json.loads(line) for line in (tmp_path / name / "log.jsonl").read_text().splitlines()]
        losses.append([line["loss"] for line in lines if "loss" in line])
    assert losses[0] == losses[1] != losses[2]
    assert len(losses[0]) == 3


def test_a_stopped_training_goes_on_as_if_it_had_not_been(trained: Path, tmp_path: Path) -> None:
    changes = ["input.augment={speed: [0.8, 1.2], noise: [5, 30]}", "train.schedule=constant", "train.save_every=1"]

    def logged(folder: Path) -> list[tuple[int, float]]:
        lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
        return [(line["step"], line["loss"]) for line in lines if "loss" in line]

    for steps, folder in ((5, "whole"), (2, "parts")):
        result = run("train", trained / "tell.yaml", *changes, f"train.max_steps={steps}", "--out", tmp_path / folder)
        assert result.exit_code == 0, result.stderr
    assert logged(tmp_path / "parts") == logged(tmp_path / "whole")[:2]
    result = run("train", trained / "tell.yaml", *changes, "train.max_steps=5", "--out", tmp_path / "parts", "--resume")
    assert result.exit_code == 0, result.stderr
    assert logged(tmp_path / "parts") == logged(tmp_path / "whole")


@pytest.mark.parametrize("packed", [False, True], ids=["folder", "archive"])
@pytest.mark.parametrize("name", bad_files())
def test_a_sound_that_cannot_be_used_is_one_line_or_left_out(
    trained: Path, tmp_path: Path, name: str, packed: bool
) -> None:
    content, said = bad_files()[name]
    files = {**speech_files(speech(4, 1)), "001.wav": content}
    folder = write_zip(tmp_path / "z.zip", files) if packed else write_files(tmp_path / "f", files)
    table = tmp_path / "rows.tsv"
    table.write_text("audio\tsaid\n" + "".join(f"{file}\t{text}\n" for file, text in speech(4, 1).items()))
    recipe = write_recipe(tmp_path / "r.yaml", labeling(table, input={"folder": str(folder)}))
    before = tree(tmp_path)
    bad = f"{folder}/001.wav: "
    assert refusal("train", recipe, "--out", tmp_path / "run").startswith(bad + said)
    assert refusal("predict", trained / "tell", f"{folder}/001.wav").startswith(bad + said)
    assert refusal("evaluate", trained / "tell", table, "--folder", folder).startswith(bad + said)
    assert {path: content for path, content in tree(tmp_path).items() if path in before} == before


@pytest.mark.filterwarnings("always:.*(left out|cannot be used):UserWarning")
def test_bad_sounds_among_good_ones_are_left_out_where_that_is_wanted(trained: Path, tmp_path: Path) -> None:
    files = {**speech_files(speech(6, 1)), "001.wav": b"none", "003.wav": encoded(0 * tone(300))}
    folder = write_files(tmp_path / "f", files)
    done = run("predict", trained / "skip", "--file", folder, "--json")
    assert done.exit_code == 0, done.stderr
    names = [Path(one["input"]).name for one in json.loads(done.stdout)["predictions"]]
    assert names == ["000.wav", "002.wav", "004.wav", "005.wav"]
    assert "001.wav: not a sound" in done.stderr
    assert "003.wav: is silent" in done.stderr
    table = folder / "rows.tsv"
    table.write_text("audio\tsaid\n" + "".join(f"{file}\t{text}\n" for file, text in speech(6, 1).items()))
    recipe = write_recipe(tmp_path / "r.yaml", labeling(table, input={"broken": "skip"}))
    result = run("train", recipe, "--out", tmp_path / "run")
    assert result.exit_code == 0, result.stderr
    assert f"{table}: 2 of 6 rows cannot be used: 001.wav; 003.wav" in result.stderr


def test_a_name_that_leads_out_of_its_archive_is_refused(trained: Path, tmp_path: Path) -> None:
    archive = write_zip(tmp_path / "z.zip", {"../a.wav": encoded(tone(300)), "b.wav": encoded(tone(300))})
    assert "leads outside" in refusal("predict", trained / "tell", "--file", archive)
    (tmp_path / "rows.tsv").write_text("audio\tsaid\n../../etc/passwd.wav\tlow\n")
    said = refusal("evaluate", trained / "tell", tmp_path / "rows.tsv", "--folder", archive)
    assert "leads outside" in said


def test_what_is_no_sound_for_a_model_of_sounds_and_the_reverse_is_one_line(
    trained: Path, tmp_path: Path, tokenizer: TextTokenizer
) -> None:
    sound = trained / "sounds/000.wav"
    assert refusal("predict", trained / "tell", "a dog runs").startswith("a dog runs: cannot be read")
    (tmp_path / "a.txt").write_text("a dog runs")
    assert "a.txt: not a sound that can be read" in refusal("predict", trained / "tell", tmp_path / "a.txt")
    small_model(tokenizer, encoder("rnn"), decoder("rnn")).save_pretrained(tmp_path / "text")
    assert refusal("predict", tmp_path / "text", sound) == f"{sound}: this model reads texts, not sounds"
    images = write_files(tmp_path, {"a.png": b""}) / "a.png"
    assert refusal("predict", trained / "tell", images) == f"{images}: this model reads sounds, not images"
    small_image_model(tokenizer, encoder("vit"), decoder("transformer")).save_pretrained(tmp_path / "image")
    assert refusal("predict", tmp_path / "image", sound) == f"{sound}: this model reads images, not sounds"
    (tmp_path / "no.tsv").write_text("text\tsaid\nx\tlow\n")
    said = refusal("train", trained / "tell.yaml", f"data.train={tmp_path / 'no.tsv'}", "--out", tmp_path / "run")
    assert "no 'audio' here" in said


def test_an_empty_folder_is_named(trained: Path, tmp_path: Path) -> None:
    write_files(tmp_path / "f", {"a.txt": b"x"})
    said = refusal("predict", trained / "tell", "--file", tmp_path / "f")
    assert said == f"{tmp_path / 'f'}: holds no sounds (.wav, .flac, .ogg, .mp3)"
