"""`twofold.evaluate` and the command line give the same: rows in memory, a corpus, cascades, reverse, tokenizers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets  # type: ignore[import-untyped]
import numpy as np
import pandas  # type: ignore[import-untyped]
import pytest

import twofold
from tests.commands import answer, refusal, run
from tests.conftest import decoder, encoder, small_model, write_jsonl
from tests.metrics.test_ranking import KINDS, PAIRS, TEXTS, ranker, rows_of_candidates
from tests.metrics.test_text import REFERENCES, WRITTEN
from twofold.data.ranks import metrics_of_gains
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.metrics import text
from twofold.model import Ranker
from twofold.model.candidates import cascade

ROWS = rows_of_candidates(rows=9)
CORPUS = [{"text": text, "id": f"d{number}"} for number, text in enumerate(TEXTS)]
QUERIES = [{"text": TEXTS[number], "relevant": [f"d{number + 1}", f"d{2 * number}"]} for number in range(7)]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, tokenizer: TextTokenizer) -> Path:
    """A ranker of each kind and a model that writes texts, with rows in files."""
    folder = tmp_path_factory.mktemp("models")
    for kind in KINDS:
        ranker(tokenizer, kind).save_pretrained(folder / kind)
    small_model(tokenizer, encoder("rnn"), decoder("rnn")).save_pretrained(folder / "write")
    write_jsonl(folder / "rows.jsonl", ROWS)
    write_jsonl(folder / "pairs.jsonl", PAIRS)
    write_jsonl(folder / "corpus.jsonl", CORPUS)
    write_jsonl(folder / "queries.jsonl", QUERIES)
    write_jsonl(folder / "texts.jsonl", [{"source": row["context"], "target": row["response"]} for row in PAIRS[:5]])
    return folder


def metrics(content: dict[str, Any]) -> dict[str, float]:
    """Metrics without the time."""
    return {name: value for name, value in content["metrics"].items() if name != "milliseconds"}


@pytest.mark.parametrize(
    "data", [ROWS, datasets.Dataset.from_list(ROWS), pandas.DataFrame(ROWS)], ids=["dicts", "dataset", "frame"]
)
def test_rows_in_memory_give_the_metrics_of_their_file(models: Path, data: Any) -> None:
    expected = twofold.evaluate(models / "bi", models / "rows.jsonl", timed=0)
    assert twofold.evaluate(models / "bi", data, timed=0) == expected
    assert twofold.evaluate(models / "bi", iter(ROWS), timed=0) == expected


@pytest.mark.parametrize("corpus", [CORPUS, pandas.DataFrame(CORPUS), datasets.Dataset.from_list(CORPUS)])
def test_a_corpus_in_memory_gives_the_metrics_of_its_file(models: Path, corpus: Any) -> None:
    there = answer("evaluate", models / "bi", models / "queries.jsonl", "--corpus", models / "corpus.jsonl")
    assert twofold.evaluate(models / "bi", QUERIES, corpus=corpus).metrics == there["metrics"]


def test_the_command_line_gives_what_python_gives(models: Path) -> None:
    there = answer("evaluate", models / "bi", models / "pairs.jsonl", "--among", "5", "--reverse")
    here = twofold.evaluate(models / "bi", PAIRS, candidates=5, reverse=True, timed=0)
    assert metrics(there) == here.metrics
    assert here.metrics != twofold.evaluate(models / "bi", PAIRS, candidates=5, timed=0).metrics


def ranked_by_cascade(models: Path, context: Any, texts: list[str]) -> list[str]:
    """Order of all candidates after three stages, by the functions that `twofold rank` uses."""
    first, second, third = (Ranker.from_pretrained(models / kind) for kind in ("bi", "poly", "cross"))
    stages = [(second, 6), (third, 3)]
    again = [hit.text for hit in cascade(lambda depth: first.rank(context, texts, depth), len(texts), stages, context)]
    after_two = [hit.text for hit in second.rank(context, [hit.text for hit in first.rank(context, texts, 6)], 6)]
    rest = [hit.text for hit in first.rank(context, texts, len(texts))]
    return list(dict.fromkeys([*again, *after_two, *rest]))


def test_a_cascade_is_evaluated_in_the_order_that_it_gives(models: Path) -> None:
    stages = ["--then", f"{models / 'poly'}:6", "--then", f"{models / 'cross'}:3"]
    there = answer("evaluate", models / "bi", models / "rows.jsonl", *stages)
    then = [(models / "poly", 6), (models / "cross", 3)]
    here = twofold.evaluate(models / "bi", ROWS, then=then)
    assert metrics(there) == metrics({"metrics": here.metrics})
    assert "cosine" not in here.metrics
    expected: list[dict[str, float]] = []
    for row in ROWS:
        order = ranked_by_cascade(models, row["context"], row["candidates"])
        scores = [-order.index(candidate) for candidate in row["candidates"]]
        gains = [float(number == row["label"]) for number in range(len(scores))]
        expected.append(metrics_of_gains(scores, gains, "row", (1, 2, 5)))
    for name in expected[0]:
        assert here.metrics[name] == pytest.approx(np.mean([values[name] for values in expected])), name


def test_a_cascade_over_a_corpus_re_ranks_what_the_first_stage_finds(models: Path) -> None:
    first, cross = (Ranker.from_pretrained(models / kind) for kind in ("bi", "cross"))
    here = twofold.evaluate(first, QUERIES, corpus=CORPUS, then=[(cross, 30)]).metrics
    texts = {document["id"]: document["text"] for document in CORPUS}
    reciprocal = []
    for query in QUERIES:
        before = [str(hit.id) for hit in first.rank(query["text"], CORPUS, len(CORPUS))]
        again = cross.rank(query["text"], [{"text": texts[id], "id": id} for id in before[:30]], 30)
        order = [*(str(hit.id) for hit in again), *before[30:]]
        reciprocal.append(1 / min(order.index(id) + 1 for id in query["relevant"]))
    assert here["mrr"] == pytest.approx(np.mean(reciprocal))
    assert here["mrr"] != twofold.evaluate(first, QUERIES, corpus=CORPUS).metrics["mrr"]


def test_settings_that_do_not_suit_the_model_are_refused(models: Path) -> None:
    rows = models / "texts.jsonl"
    with pytest.raises(TwofoldError, match=r"^corpus is for rankers; leave it out$"):
        twofold.evaluate(models / "write", rows, corpus=CORPUS)
    with pytest.raises(TypeError, match="no setting 'corpsu'; did you mean 'corpus'"):
        twofold.evaluate(models / "bi", rows, corpsu=CORPUS)  # type: ignore[call-arg]
    with pytest.raises(TwofoldError, match=r"^k must be at least 1, not 0$"):
        twofold.evaluate(models / "bi", PAIRS, then=[(models / "cross", 0)])
    with pytest.raises(TwofoldError, match="give files or rows, not both"):
        twofold.evaluate(models / "bi", [models / "pairs.jsonl", PAIRS[0]])
    said = refusal("evaluate", models / "bi", models / "pairs.jsonl", "--then", f"{models / 'cross'}", status=2)
    assert said.endswith("write MODEL:K, such as runs/rank_cross:20")
    assert refusal("evaluate", models / "bi", rows, "--tokenize", "zh").startswith("--tokenize is for")
    assert refusal("evaluate", models / "write", rows, "--then", "x:3").startswith("--then is for rankers")


def test_the_tokenizer_of_bleu_is_settable_and_its_signature_is_told(models: Path) -> None:
    there = answer("evaluate", models / "write", models / "texts.jsonl", "--tokenize", "char")
    assert "|tok:char|" in there["signatures"]["bleu"]
    assert set(there["signatures"]) == {"bleu", "chrf"}
    here = twofold.evaluate(models / "write", models / "texts.jsonl", tokenize="char")
    assert here.signatures == there["signatures"]
    plain = answer("evaluate", models / "write", models / "texts.jsonl")
    assert "nrefs:1|" in plain["signatures"]["bleu"]
    assert "|tok:13a|" in plain["signatures"]["bleu"]
    assert plain["signatures"]["bleu"] in run("evaluate", models / "write", models / "texts.jsonl").stdout
    assert text.compare(WRITTEN, REFERENCES, "char") != text.compare(WRITTEN, REFERENCES)
    said = refusal("evaluate", models / "write", models / "texts.jsonl", "--tokenize", "ko_mecab")
    assert said == "tokenize: sacrebleu has no tokenizer 'ko_mecab'; did you mean 'ko-mecab'?"


@pytest.fixture
def warned_anew() -> Iterator[None]:
    """Lets a warning that is given once be given again."""
    text._say_standard.cache_clear()
    yield
    text._say_standard.cache_clear()


@pytest.mark.usefixtures("warned_anew")
def test_korean_is_compared_by_morphemes_where_that_is_installed_and_else_it_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    korean = ["강가에서 아이가 연을 날리고 있다", "OK 램프가 고장 났다"]
    assert text.tokenizer_for(["the lamp is broken 램프"]) == "13a"
    assert text.tokenizer_for(korean, "char") == "char"
    installed = text._bleu

    def bleu(tokenize: str) -> Any:
        return installed("13a" if tokenize == "ko-mecab" else tokenize)

    def without(tokenize: str) -> Any:
        if tokenize == "ko-mecab":
            raise TwofoldError("not installed")
        return installed(tokenize)

    monkeypatch.setattr(text, "_bleu", bleu)
    assert text.tokenizer_for(korean) == "ko-mecab"
    monkeypatch.setattr(text, "_bleu", without)
    with pytest.warns(UserWarning, match=r"sacrebleu's tokenizer 13a; ko-mecab, .*pip install 'sacrebleu\[ko\]'"):
        assert text.tokenizer_for(korean) == "13a"
    assert text.tokenizer_for(korean) == "13a"  # said once


def test_tables_on_the_terminal_have_headings(models: Path) -> None:
    lines = run("evaluate", models / "write", models / "texts.jsonl").stdout.splitlines()
    heading = lines[lines.index("bleu by length") + 1]
    assert heading.split() == ["words", "rows", "bleu"]
    lines = run("evaluate", models / "bi", models / "rows.jsonl").stdout.splitlines()
    assert lines[-3:] == ["candidates", "  candidates  rows", "  12             9"]
