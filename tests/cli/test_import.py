"""`twofold import` as a user meets it: what it refuses, and that it leaves nothing behind."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.commands import answer, refusal, run
from tests.convert import reference
from tests.encoders.tiny_backbones import save


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save("bert", tmp_path_factory.mktemp("bert"))


def published(folder: Path, *kinds: str) -> Path:
    """The files of a published model but for its weights, of which there is only a name."""
    folder.mkdir()
    (folder / "model.ckpt.index").write_bytes(b"nothing")
    if "bert" in kinds:
        (folder / "bert_config.json").write_text(json.dumps(reference.BERT))
        (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in reference.WORDS), encoding="utf-8")
    if "gpt2" in kinds:
        (folder / "hparams.json").write_text(json.dumps(reference.GPT2))
        (folder / "encoder.json").write_text(json.dumps({token: n for n, token in enumerate(reference.TOKENS)}))
        (folder / "vocab.bpe").write_text("#version: 0.2\n")
    return folder


def test_one_json_object_tells_what_was_written(saved: Path, tmp_path: Path) -> None:
    report = answer("import", saved, tmp_path / "out")
    assert list(report) == ["out", "format", "kind", "tensors", "parameters", "vocabulary", "not_read"]
    assert (report["out"], report["kind"], report["not_read"]) == (str(tmp_path / "out"), "bert", [])


def test_without_json_one_line_tells_it(saved: Path, tmp_path: Path) -> None:
    shown = run("import", saved, tmp_path / "out")
    assert (shown.exit_code, shown.stdout) == (0, "")
    (line,) = shown.stderr.splitlines()
    assert line.startswith(f"bert in {tmp_path / 'out'}: 39 tensors with ")
    assert line.endswith(f"`encoder: {{kind: pretrained, name: {tmp_path / 'out'}}}` reads it")


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    line = refusal("import", tmp_path / "no", tmp_path / "out")
    assert line.startswith(f"{tmp_path / 'no'}: no such folder; SOURCE is a folder with bert_config.json and ")


def test_a_folder_with_something_else(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    line = refusal("import", tmp_path / "in", tmp_path / "out")
    assert line.startswith(f"{tmp_path / 'in'}: holds nothing that can be imported; it must have bert_config.json and ")


@pytest.mark.parametrize("name", ["out", "in"])
def test_nothing_is_written_over(name: str, saved: Path, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "mine").touch()
    line = refusal("import", saved, tmp_path / name)
    assert line == f"{tmp_path / name}: is there already; choose another folder"
    assert [one.name for one in (tmp_path / name).iterdir()] == ["mine"]


def test_an_empty_folder_is_filled(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    assert answer("import", saved, tmp_path / "out")["kind"] == "bert"


def test_nothing_is_left_of_what_failed(saved: Path, tmp_path: Path) -> None:
    config = json.loads((saved / "config.json").read_text())
    source = tmp_path / "source"
    source.mkdir()
    for file in saved.iterdir():
        (source / file.name).write_bytes(file.read_bytes())
    (source / "config.json").write_text(json.dumps({**config, "intermediate_size": 48}))
    assert run("import", source, tmp_path / "out").exit_code == 1
    assert [one.name for one in tmp_path.iterdir()] == ["source"]


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_without_tensorflow_one_line_tells_the_remedy(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    folder = published(tmp_path / "uncased", kind)
    line = refusal("import", folder, tmp_path / "out")
    remedy = "only TensorFlow reads it, which is not installed; pip install 'twofold[tensorflow]'"
    assert line == f"{folder}/model.ckpt: {remedy}"


def test_a_kind_that_the_files_contradict(tmp_path: Path) -> None:
    folder = published(tmp_path / "uncased", "bert")
    line = refusal("import", folder, tmp_path / "out", "--kind", "gpt2")
    assert line == f"{folder}: holds bert, and --kind says gpt2; leave --kind away"


def test_a_folder_that_may_hold_two_kinds_needs_to_be_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    folder = published(tmp_path / "uncased", "bert", "gpt2")
    assert refusal("import", folder, tmp_path / "out") == f"{folder}: may hold bert or gpt2; say --kind"
    for kind in ("bert", "gpt2"):
        assert "only TensorFlow reads it" in refusal("import", folder, tmp_path / "out", "--kind", kind)


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("bert_config.json", "{", "not readable as JSON ("),
        ("bert_config.json", "{}", "vocab_size, hidden_size, num_hidden_layers, "),
        ("vocab.txt", None, "no such file; copy the folder again"),
        ("vocab.txt", "the\n[UNK]\n", "lacks [PAD], [CLS], [SEP], [MASK]; copy the folder again"),
        ("hparams.json", "[]", "not a JSON object; copy the folder again"),
        ("encoder.json", '{"a": 0}', "lacks <|endoftext|>; copy the folder again"),
        ("vocab.bpe", None, "no such file; copy the folder again"),
    ],
)
def test_files_that_cannot_be_right(file: str, content: str | None, said: str, tmp_path: Path) -> None:
    folder = published(tmp_path / "uncased", "bert" if file in ("bert_config.json", "vocab.txt") else "gpt2")
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(content)
    assert refusal("import", folder, tmp_path / "out").startswith(f"{folder / file}: {said}")


def test_words_that_are_not_utf_8(tmp_path: Path) -> None:
    folder = published(tmp_path / "uncased", "bert")
    (folder / "vocab.txt").write_bytes(b"\xff\n")
    assert refusal("import", folder, tmp_path / "out").startswith(f"{folder / 'vocab.txt'}: not valid UTF-8 (")


@pytest.mark.parametrize("arguments", [(), ("one",), ("one", "two", "three"), ("one", "two", "--kind", "elmo")])
def test_wrong_usage_ends_with_status_2(arguments: tuple[str, ...]) -> None:
    refusal("import", *arguments, status=2)
