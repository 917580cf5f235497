"""Once a model has been used, `twofold rank` needs neither torch nor transformers, and ranks the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import decoder, encoder
from tests.rankers import PAIRS, small_ranker
from twofold import runtime
from twofold.data.candidates import Candidate
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.model import Ranker
from twofold.runtime import light_files, light_ranker

pytest.importorskip("onnx")
TEXTS = [*(str(pair["response"]) for pair in PAIRS), "", "2045", "seven 🙂", "one " * 60]
CONTEXTS: list[Any] = ["eleven", ["three", "nine hundred"], "삼백", "one " * 60]
COMMAND = """
import sys
from twofold.cli import main
try:
    main(sys.argv[1:])
finally:
    print(sorted({"torch", "transformers"} & sys.modules.keys()), file=sys.stderr)
"""


@pytest.fixture(autouse=True)
def engines_may_run(monkeypatch: pytest.MonkeyPatch, one_thread: None) -> None:
    monkeypatch.setenv(runtime.VARIABLE, "openvino")


def saved(model: Ranker, folder: Path) -> str:
    model.save_pretrained(folder)
    return str(folder)


def light_of(model: Ranker, name: str) -> light_ranker.LightRanker | None:
    runtime.install(model)
    folder = light_ranker.folder_for(name, "auto", "auto")
    assert folder is not None
    light_files.write(model, folder)
    return light_ranker.find_ranker(name, "auto", "auto")


@pytest.mark.parametrize(
    ("ranks", "settings", "two_towers"),
    [
        ("bi", {"normalize": "none", "similarity": "cosine"}, True),
        ("poly", {"attention": "scaled", "normalize": "none"}, False),
        ("late", {}, False),
    ],
)
def test_without_torch_the_order_and_the_scores_are_the_same(
    tokenizer: TextTokenizer, tmp_path: Path, ranks: str, settings: dict[str, Any], two_towers: bool
) -> None:
    model = small_ranker(tokenizer, encoder("transformer"), decoder(ranks, **settings), two_towers=two_towers).eval()
    expected = [model.rank(context, TEXTS, 20) for context in CONTEXTS]
    light = light_of(model, saved(model, tmp_path / "model"))
    assert light is not None
    candidates = [Candidate(text, number) for number, text in enumerate(TEXTS)]
    for context, theirs in zip(CONTEXTS, expected, strict=True):
        ours = light.rank(context, candidates, 20)
        np.testing.assert_allclose([hit.score for hit in ours], [hit.score for hit in theirs], atol=2e-5)
        assert {hit.id: hit.text for hit in ours} == {hit.id: hit.text for hit in theirs}
        assert ours.exact


@pytest.mark.parametrize(
    ("ranks", "settings"),
    [("cross", {}), ("poly", {"attention": "multihead", "heads": 2}), ("late", {"max_vectors": 2})],
)
def test_other_scores_and_pooled_tokens_need_torch(
    tokenizer: TextTokenizer, tmp_path: Path, ranks: str, settings: dict[str, Any]
) -> None:
    model = small_ranker(tokenizer, encoder("transformer"), decoder(ranks, **settings)).eval()
    assert light_of(model, saved(model, tmp_path / "model")) is None


def command(name: str, candidates: Path, *options: str) -> tuple[dict[str, Any], str]:
    """Ranks in a process of its own; also returns which of the two libraries were imported."""
    arguments = ["rank", name, "--candidates", str(candidates), "eleven", "--json", *options]
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *arguments], capture_output=True, text=True, check=True, env=os.environ
    )
    content: dict[str, Any] = json.loads(done.stdout)
    return content, done.stderr.splitlines()[-1]


def test_the_second_call_of_rank_imports_neither_torch_nor_transformers(
    tokenizer: TextTokenizer, tmp_path: Path
) -> None:
    model = small_ranker(tokenizer, encoder("transformer"), decoder("poly")).eval()
    name = saved(model, tmp_path / "model")
    candidates = tmp_path / "candidates.txt"
    candidates.write_text("\n".join(text.strip() for text in TEXTS if text.strip()), encoding="utf-8")
    first, imported = command(name, candidates)
    assert "torch" in imported
    second, imported = command(name, candidates)
    assert imported == "[]"
    assert [hit["id"] for hit in first["hits"]] == [hit["id"] for hit in second["hits"]]
    np.testing.assert_allclose(
        [hit["score"] for hit in first["hits"]], [hit["score"] for hit in second["hits"]], atol=2e-5
    )
    assert first.keys() == second.keys()


def test_empty_contexts_are_the_same_errors_and_damaged_or_outdated_files_are_not_read(
    tokenizer: TextTokenizer, tmp_path: Path
) -> None:
    model = small_ranker(tokenizer, encoder("transformer"), decoder("bi")).eval()
    name = saved(model, tmp_path / "model")
    light = light_of(model, name)
    assert light is not None
    for context in ("", " ", ["", ""]):
        with pytest.raises(TwofoldError) as theirs:
            model.rank(context, TEXTS)
        with pytest.raises(TwofoldError) as ours:
            light.rank(context, [Candidate("eleven", 0)])
        assert str(ours.value) == str(theirs.value)
    folder = light_ranker.folder_for(name, "auto", "auto")
    assert folder is not None
    for path in sorted(folder.iterdir()):
        before = path.read_bytes()
        content = bytearray(before)
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        assert light_ranker.find_ranker(name, "auto", "auto") is None, path.name
        path.write_bytes(before)
    assert light_ranker.find_ranker(name, "auto", "auto") is not None
    saved(small_ranker(tokenizer, encoder("transformer"), decoder("bi"), seed=1).eval(), tmp_path / "model")
    assert light_ranker.find_ranker(name, "auto", "auto") is None
