"""Candidates are the same from dicts, generators, a `datasets.Dataset` and a DataFrame, wherever they are given."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import datasets  # type: ignore[import-untyped]
import numpy as np
import pandas  # type: ignore[import-untyped]
import pytest
from PIL import Image

import twofold
from tests.conftest import decoder, encoder, input_of, some_image
from tests.rankers import small_ranker
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.model import ModelConfig, Ranker, Task
from twofold.outputs.ranking import Config as RankingOutput

ROWS = [{"id": f"n{number}", "text": text, "size": number} for number, text in enumerate(["11", "2045", "300", "7"])]
MORE = [{"id": "n1", "text": "102 and 7", "size": 1}, {"id": "n4", "text": "3 900 6", "size": 4}]
Given = Callable[[list[dict[str, Any]]], Iterable[Any]]
KINDS: dict[str, Given] = {
    "generator": iter,
    "dataset": datasets.Dataset.from_list,
    "numpy dataset": lambda rows: datasets.Dataset.from_list(rows).with_format("numpy"),
    "stream": lambda rows: datasets.Dataset.from_list(rows).to_iterable_dataset(),
    "frame": pandas.DataFrame,
}


@pytest.fixture(scope="module")
def ranker(tokenizer: TextTokenizer) -> Ranker:
    return small_ranker(tokenizer, encoder("transformer"), decoder("bi")).eval()


@pytest.mark.parametrize("given", KINDS.values(), ids=KINDS)
def test_a_ranker_takes_the_ids_and_texts_of_every_kind(ranker: Ranker, given: Given) -> None:
    expected = ranker.rank("eleven", ROWS)
    assert {hit.id for hit in expected} == {row["id"] for row in ROWS}
    assert ranker.rank("eleven", given(ROWS))[:] == expected[:]
    assert ranker.prepare(given(ROWS)).ids == [row["id"] for row in ROWS]
    np.testing.assert_array_equal(ranker.score(["eleven"], given(ROWS)), ranker.score(["eleven"], ROWS))
    explained = ranker.explain("eleven", given(ROWS), k=2, influence=False)
    assert [candidate.id for candidate in explained.candidates] == [hit.id for hit in expected[:2]]


@pytest.mark.parametrize("given", KINDS.values(), ids=KINDS)
def test_an_index_is_built_added_to_and_updated_from_every_kind(tmp_path: Path, ranker: Ranker, given: Given) -> None:
    index = twofold.build_index(tmp_path / "index", ranker, given(ROWS[:2]))
    assert index.add(given(ROWS[2:])) == 2
    index.update(given(MORE))
    expected = {row["id"]: (row["text"], {"size": row["size"]}) for row in [*ROWS, *MORE]}
    assert {hit.id: (hit.text, dict(hit.fields)) for hit in index.search("eleven", k=9)} == expected


def test_images_are_candidates_in_rows_of_every_kind(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    names = [str(tmp_path / f"{number}.png") for number in range(3)]
    for number, name in enumerate(names):
        Image.fromarray(some_image(16, 16, number)).save(name)
    rows = [{"id": number, "image": name} for number, name in enumerate(names)]
    task = Task(decoder("bi"), RankingOutput(candidate=input_of("image")))
    texts = input_of("text", column="context", max_tokens=20)
    config = ModelConfig(texts, encoder("transformer"), {"main": task}, candidate_encoder=encoder("convnet"))
    ranker = Ranker(config, {"input": tokenizer}).eval()
    expected = ranker.rank("eleven", rows)[:]
    for given in KINDS.values():
        assert ranker.rank("eleven", given(rows))[:] == expected


def test_several_splits_are_refused_and_named(ranker: Ranker, tmp_path: Path) -> None:
    splits = datasets.DatasetDict({"train": datasets.Dataset.from_list(ROWS)})
    for call in (
        lambda: ranker.rank("eleven", splits),
        lambda: twofold.build_index(tmp_path / "index", ranker, splits),
    ):
        with pytest.raises(TwofoldError, match=r"^texts: holds several splits; give one of them: train$"):
            call()


def test_rows_without_a_text_are_refused_with_what_they_need(ranker: Ranker) -> None:
    with pytest.raises(TwofoldError, match=r"^texts\[0\]: no 'text' here; give lines of text, or rows with 'text'"):
        ranker.rank("eleven", pandas.DataFrame({"answer": ["11"]}))
