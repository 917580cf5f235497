"""Files of engines: announced when they are made, made anew when they do not suit, and never in a user's way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.attacks.disks import apart, fill, read_only, small_disk
from tests.commands import run
from tests.conftest import decoder, encoder, small_model
from tests.rankers import PAIRS, small_ranker
from twofold import runtime, storage
from twofold.data.tokenizer import TextTokenizer
from twofold.runtime import light_ranker, store

pytest.importorskip("onnx")
pytest.importorskip("openvino")
pytestmark = pytest.mark.filterwarnings("always::UserWarning")  # they are printed, as often as they are said
TEXTS = [str(pair["response"]) for pair in PAIRS]


@pytest.fixture(autouse=True)
def engines_may_run(monkeypatch: pytest.MonkeyPatch, one_thread: None) -> None:
    monkeypatch.setenv(runtime.VARIABLE, "openvino")


@pytest.fixture
def ranker(tokenizer: TextTokenizer, tmp_path: Path) -> Path:
    """Folder of a ranker, with a file of candidates beside it."""
    small_ranker(tokenizer, encoder("transformer"), decoder("bi")).eval().save_pretrained(tmp_path / "ranker")
    (tmp_path / "lines.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    return tmp_path / "ranker"


@pytest.fixture
def labels(tokenizer: TextTokenizer, tmp_path: Path) -> Path:
    """Folder of a model that writes labels."""
    small_model(tokenizer, encoder("rnn"), decoder("label")).save_pretrained(tmp_path / "labels")
    return tmp_path / "labels"


def rank_arguments(ranker: Path) -> list[str]:
    return ["rank", str(ranker), "--candidates", str(ranker.with_name("lines.txt")), "eleven", "--json"]


def hits_of(output: str) -> list[tuple[int, Any]]:
    """Places and scores of the one JSON object that was printed."""
    (line,) = output.splitlines()
    return [(hit["id"], pytest.approx(hit["score"], abs=2e-5)) for hit in json.loads(line)["hits"]]


def told(result: Result) -> str:
    """Standard error of a command that succeeded."""
    assert result.exit_code == 0, (result.stderr, result.exception)
    return result.stderr


def flip(path: Path) -> None:
    """Changes one bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_the_first_use_is_announced_once_and_json_stays_alone_on_standard_output(ranker: Path) -> None:
    first, second = run(*rank_arguments(ranker)), run(*rank_arguments(ranker))
    assert told(first) == f"preparing openvino for {ranker}, once; this takes some seconds\n"
    assert told(second) == ""
    assert hits_of(first.stdout) == hits_of(second.stdout)


def test_a_damaged_graph_is_made_anew_and_said_once(ranker: Path) -> None:
    first = run(*rank_arguments(ranker))
    (graph,) = store.engines_folder().glob(f"*/{store.GRAPH}")
    flip(graph)
    again, later = run(*rank_arguments(ranker)), run(*rank_arguments(ranker))
    warned, announced = told(again).splitlines()
    assert warned == "warning: openvino, TransformerEncoder: its file is damaged; made anew"
    assert announced.startswith("preparing openvino")
    assert told(later) == ""
    assert hits_of(first.stdout) == hits_of(again.stdout) == hits_of(later.stdout)
    assert light_ranker.find_ranker(str(ranker), "auto", "auto") is not None, "later calls would need torch"


def another_version(folder: Path) -> None:
    path = folder / light_ranker.ABOUT
    about = json.loads(path.read_text(encoding="utf-8"))
    del about[storage.CHECKSUM]
    storage.write_checked_json(path, {**about, "version": "0.1"})


DAMAGES: list[Callable[[Path], Any]] = [
    lambda folder: flip(folder / light_ranker.TOKENIZER),
    lambda folder: (folder / light_ranker.ABOUT).write_bytes(b""),
    another_version,
]


def test_files_for_ranking_without_torch_that_do_not_suit_are_made_anew(ranker: Path) -> None:
    first = run(*rank_arguments(ranker))
    (folder,) = store.rankers_folder().iterdir()
    for damage in DAMAGES:
        damage(folder)
        assert light_ranker.find_ranker(str(ranker), "auto", "auto") is None
        again = run(*rank_arguments(ranker))
        assert hits_of(first.stdout) == hits_of(again.stdout)
        assert light_ranker.find_ranker(str(ranker), "auto", "auto") is not None


def test_graphs_of_another_version_or_processor_are_made_anew_and_said_once(labels: Path) -> None:
    arguments: list[str | Path] = ["predict", labels, "one hundred", "seven", "--json"]
    first = run(*arguments)
    assert told(first).startswith("preparing openvino for ")
    (folder,) = store.engines_folder().iterdir()
    record = store.read_record(folder, "openvino", "float32")
    assert record is not None
    for changed in (replace(record, version="0.1"), replace(record, processor=["sse2"])):
        store.write_record(folder, changed)
        again = run(*arguments)
        line = "openvino, RNNEncoder: its file is of another version or another processor; made anew"
        assert told(again) == f"warning: {line}\n"
        assert told(run(*arguments)) == ""
        assert again.stdout == first.stdout


def full_disk(cache: Path) -> None:
    small_disk(cache, 64 << 10)
    fill(cache)


@pytest.mark.parametrize(
    ("disk", "why"),
    [
        (lambda cache: small_disk(cache, 24 << 10), "No space left on device"),
        (full_disk, "No space left on device"),
        (read_only, "Read-only file system"),
    ],
    ids=["small", "full", "read-only"],
)
def test_a_cache_folder_that_takes_no_files_leaves_torch_and_says_so_once(
    ranker: Path, disk: Callable[[Path], Any], why: str
) -> None:
    expected = run(*rank_arguments(ranker), "--runtime", "torch")
    cache = Path(os.environ["TWOFOLD_CACHE"])
    cache.mkdir(exist_ok=True)

    def ranked() -> tuple[int, str, str]:
        disk(cache)
        command = [sys.executable, "-m", "twofold", *rank_arguments(ranker)]
        done = subprocess.run(command, capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    status, output, errors = apart(ranked, 300)
    assert status == 0, errors
    assert hits_of(output) == hits_of(expected.stdout)
    *announced, warned = errors.splitlines()
    line = f"its file cannot be kept in the cache folder ({why}); torch is used"
    assert warned == f"warning: openvino, TransformerEncoder: {line}"
    assert all(line.startswith("preparing openvino") for line in announced)
