"""Whatever is wrong with the input ends with status 1 and one clear line, and nothing is lost."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests import made
from tests.conftest import small_recipe, write_jsonl
from twofold.cli import main
from twofold.recipe.file import to_yaml

ROWS = made.numbers(40, seed=9)
LAUGHS = "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}' if level else 'ha'] * 9)}]\n" for level in range(12)
).encode()
"""Less than a kilobyte that stands for a billion values."""


def tree(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refusal(*arguments: str | Path, keeps: Path | None = None) -> str:
    """The one line with which a command ends; every file in `keeps` stays as it is."""
    before = tree(keeps) if keeps else {}
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert isinstance(result.exception, SystemExit), repr(result.exception)
    assert result.exit_code == 1
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert not keeps or tree(keeps) == before
    return line.removeprefix("error: ")


def write_recipe(path: Path, train: str | Path, **changes: Any) -> Path:
    path.write_text(to_yaml(small_recipe(str(train), **changes)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Rows, a recipe, and `run`, a training of four steps."""
    folder = tmp_path_factory.mktemp("trained")
    recipe = write_recipe(folder / "recipe.yaml", write_jsonl(folder / "rows.jsonl", ROWS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TWOFOLD_CACHE", str(folder / "cache"))
        result = CliRunner().invoke(main, ["train", str(recipe), "--out", str(folder / "run")])
        assert result.exit_code == 0, result.stderr
        yield folder


@pytest.fixture
def copy(trained: Path, tmp_path: Path) -> Path:
    """A copy of the training that may be damaged."""
    shutil.copytree(trained / "run", tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", ": holds no rows"),
        (b'{"source": "one", "target": "1"}\n{"source": "two"}\n', ":2: no 'target' here; this row has source"),
        (b'{"source": "one", "target": "1"}\nsource: two\n', ":2: not JSON ("),
        (b'{"source": "one", "target": "1"}\n"two"\n', ":2: not a JSON object"),
        (b'{"source": "one", "target": "1", "source": "2"}\n', ":1: not JSON (the key 'source' stands twice)"),
        (b'{"source": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n", ":1: not JSON (nested too deep)"),
        (b'{"source": ' + b"1" * 5000 + b"}\n", ":1: not JSON (a number of 5,000 digits)"),
        (b'{"source": "one", "target": "1"}\n{"source": "\xff", "target": "2"}\n', ":2: not valid UTF-8"),
        (b'{"source": "one", "target": "1"}\n{"source": "", "target": "2"}\n', ":2: 'source' is empty"),
        (b'{"source": "one", "target": " "}\n', ":1: 'target' is empty"),
        (b'{"source": "one", "target": 1}\n', ":1: 'target' is neither a text nor a list of texts"),
        (b'{"source": "\\ud83d", "target": "1"}\n', ":1: "),
    ],
)
def test_a_training_file_that_is_wrong_is_named_with_its_line(tmp_path: Path, content: bytes, said: str) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_bytes(content)
    recipe = write_recipe(tmp_path / "recipe.yaml", rows)
    assert refusal("train", recipe, "--out", tmp_path / "out").startswith(f"{rows}{said}")


def test_a_training_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path / "recipe.yaml", tmp_path / "none.tsv")
    assert refusal("train", recipe, "--out", tmp_path / "out").startswith(f"{tmp_path / 'none.tsv'}: cannot be read")


@pytest.mark.parametrize("content", [b'{"source": "one"}\n', b'{"source": "", "target": "1"}\n', b"", b"not JSON\n"])
def test_a_file_to_judge_by_that_is_wrong_is_named_before_the_first_step(tmp_path: Path, content: bytes) -> None:
    dev = tmp_path / "dev.jsonl"
    dev.write_bytes(content)
    recipe = write_recipe(tmp_path / "recipe.yaml", write_jsonl(tmp_path / "rows.jsonl", ROWS), data={"dev": str(dev)})
    assert refusal("train", recipe, "--out", tmp_path / "out").startswith(str(dev))
    log = tmp_path / "out" / "log.jsonl"
    assert not log.exists() or '"loss"' not in log.read_text()


@pytest.mark.filterwarnings("always:.* was cut:UserWarning")
def test_rows_that_are_too_long_are_cut_and_counted_or_refused_as_the_recipe_says(tmp_path: Path) -> None:
    rows = [*ROWS, {"source": "nine " * 60, "target": "9"}, {"source": "nine", "target": " ".join("123456789" * 7)}]
    recipe = write_recipe(tmp_path / "recipe.yaml", write_jsonl(tmp_path / "rows.jsonl", rows))
    out = tmp_path / "out"
    result = CliRunner().invoke(main, ["train", str(recipe), "--out", str(out)])
    assert result.exit_code == 0, result.stderr
    for column, setting in {"source": "input.max_tokens", "target": "output.max_tokens"}.items():
        assert f"warning: 1 of 42 rows: '{column}' is longer than {setting} and was cut\n" in result.stderr
    first = json.loads((out / "log.jsonl").read_text().splitlines()[0])
    assert first["cut"] == {"input": 1, "main": 1}
    said = refusal("train", recipe, "input.too_long=refuse", "--out", tmp_path / "other", keeps=out)
    assert said.startswith(f"{tmp_path / 'rows.jsonl'}:{len(ROWS) + 1}: 'source' has ")
    assert "the limit is 30" in said
    assert "raise input.max_tokens, or set input.too_long=cut" in said
    said = refusal("train", recipe, "output.too_long=refuse", "--out", tmp_path / "third", keeps=out)
    assert said.startswith(f"{tmp_path / 'rows.jsonl'}:{len(ROWS) + 2}: 'target' has ")
    assert "raise output.max_tokens, or set output.too_long=cut" in said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["encoder.widht=8"], "recipe.encoder has no 'widht'; did you mean 'width'?"),
        (["encoder.kind=rmn"], "recipe.encoder: there is no encoder 'rmn'; did you mean 'rnn'?"),
        (["train.epochs=2.5"], "recipe.train.epochs: 2.5 is not a whole number"),
        (["train.epochs"], "'train.epochs': a change is written key.path=value"),
        (["data.held_out=1000"], "data.held_out=1000: there are only 40 rows; lower it"),
        (
            ["data.held_out=3", "train.best=blue", "train.evaluate_every=1"],
            "train.best: no metric 'blue'; did you",
        ),
        (["train.device=gpu"], "gpu"),
        (["train.seed=-1"], "seed"),
        (["encoder.width=0"], "width"),
        (["decoder.layers=0"], "layers"),
        (["encoder.dropout=7.0"], "dropout"),
        ([f"train.seed={2**64}"], "recipe.train: seed must be at most 9223372036854775807, not 18446744073709551616"),
        (["train.seed=1e30"], "recipe.train.seed: 1e+30 is not a whole number"),
        ([f"train.epochs={10**30}"], "recipe.train: epochs must be at most 1000000000000"),
        (["encoder.width=1000000000"], "recipe.encoder: width must be at most 1,048,576, not 1000000000"),
        (["encoder.width=1000000"], "the model does not fit into memory; lower its width or its number of layers"),
        (["encoder.layers=1000000"], "recipe.encoder: layers must be at most 1,000, not 1000000"),
        (["input.tokenizer.size=1000000000"], "recipe.input.tokenizer: size must be at most 4,000,000, not 1000000000"),
        (["generate.beam=1000000000"], "recipe.generate: beam must be at most 1,000, not 1000000000"),
        (["input.max_tokens=1000000000"], "recipe.input: max_tokens must be at most 1,000,000, not 1000000000"),
        ([f"data.train={'[' * 50_000}"], ": not YAML (nested too deep)"),
    ],
)
def test_a_setting_that_cannot_be_is_named(trained: Path, tmp_path: Path, changes: list[str], said: str) -> None:
    arguments: list[str | Path] = ["train", trained / "recipe.yaml", *changes, "--out", tmp_path / "out"]
    assert said in refusal(*arguments, keeps=trained / "run")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"data: [1\nencoder: 2\n", ":2: not YAML ("),
        (b"just words\n", ": a recipe is a mapping"),
        (b"data: \xff\n", ": not readable as UTF-8"),
        (LAUGHS, ": more than 100,000 values with its aliases written out; write fewer"),
        (b"data: &a [*a]\n", ": not YAML (an alias that contains itself)"),
        (b"[" * 100_000, ": not YAML (nested too deep)"),
        (None, ": no such recipe"),
    ],
)
def test_a_recipe_that_is_none_is_named(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "recipe.yaml"
    if content is not None:
        path.write_bytes(content)
    assert refusal("train", path, "--out", tmp_path / "out").startswith(f"{path}{said}")
    assert not (tmp_path / "out").exists()


def test_data_that_is_said_nowhere_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TWOFOLD_DATA", raising=False)
    said = refusal("train", "translate", "--out", tmp_path / "out")
    assert said.startswith("the recipe needs ${TWOFOLD_DATA}, which is not set")
    assert refusal("train", "translat", "--out", tmp_path / "out").startswith("there is no recipe 'translat'; did you")


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_a_model_that_is_not_there_is_named(trained: Path, tmp_path: Path, command: str) -> None:
    assert refusal(command, tmp_path / "none", trained / "rows.jsonl").startswith(f"{tmp_path / 'none'}: no such model")
    assert refusal(command, tmp_path, trained / "rows.jsonl").startswith(f"{tmp_path}: holds no model")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([""], "input 1: 'source' is empty"),
        (["one", " \t"], "input 2: 'source' is empty"),
        (["", "--stream"], "input 1: 'source' is empty"),
        (["\udcff"], "input 1: "),
        (["--file", "none.txt"], "none.txt: cannot be read"),
        (["one", "--beam", "2", "--n-best", "3"], "beam 2 and n_best 3: "),
        (["one", "--n-best", "3"], "beam 1 and n_best 3: "),
        (["one", "--beam", "0"], "beam 0 and n_best "),
        (["one", "--beam", "3", "--sample"], "sampling writes one hypothesis; set beam to 1, not 3"),
        (["one", "--beam", "3", "--stream"], "stream: a beam of 3 may revise words"),
        (["one", "--sample", "--temperature", "0"], "temperature must be above 0"),
        (["one", "--sample", "--temperature", "nan"], "temperature must be above 0"),
        (["one", "--max-length", "0"], "max_length must be at least 1, not 0"),
        (["one", "--sample", "--seed", "-1"], "seed must be from 0 to 9223372036854775807, not -1"),
        (["one", "--sample", "--seed", str(2**64)], "seed must be from 0 to 9223372036854775807, not "),
        (["one", "--beam", str(10**9)], "beam must be at most 1,000, not 1000000000"),
        (["one", "--decoder", "mian"], "the model has no decoder 'mian'; did you mean 'main'?"),
        (["one", "--device", "nonsense"], "nonsense"),
        (["one", "--plot", "image.doc"], "image.doc: an image ends in one of "),
    ],
)
def test_what_cannot_be_predicted_is_one_line(trained: Path, arguments: list[str], said: str) -> None:
    assert said in refusal("predict", trained / "run", *arguments, keeps=trained / "run")


def test_a_file_of_inputs_that_is_wrong_is_named_with_its_line(trained: Path, tmp_path: Path) -> None:
    file = tmp_path / "inputs.txt"
    file.write_bytes(b"one\n\n\xff\n")
    assert refusal("predict", trained / "run", "--file", file).startswith(f"{file}:3: not valid UTF-8")
    file.write_text("")
    assert refusal("predict", trained / "run", "--file", file) == f"{file}: holds no rows"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.tsv", "source\tenglish\none\t1\n", ":2: no 'target' here; this row has source, english"),
        ("a.txt", "one\n", ":1: no 'source' here; this row has text"),
        ("a.jsonl", '{"source": "one", "target": "1"}\n{}\n', ":2: no "),
        ("a.csv", "", ": holds no rows"),
    ],
)
def test_a_file_that_cannot_be_evaluated_is_named(
    trained: Path, tmp_path: Path, name: str, content: str, said: str
) -> None:
    (tmp_path / name).write_text(content)
    assert refusal("evaluate", trained / "run", tmp_path / name).startswith(f"{tmp_path / name}{said}")


def removed(path: Path) -> None:
    path.unlink()


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def flipped(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-7] + bytes([content[-7] ^ 1]) + content[-6:])


def stripped(path: Path) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), "sha256": {}}))


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *((name, damage) for name in ("model", "optimizer") for damage in (removed, emptied, cut, flipped)),
        *(("state", damage) for damage in (removed, emptied, cut, stripped)),
    ],
)
def test_a_damaged_checkpoint_is_named(trained: Path, copy: Path, name: str, damage: Callable[[Path], None]) -> None:
    (checkpoint,) = (copy / "checkpoints").iterdir()
    path = checkpoint / f"{name}.json" if name == "state" else checkpoint / f"{name}.safetensors"
    damage(path)
    arguments: list[str | Path] = ["train", trained / "recipe.yaml", "--out", copy, "--resume"]
    assert refusal(*arguments, keeps=copy).startswith(f"{path}: ")


@pytest.mark.parametrize("name", ["log.jsonl", "recipe.yaml", "tokenizers/input.json"])
def test_another_damaged_file_of_a_training_is_named(trained: Path, copy: Path, name: str) -> None:
    (copy / name).write_text("garbage\n")
    arguments: list[str | Path] = ["train", trained / "recipe.yaml", "--out", copy, "--resume"]
    assert refusal(*arguments, keeps=copy).startswith(f"{copy / name}:")


def test_a_training_is_not_resumed_with_another_recipe(trained: Path, copy: Path) -> None:
    for change, was in {"encoder.width=13": "12, not 13", "train.learning_rate=1e-4": "0.001, not 0.0001"}.items():
        said = refusal("train", trained / "recipe.yaml", change, "--out", copy, "--resume", keeps=copy)
        assert said.startswith(f"{copy}: was begun with {change.split('=')[0]}={was}; resume with the same recipe")


FULL_DISK = """
import resource, sys
from twofold.cli import main
import twofold.recipe
# No file may grow beyond this: writing more fails as on a full disk.
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
main(sys.argv[2:])
"""


def test_a_full_disk_keeps_the_model_and_the_checkpoint(trained: Path, copy: Path) -> None:
    limit = 16_000
    before = tree(copy)
    assert len(before[copy / "model" / "model.safetensors"]) > limit > len(before[copy / "tokenizers" / "input.json"])
    arguments = ["train", str(trained / "recipe.yaml"), "train.max_steps=6", "--out", str(copy), "--resume"]
    ran = subprocess.run([sys.executable, "-c", FULL_DISK, str(limit), *arguments], capture_output=True, text=True)
    (line,) = ran.stderr.splitlines()
    assert ran.returncode == 1
    assert line.startswith("error: ")
    assert "model.safetensors: could not be written" in line
    assert "File too large" in line
    after = tree(copy)
    changed = {path.name for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert changed <= {"log.jsonl", "recipe.yaml"}
    resumed = CliRunner().invoke(main, arguments)
    assert resumed.exit_code == 0, resumed.stderr


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("", "the folder to train into has no name; give one, such as --out runs/mine"),
        ("file", "file: a file, not a folder; choose another folder"),
        ("file/inside", "inside: cannot be written to (Not a directory); choose another folder"),
        ("/proc/none", "/proc/none: cannot be written to (No such file or directory); choose another folder"),
    ],
)
def test_a_folder_that_cannot_be_trained_into_is_one_line(trained: Path, tmp_path: Path, out: str, said: str) -> None:
    (tmp_path / "file").write_bytes(b"mine")
    whole = out if out in ("", "/proc/none") else f"{tmp_path}/{out}"
    assert refusal("train", trained / "recipe.yaml", "--out", whole, keeps=tmp_path).endswith(said)


@pytest.mark.parametrize(
    ("option", "path", "said"),
    [
        ("--plot", "", ": a folder; name a file in it"),
        ("--plot", "file/a.png", "a.png: could not be written (File exists); what was there before is kept"),
        ("--conllu", "", ": a folder; name a file in it"),
        ("--conllu", "file/in/a.conllu", "could not be written (Not a directory); what was there before is kept"),
        ("--masks", "file", "could not be written (File exists); what was there before is kept"),
        ("--masks", "file/inside", "could not be written (Not a directory); what was there before is kept"),
    ],
)
def test_an_output_that_cannot_be_written_is_said_before_the_model_is_loaded(
    tmp_path: Path, option: str, path: str, said: str
) -> None:
    (tmp_path / "file").write_bytes(b"mine")
    assert refusal("predict", "no model", "one", option, tmp_path / path, keeps=tmp_path).endswith(said)


def test_a_demo_that_cannot_be_kept_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"mine")
    assert "could not be written" in refusal("demo", "--out", tmp_path / "file", keeps=tmp_path)
