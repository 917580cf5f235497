"""Files and folders are replaced whole or not at all, whatever comes in between."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.conftest import decoder, encoder, small_model
from twofold import storage
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError


def fill(folder: Path, content: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "file").write_text(content)
    return folder


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below, hidden ones included."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_file_is_replaced(tmp_path: Path) -> None:
    for content in (b"old", b"new"):
        storage.write_bytes(tmp_path / "a" / "b" / "file", content)
        assert tree(tmp_path) == {"a/b/file": content}


def test_json_comes_back(tmp_path: Path) -> None:
    content = {"글": [1, 2.5, None], "b": {"c": True}}
    storage.write_json(tmp_path / "a.json", content)
    assert storage.read_json(tmp_path / "a.json", "write it again") == content


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "the key 'c' stands twice"),
        ("[" * 100_000, "nested too deep"),
        ('{"a":' * 100_000, "nested too deep"),
        ('{"a": NaN}', "NaN is no number in JSON"),
        ('{"a": -Infinity}', "-Infinity is no number in JSON"),
        ('{"a": 1e999}', "1e999 is too large a number"),
        ('{"a": ' + "9" * 5000 + "}", "a number of 5,000 digits"),
        ('{"a": 0.' + "9" * 5000 + "}", "a number of 5,002 digits"),
    ],
    ids=["twice", "lists", "objects", "nan", "infinity", "large", "digits", "fraction"],
)
def test_json_that_is_not_plain_says_why(text: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"^{reason}$"):
        storage.parse_json(text)
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(TwofoldError, match=f"^{path}: not readable as JSON \\({reason}\\); write it again$"):
        storage.read_json(path, "write it again")


@pytest.mark.parametrize("content", [None, b"", b"{", b"[1]", b"\xff"])
def test_json_that_cannot_be_read_is_named_with_the_remedy(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "a.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TwofoldError) as caught:
        storage.read_json(path, "write it again")
    said = str(caught.value)
    assert said.startswith(f"{path}: ")
    assert said.endswith("; write it again")
    assert "\n" not in said


def test_a_file_that_cannot_take_its_place_leaves_nothing_behind(tmp_path: Path) -> None:
    fill(tmp_path / "taken", "old")
    with pytest.raises(TwofoldError, match="taken: could not be written"):
        storage.write_bytes(tmp_path / "taken", b"new")
    with pytest.raises(TwofoldError, match="x: could not be written"):
        storage.write_bytes(tmp_path / "taken" / "file" / "x", b"new")
    assert tree(tmp_path) == {"taken/file": b"old"}


@pytest.mark.parametrize("before", [True, False])
def test_a_folder_takes_the_place_of_the_one_before_as_a_whole(tmp_path: Path, before: bool) -> None:
    path = tmp_path / "model"
    if before:
        (fill(path, "old") / "left over").write_text("old")
    with storage.new_folder(path) as aside:
        assert not list(aside.iterdir())
        fill(aside / "inner", "new")
        assert tree(path) == ({"file": b"old", "left over": b"old"} if before else {})
    assert tree(tmp_path) == {"model/inner/file": b"new"}
    assert os.listdir(tmp_path) == ["model"]


@pytest.mark.parametrize("error", [ValueError("wrong"), KeyboardInterrupt(), OSError(28, "No space left on device")])
@pytest.mark.parametrize("before", [True, False])
def test_an_error_inside_keeps_the_folder_as_it_was(tmp_path: Path, before: bool, error: BaseException) -> None:
    path = tmp_path / "model"
    if before:
        fill(path, "old")

    def half_way() -> None:
        with storage.new_folder(path) as aside:
            (aside / "file").write_text("new")
            raise error

    with pytest.raises(TwofoldError if isinstance(error, OSError) else type(error)) as caught:
        half_way()
    if isinstance(error, OSError):
        assert str(caught.value).startswith(f"{path}: could not be written (no space left on the disk")
    assert tree(tmp_path) == ({"model/file": b"old"} if before else {})
    assert os.listdir(tmp_path) == (["model"] if before else [])


CUT_SHORT = {
    "while the first was written": ({".new": "half"}, None),
    "while another was written": ({"": "old", ".new": "half"}, "old"),
    "after the old one went aside": ({".old": "old", ".new": "new"}, "old"),
    "after the new one took its place": ({"": "new", ".old": "old"}, "new"),
    "never": ({"": "old"}, "old"),
}


@pytest.mark.parametrize("when", CUT_SHORT)
def test_a_folder_cut_short_is_the_one_before_or_after(tmp_path: Path, when: str) -> None:
    folders, expected = CUT_SHORT[when]
    for ending, content in folders.items():
        fill(tmp_path / (f".model{ending}" if ending else "model"), content)
    path, before = tmp_path / "model", tree(tmp_path)
    read = storage.settled(path) / "file"
    assert (read.read_text() if read.exists() else None) == expected
    assert tree(tmp_path) == before
    storage.recover(path)
    assert tree(tmp_path) == ({"model/file": expected.encode()} if expected else {})
    storage.recover(path)
    with storage.new_folder(path) as aside:
        (aside / "file").write_text("newer")
    assert tree(tmp_path) == {"model/file": b"newer"}


def test_a_writer_begins_by_clearing_up(tmp_path: Path) -> None:
    fill(tmp_path / ".model.old", "old")
    fill(tmp_path / ".model.new", "half")
    with pytest.raises(ValueError, match="stop"), storage.new_folder(tmp_path / "model"):
        raise ValueError("stop")
    assert tree(tmp_path) == {"model/file": b"old"}


def test_a_removed_folder_is_gone(tmp_path: Path) -> None:
    storage.remove_folder(fill(tmp_path / "step", "old"))
    assert os.listdir(tmp_path) == []


def test_tensors_come_back(tmp_path: Path) -> None:
    tensors = {"a": torch.arange(6).view(2, 3).t(), "b": torch.tensor(2.5)}
    storage.write_tensors(tmp_path / "a.safetensors", tensors, {"format": "1"})
    read = storage.read_tensors(tmp_path / "a.safetensors", "write them again")
    assert all(torch.equal(read[name], tensor) for name, tensor in tensors.items())


def truncated(content: bytes) -> bytes | None:
    return content[:-1]


def emptied(content: bytes) -> bytes | None:
    return b""


def removed(content: bytes) -> bytes | None:
    return None


@pytest.mark.parametrize("damage", [truncated, emptied, removed])
def test_damaged_tensors_are_named(tmp_path: Path, damage: Callable[[bytes], bytes | None]) -> None:
    path = tmp_path / "a.safetensors"
    storage.write_tensors(path, {"a": torch.zeros(9)}, {})
    content = damage(path.read_bytes())
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TwofoldError) as caught:
        storage.read_tensors(path, "write them again")
    assert str(caught.value).startswith(f"{path}: ")
    assert str(caught.value).endswith("; write them again")


FULL_DISK = """
import json, resource, sys
from pathlib import Path
import torch
from twofold import storage
from twofold.errors import TwofoldError
from twofold.model import Model

def folder():
    with storage.new_folder(Path("folder")) as aside:
        (aside / "file").write_bytes(b"new" * 3000)

model = Model.from_pretrained("model")
torch.nn.init.zeros_(next(model.parameters()))
# No file may grow beyond this: writing more fails as on a full disk.
resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
said = []
for attempt in (
    lambda: storage.write_bytes(Path("file"), b"new" * 3000),
    folder,
    lambda: storage.write_tensors(Path("tensors.safetensors"), {"a": torch.zeros(3000)}, {}),
    lambda: model.save_pretrained("model"),
):
    try:
        attempt()
        said.append("no error")
    except TwofoldError as error:
        said.append(str(error))
print(json.dumps(said))
"""


def test_a_full_disk_is_one_line_and_keeps_what_was_there(tmp_path: Path, tokenizer: TextTokenizer) -> None:
    (tmp_path / "file").write_text("old")
    fill(tmp_path / "folder", "old")
    small_model(tokenizer, encoder("rnn"), decoder("rnn")).save_pretrained(tmp_path / "model")
    before = tree(tmp_path)
    assert len(before["model/model.safetensors"]) > 4000
    ran = subprocess.run([sys.executable, "-c", FULL_DISK], cwd=tmp_path, capture_output=True, text=True, check=True)
    lines = json.loads(ran.stdout)
    for line, name in zip(lines, ("file", "folder", "tensors.safetensors", "model"), strict=True):
        assert name in line
        assert "could not be written" in line
        assert "File too large" in line
        assert "\n" not in line
    assert tree(tmp_path) == before
    assert sorted(os.listdir(tmp_path)) == ["file", "folder", "model"]


def test_further_layers_are_told_from_heads() -> None:
    names = ["norm.weight", "layer.0.dense.weight", "layer.1.dense.weight"]
    left_over = ["bert.layer.2.dense.weight", "layer.11.dense.weight", "head.norm.weight", "head.dense.weight"]
    assert storage.more_of_the_same(left_over, names) == left_over[:2]
    assert storage.more_of_the_same(left_over, ["norm.weight"]) == []


def test_a_key_that_stands_twice_in_json_is_refused(tmp_path: Path) -> None:
    assert storage.parse_json('{"a": {"b": 1}, "b": [{"a": 2}]}') == {"a": {"b": 1}, "b": [{"a": 2}]}
    assert storage.parse_json('\ufeff{"a": 1}'.encode()) == {"a": 1}
    with pytest.raises(ValueError, match="the key 'b' stands twice"):
        storage.parse_json('{"a": {"b": 1, "c": 2, "b": 3}}')
    (tmp_path / "file.json").write_text('{"a": 1, "a": 1}')
    with pytest.raises(TwofoldError, match=r"file.json: not readable as JSON \(the key 'a' stands twice\); again"):
        storage.read_json(tmp_path / "file.json", "again")
