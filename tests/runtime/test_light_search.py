"""Once a model has searched an index, `twofold search` needs neither torch nor transformers, and finds the same.

A small index needs no numba either.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import decoder, encoder
from tests.index.common import TEXTS, make_shards_small
from tests.rankers import small_ranker
from twofold import api, runtime
from twofold.cli.search import _named_model
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.index import Index, products, quantized, search
from twofold.model import Ranker
from twofold.results import Hit, Hits, Passage
from twofold.runtime import light_files, light_ranker

pytest.importorskip("onnx")
CONTEXTS: list[Any] = ["eleven", ["three", "nine hundred"], "삼백", "one " * 60]
COMMAND = """
import sys
from twofold.cli import main
try:
    main(sys.argv[1:])
finally:
    print(sorted({"torch", "transformers", "numba"} & sys.modules.keys()), file=sys.stderr)
"""


SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "bi": ("bi", {"normalize": "none", "similarity": "cosine"}),
    "poly": ("poly", {"attention": "scaled", "normalize": "none"}),
    "poly of first states": ("poly", {"code_kind": "first", "codes": 9}),
    "late": ("late", {}),
}
FORMS: list[tuple[str | None, str | None]] = [(None, None), ("float16", "4:1"), ("int8", None)]
"""What is stored, and how texts are split."""
FILTERS: list[dict[str, Any]] = [{}, {"where": "year < 3", "exclude": ["t1", "t15"]}, {"mode": "fast"}]
AUTO = {"runtime": "auto", "precision": "auto"}


@pytest.fixture(autouse=True)
def engines_may_run(monkeypatch: pytest.MonkeyPatch, one_thread: None) -> None:
    monkeypatch.setenv(runtime.VARIABLE, "openvino")


@dataclass(frozen=True)
class Prepared:
    """Ranker in a folder, and what an earlier call has prepared of it."""

    model: Ranker
    folder: Path
    cache: Path
    light: light_ranker.LightRanker


@pytest.fixture(scope="module", params=SETTINGS)
def prepared(
    request: pytest.FixtureRequest, tokenizer: TextTokenizer, tmp_path_factory: pytest.TempPathFactory
) -> Prepared:
    place = tmp_path_factory.mktemp("prepared")
    ranks, settings = SETTINGS[request.param]
    model = small_ranker(tokenizer, encoder("transformer"), decoder(ranks, **settings), two_towers=ranks == "bi").eval()
    model.save_pretrained(place / "model")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(runtime.VARIABLE, "openvino")
        patch.setenv("TWOFOLD_CACHE", str(place / "cache"))
        runtime.install(model)
        files = light_ranker.folder_for(str(place / "model"), **AUTO)
        assert files is not None
        light_files.write(model, files)
        light = light_ranker.find_ranker(str(place / "model"), **AUTO)
    assert light is not None
    return Prepared(model, place / "model", place / "cache", light)


def check_same(ours: Hits, theirs: Hits) -> None:
    assert [hit.id for hit in ours] == [hit.id for hit in theirs]
    assert [(hit.text, hit.fields, hit.passage) for hit in ours] == [
        (hit.text, hit.fields, hit.passage) for hit in theirs
    ]
    np.testing.assert_allclose([hit.score for hit in ours], [hit.score for hit in theirs], atol=1e-5, rtol=1e-5)
    assert ours.exact == theirs.exact


def test_an_index_gives_the_same_hits_without_torch(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_shards_small(monkeypatch)
    monkeypatch.setattr(search, "SCAN_LIMIT", 0)
    rows = [{"text": text, "id": f"t{number}", "year": number % 7} for number, text in enumerate(TEXTS[:120])]
    for stored, split in FORMS:
        folder = tmp_path / f"index of {stored}"
        with Index.build(folder, prepared.model, rows, stored, split=split) as by_torch:
            expected = [by_torch.search_many(CONTEXTS, 12, **filter) for filter in FILTERS]
        with Index(folder) as index, pytest.MonkeyPatch.context() as patch:
            for module in (products, quantized):
                patch.setattr(module, "loaded_torch", lambda: None)
            index.read_contexts_by(prepared.light, "model")
            for filter, theirs in zip(FILTERS, expected, strict=True):
                ours = index.search_many(CONTEXTS, 12, **filter)
                for context, hits, together in zip(CONTEXTS, theirs, ours, strict=True):
                    check_same(index.search(context, 12, **filter), hits)
                    check_same(together, hits)


def command(*arguments: str | Path) -> tuple[Any, str]:
    """Runs a command in a process of its own; returns its JSON, and which of three libraries were imported."""
    run = [sys.executable, "-c", COMMAND, *map(str, arguments)]
    done = subprocess.run(run, capture_output=True, text=True, check=True, env=os.environ)
    return json.loads(done.stdout), done.stderr.splitlines()[-1]


def as_hits(content: Any) -> Hits:
    """Hits of an answer in JSON, without what they are called."""
    hits = [
        Hit(**{**hit, "passage": Passage(**hit["passage"]) if "passage" in hit else None}) for hit in content["hits"]
    ]
    return Hits(hits, content["exact"], 0.0)


def test_the_second_search_imports_neither_torch_nor_transformers(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    model = small_ranker(tokenizer, encoder("transformer"), decoder("poly")).eval()
    model.save_pretrained(tmp_path / "model")
    rows = [{"text": " and ".join(TEXTS[number : number + 4]), "year": number} for number in range(40)]
    folder = tmp_path / "index"
    api.build_index(folder, tmp_path / "model", rows, split="6:2").close()
    first, imported = command("search", folder, "eleven", "--json")
    assert "torch" in imported
    second, imported = command("search", folder, "eleven", "--json")
    assert imported == "[]"
    assert first.keys() == second.keys()
    assert first["context"] == second["context"]
    check_same(as_hits(second), as_hits(first))
    options = ["--where", "year >= 5", "--exclude", "7", "--exclude", "9", "-k", "3", "--json"]
    turns = ["three", "nine hundred"]
    some, imported = command("search", folder, *turns, *options)
    assert imported == "[]"
    with api.open_index(folder) as index:
        check_same(as_hits(some), index.search(turns, 3, "year >= 5", [7, 9]))
        check_same(as_hits(second), index.search(["eleven"]))
        assert any(hit.passage for hit in index.search(["eleven"]))
    reranked, imported = command("search", folder, "eleven", "-k", "2", "--json", "--then", f"{tmp_path / 'model'}:4")
    assert "torch" in imported
    assert len(reranked["hits"]) == 2


@pytest.mark.parametrize("prepared", ["bi"], indirect=True)
def test_another_model_is_refused_without_torch_as_with_it(
    prepared: Prepared, tokenizer: TextTokenizer, tmp_path: Path
) -> None:
    assert prepared.light.fingerprint() == prepared.model.fingerprint()
    other = small_ranker(tokenizer, encoder("transformer"), decoder("bi"), seed=1).eval()
    Index.build(tmp_path / "index", other, TEXTS[:20], name="other").close()
    with Index(tmp_path / "index") as index, pytest.raises(TwofoldError) as ours:
        index.read_contexts_by(prepared.light, str(prepared.folder))
    with pytest.raises(TwofoldError) as theirs, api.open_index(tmp_path / "index", prepared.folder) as index:
        index.search("eleven")
    assert "built with another model" in str(theirs.value)
    assert str(ours.value) == str(theirs.value)


def test_weights_of_the_same_size_and_date_are_those_of_another_model(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    for seed in (0, 1):
        model = small_ranker(tokenizer, encoder("transformer"), decoder("bi"), seed)
        model.save_pretrained(tmp_path / str(seed))
    first = light_ranker.folder_for(str(tmp_path / "0"), **AUTO)
    assert first == light_ranker.folder_for(str(tmp_path / "0"), **AUTO)
    for path in (tmp_path / "0").iterdir():
        before, content = path.stat(), (tmp_path / "1" / path.name).read_bytes()
        assert len(content) == before.st_size
        path.write_bytes(content)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert light_ranker.folder_for(str(tmp_path / "0"), **AUTO) not in (first, None)


@pytest.mark.parametrize("prepared", ["bi"], indirect=True)
def test_an_index_of_contexts_and_one_built_by_torch_are_searched_by_torch(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWOFOLD_CACHE", str(prepared.cache))
    found = []
    ways: list[dict[str, Any]] = [{}, {"runtime": "torch"}, {"reverse": True}]
    for number, how in enumerate(ways):
        api.build_index(tmp_path / str(number), prepared.folder, TEXTS[:20], **how).close()
        with Index(tmp_path / str(number)) as index:
            named = _named_model(index, AUTO)
            found.append(named and light_ranker.find_ranker(**named) is not None)
    assert found == [True, False, None]
