"""Explanations of answers and rankings: attention, alternatives, probabilities, and the influence of words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from twofold.data.candidates import Candidate
from twofold.data.memory import list_in_memory
from twofold.errors import TwofoldError
from twofold.explaining import LeftOut, Question, stacked_attention
from twofold.generate.search import GenerateOptions
from twofold.inputs import INPUT
from twofold.model import predicting
from twofold.model.candidates import Candidates
from twofold.model.representation import CANDIDATES, CONTEXTS
from twofold.recording import recorded_attention
from twofold.results import Hit, Hits
from twofold.results.explanation import CandidateExplanation, Explanation, Influence, RankingExplanation, ScoreParts
from twofold.types import Batch, Hidden

if TYPE_CHECKING:
    from twofold.model.model import Model
    from twofold.model.ranker import Ranker

MOST_WORDS = 1000
"""Maximum number of words whose influence is computed; each takes one run of the model."""


@torch.no_grad()
def explain(
    model: Model,
    given: Any,
    options: GenerateOptions | None = None,
    decoder: str | None = None,
    prefix: str | None = None,
    written: str | Sequence[int] | None = None,
    influence: bool = True,
) -> Explanation:
    """Explains the answer to one input.

    options: of generation; with a beam above 1, the steps of the beam search are shown
    prefix: beginning of a caption, for a model that was trained to continue one
    written: text, or its token ids, to explain instead of the text that the model generates
    influence: leaves out each word of the input, which takes one run of the model for each
    """
    name = model.decoder_name(decoder)
    part, output = model.decoder(name), model.outputs[name]
    row = model.input.row(given, "input 1")
    (item,), begun = model.input.items([row]), predicting.beginning(model, prefix)
    output.accept([row], [item])
    with model.evaluating():
        with recorded_attention() as record:
            hidden = model.encode_batch(predicting.reading_batch(model, [item], begun))
        tokens = tuple(model.input.pieces(item))
        options = options or model.config.generate
        question = Question(given, item, tokens, hidden, part, options, begun, written)
        raw = predicting.checked([output.result(question)])[0]
        explanation = output.explain(question, raw)
        attention = stacked_attention("encoder", record, tokens, tokens)
        explanation = replace(
            explanation,
            tokens=tokens,
            attention=(*explanation.attention, *attention),
            grid=hidden.grid,
            timeline=model.input.timeline(item),
        )
        return _with_influence(model, name, explanation, raw) if influence else explanation


def _with_influence(model: Model, name: str, explanation: Explanation, raw: Any) -> Explanation:
    """Adds the influence of each word of the input."""
    if not (names := model.outputs[name].score_names(explanation)):
        return explanation

    def scores(values: Sequence[Any], left_out: Sequence[int]) -> NDArray[np.float32]:
        rows = [model.input.row(value, "input 1") for value in values]
        return _scores(model, name, model.input.items(rows), raw, left_out)

    left_out = model.input.left_out(explanation.input)
    return replace(explanation, influence=_influence(left_out, explanation.input, names, scores))


def _scores(model: Model, name: str, items: Sequence[Any], raw: Any, left_out: Sequence[int]) -> NDArray[np.float32]:
    """Scores (items, scores) of the answer `raw` for items that lack a word."""
    part, output = model.decoder(name), model.outputs[name]
    scores: dict[int, NDArray[np.float32]] = {}
    for numbers in model.input.groups(items, predicting.PREDICT_TOKENS // 4):
        hidden = model.encode_batch(predicting.reading_batch(model, [items[number] for number in numbers], ()))
        rows = output.scores(part, hidden, raw, [left_out[number] for number in numbers])
        scores |= zip(numbers, rows, strict=True)
    return np.stack([scores[number] for number in range(len(items))])


def _influence(
    left_out: LeftOut,
    whole: Any,
    names: Sequence[str],
    scores: Callable[[Sequence[Any], Sequence[int]], NDArray[np.float32]],
) -> Influence | None:
    """Scores with each word minus scores without it; None without words.

    scores: (values, scores) of values, each with the index of the word that it lacks, or -1
    """
    if not left_out:
        return None
    if len(left_out) > MOST_WORDS:
        raise TwofoldError(
            f"explain: {len(left_out):,} words, and the influence of at most {MOST_WORDS:,} is computed, each by a run "
            "of the model without it; shorten the text, or set influence=False"
        )
    words = [number for number, (_, value) in enumerate(left_out) if value is not None]
    values = np.full((len(left_out), len(names)), np.nan, np.float32)
    if words:
        computed = scores([whole, *(left_out[number][1] for number in words)], [-1, *words])
        values[words] = computed[0] - computed[1:]
    return Influence(tuple(word for word, _ in left_out), tuple(names), values)


def explain_ranking(
    ranker: Ranker, context: Any, candidates: Iterable[Any], k: int = 3, influence: bool = True
) -> RankingExplanation:
    """Explains the scores of the k best candidates for a context.

    influence: leaves out each word of the context and of these candidates, which takes one run of the model for each
    """
    if isinstance(candidates, Candidates):
        raise TwofoldError("explain: prepared candidates hold vectors without their tokens; give the texts")
    given = list(ranker.candidates.candidates(list_in_memory(candidates, "candidates"), blank=True))
    ready = ranker.prepare_given(given)
    hits = ranker.rank(context, Candidates(ready.texts, range(len(given)), ready.vectors), k)
    return _explain_hits(ranker, context, [given[hit.id] for hit in hits], hits, influence)


def explain_hits(
    ranker: Ranker, context: Any, candidates: Sequence[Candidate], hits: Hits, influence: bool = True
) -> RankingExplanation:
    """Explains hits among candidates that were read."""
    read = {candidate.id: candidate for candidate in candidates}
    return _explain_hits(ranker, context, [read[hit.id] for hit in hits], hits, influence)


@torch.no_grad()
def _explain_hits(
    ranker: Ranker, context: Any, best: Sequence[Candidate], hits: Hits, influence: bool
) -> RankingExplanation:
    context = ranker.check_context(context)
    (item,) = ranker.contexts.items_of([context])
    with ranker.evaluating():
        hidden = _hidden(ranker, CONTEXTS, item) if ranker.reads_alone else None
        pairs = zip(best, hits, strict=True)
        explained = [_explain_candidate(ranker, context, hidden, *pair, influence) for pair in pairs]
    if influence and hits:
        chosen, names = ranker.prepare_given(best), [hit.text for hit in hits]
        left_out = ranker.contexts.left_out(context)
        words = _influence(left_out, context, names, lambda values, _: _array(ranker.score(values, chosen)))
        explained = [replace(each, context_influence=_column(words, n)) for n, each in enumerate(explained)]
    return RankingExplanation(context, tuple(ranker.contexts.pieces(item)), tuple(explained))


def _explain_candidate(
    ranker: Ranker, context: Any, hidden: Hidden | None, candidate: Candidate, hit: Hit, influence: bool
) -> CandidateExplanation:
    """Parts of a candidate's score, and the influence of its words.

    hidden: the context as the encoder reads it alone; None for a cross-encoder
    """
    (item,) = ranker.candidates.items_of([candidate.read])
    parts = ScoreParts() if hidden is None else ranker.head.explain(hidden, _hidden(ranker, CANDIDATES, item))
    left_out = ranker.candidates.left_out(candidate.read) if influence else []
    words = _influence(left_out, candidate.read, ["score"], lambda texts, _: _array(ranker.score([context], texts)).T)
    tokens = tuple(ranker.candidates.pieces(item))
    return CandidateExplanation(candidate.text, candidate.id, hit.score, tokens, None, words, parts)


def _hidden(ranker: Ranker, what: str, item: Any) -> Hidden:
    """Encoder's output for one item of a side."""
    side = ranker.side(what)
    read = side.input.batch([item]).to(ranker.device)
    return read.encode(side.encoder, Batch({INPUT: read}))


def _column(influence: Influence | None, number: int) -> Influence | None:
    """Influence on one of several scores."""
    if influence is None:
        return None
    return replace(influence, scores=("score",), values=influence.values[:, number : number + 1])


def _array(scores: Tensor) -> NDArray[np.float32]:
    return scores.float().cpu().numpy()
