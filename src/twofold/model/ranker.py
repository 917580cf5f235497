"""The ranker: one or two towers, then a ranking decoder; it scores candidates for a context."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, cast

import torch
from torch import Tensor, nn

from twofold.config import RankingPart, kind_of
from twofold.data.batches import by_length
from twofold.data.cache import Field
from twofold.data.candidates import given_candidates
from twofold.data.fields import SOURCE
from twofold.data.files import Row
from twofold.data.ranking import RankingReader, SideField
from twofold.data.ranking_batches import RankingBatch
from twofold.data.ranking_columns import ranking_columns
from twofold.data.tokenizer import Ids, TextTokenizer
from twofold.errors import NOT_NUMBERS, TwofoldError, as_texts
from twofold.layers.norms import BatchNorm
from twofold.model import saved
from twofold.model.candidates import Candidates, Text, as_context, as_contexts, as_k, as_pairs, best, different
from twofold.model.config import MAIN, RankerConfig
from twofold.model.learner import Evaluating, Learner
from twofold.model.ranking import Pieces, add_gradients, losses_of
from twofold.progress import Report
from twofold.results import Hit, Hits
from twofold.types import (
    Batch,
    Contexts,
    DecoderConfig,
    Encoder,
    EncoderConfig,
    Example,
    Loss,
    RankingHead,
    Vocabulary,
)

READ_TOKENS = 1024
"""Rows × longest of one batch when reading without learning."""


class Ranker(Learner):
    """f reads contexts and candidates, g scores them."""

    chunk_tokens = 1024
    """Rows × longest that are read at a time while learning."""
    memory_tokens = 8192
    """A batch with more padded tokens than this is read twice while learning, so that memory does not grow with it."""
    hard_negatives = False
    """Whether a cross-encoder that compares learns from the wrong candidates that its comparison takes for best."""

    def __init__(self, config: RankerConfig, tokenizer: TextTokenizer) -> None:
        super().__init__()
        config.check()
        self.config, self.tokenizer = config, tokenizer
        self.joined = cast(RankingPart, config.decoder).joined
        self.reader = RankingReader(config.context, config.response, config.preface)
        keep: Any = "turns" if config.keep_beginning else "tail"
        self.contexts = SideField("context", tokenizer, config.max_context, keep, config.query_prefix, config.separator)
        self.candidates = SideField("response", tokenizer, config.max_candidate, "head", config.candidate_prefix)
        encoder, decoder = cast(EncoderConfig, config.encoder), cast(DecoderConfig, config.decoder)
        vocabulary = self._vocabulary()
        self.encoder: Encoder = encoder.build(vocabulary, decoder.needs())
        head = cast(RankingHead, decoder.build(encoder.spec(), vocabulary))
        if config.separate and self.joined and not head.compares:
            raise TwofoldError(f"separate: the decoder '{kind_of(config.decoder)}' reads both sides as one text")
        if any(isinstance(module, BatchNorm) for module in self.encoder.modules()):
            raise TwofoldError("norm: batch does not go with ranking, whose texts are read in pieces; use norm: layer")
        self.candidate_tower = copy.deepcopy(self.encoder) if config.separate else None
        self.decoders = nn.ModuleDict({MAIN: head})

    @classmethod
    def from_pretrained(cls, folder: str | Path, allow_code: bool = False) -> Self:
        """The ranker that `save_pretrained` or a training wrote; parts outside twofold only with `allow_code`."""
        found = saved.read(Path(folder), allow_code)
        if not isinstance(found.config, RankerConfig):
            raise TwofoldError(f"{folder}: does not rank candidates; give a bi-, poly- or cross-encoder")
        config, tokenizer = found.config, found.tokenizers[SOURCE]
        saved.check_sizes(lambda: cls(config, tokenizer), found)
        model = cls(config, tokenizer)
        saved.load_weights(model, found.path)
        return model.eval()

    def save_pretrained(self, folder: str | Path) -> None:
        saved.write(self, self.config, {SOURCE: self.tokenizer}, Path(folder))

    def fingerprint(self) -> str:
        """A hash of weights, tokenizer and settings: vectors of rankers that differ in it do not mix."""
        return saved.fingerprint(self, self.config, {SOURCE: self.tokenizer})

    @property
    def head(self) -> RankingHead:
        return cast(RankingHead, self.decoders[MAIN])

    def towers(self) -> list[Encoder]:
        return [self.encoder] if self.candidate_tower is None else [self.encoder, self.candidate_tower]

    @property
    def candidate_encoder(self) -> Encoder:
        """What reads candidates alone."""
        return self.encoder if self.candidate_tower is None else self.candidate_tower

    @property
    def context_encoder(self) -> Encoder:
        """What reads contexts alone; of a cross-encoder the encoder itself may read both as one text only."""
        return self.candidate_encoder if self.joined else self.encoder

    def start_from(self, anyway: bool = False) -> None:
        """Take the weights that the encoder's settings name; a tower of the candidates' own begins with the same."""
        cast(EncoderConfig, self.config.encoder).fill(self.encoder, anyway)
        if self.candidate_tower is not None:
            self.candidate_tower.load_state_dict(self.encoder.state_dict())

    def take_weights(self, folder: str | Path, anyway: bool = False) -> None:
        """Begin with another model's weights: the encoder's, which must fit unless `anyway`, others where they do."""
        found = saved.read(Path(folder), allow_code=False)
        path, theirs = found.path, saved.read_weights(found.path)
        towers = any(name.startswith("candidate_tower.") for name in theirs)
        if self.joined and not getattr(getattr(found.config, "decoder", None), "joined", False):
            if towers:
                raise TwofoldError(f"{path}: has a tower for each side, but a cross-encoder reads both with one")
            head = f"decoders.{MAIN}."  # of the ranker to whose score this one adds
            theirs = {name.replace(head, f"{head}compare.", 1): one for name, one in theirs.items()}
        if not towers:  # a model with one tower serves both
            read = {name: one for name, one in theirs.items() if name.startswith("encoder.")}
            theirs |= {name.replace("encoder.", "candidate_tower.", 1): one for name, one in read.items()}
        saved.take(self, theirs, path, anyway)

    def joint(self, batch: Batch) -> Tensor:
        """The scores of contexts and candidates that are read as one text: (rows,)."""
        batch = batch.to(self.device)
        return self.head.joint(replace(self.encoder(batch), segments=batch.segments))

    # --- learning ---

    def columns(self, reader: RankingReader) -> dict[str, Field]:
        """What of each row that `reader` reads is kept in a cache."""
        return ranking_columns(self.contexts, self.candidates, reader)

    @property
    def weights(self) -> Mapping[str, float]:
        return {MAIN: 1.0}

    def counts(self, batch: RankingBatch) -> dict[str, int]:
        return {MAIN: len(batch)}

    def tokens(self, batch: RankingBatch) -> int:
        return batch.tokens

    def losses(self, batch: RankingBatch) -> dict[str, Loss]:
        with self.autocast():
            return {MAIN: losses_of(self, batch, Pieces(self, batch).run())}

    def backward(self, batch: RankingBatch, counts: Mapping[str, int]) -> dict[str, Loss]:
        """Add the gradients; a batch too large for memory is read piece by piece, twice."""
        return {MAIN: add_gradients(self, self._harder(batch) if self.hard_negatives else batch, 1.0 / counts[MAIN])}

    @torch.no_grad()
    def _harder(self, batch: RankingBatch) -> RankingBatch:
        """As many wrong candidates of each context as were drawn, but those that the comparison takes for best."""
        assert batch.drawn is not None
        contexts = Contexts(*self._keep(batch.contexts, self.context_encoder, self.head.context))
        vectors, _ = self._keep(batch.candidates, self.candidate_encoder, self.head.candidate)
        scores = self.head.score(contexts, vectors).cpu().masked_fill(~torch.from_numpy(batch.allowed), -torch.inf)
        scores[torch.arange(len(batch)), torch.from_numpy(batch.right)] = -torch.inf
        return replace(batch, drawn=scores.topk(batch.drawn.shape[1]).indices.numpy())

    # --- ranking ---

    def rank(self, context: Text, candidates: Iterable[str | Example] | Candidates, k: int = 10) -> Hits:
        """The k best candidates for a context, equal ones in their order; all candidates are scored."""
        start = time.perf_counter()
        chosen = candidates if isinstance(candidates, Candidates) else self.prepare(candidates)
        if not len(chosen):
            raise TwofoldError("there are no candidates to rank; give at least one")
        k = as_k(k)
        scores = self.score([self.check_context(context)], chosen)[0].cpu().numpy()
        scores = scores[chosen.first]  # equal texts read in different batches may differ in the last digit
        hits = [Hit(chosen.texts[one], float(scores[one]), chosen.ids[one]) for one in best(scores, k)]
        return Hits(hits, True, (time.perf_counter() - start) * 1000)

    def prepare(
        self, texts: Iterable[str | Example], ids: Iterable[Any] | None = None, report: Report | None = None
    ) -> Candidates:
        """Candidates with their vectors, computed once for many contexts: texts, or rows with `text` and `id`.

        Without an id of its own each has its place in the list, from 0.
        """
        given = given_candidates(texts, ids)
        chosen = [one.text for one in given]
        vectors = self.embed_candidates(chosen, report) if chosen and self.reads_alone else None
        return Candidates(chosen, [one.id for one in given], vectors)

    def embed_candidates(self, texts: Iterable[str], report: Report | None = None) -> Tensor:
        """(candidates, width)"""
        ids = self.candidates.encode_texts(as_texts(texts, "texts")).ids
        return self._keep(ids, self.candidate_encoder, self.head.candidate, report)[0]

    def embed_contexts(self, contexts: Iterable[Text], report: Report | None = None) -> Contexts:
        """What is kept of each context."""
        ids = self.contexts.encode_texts(as_contexts(contexts)).ids
        return Contexts(*self._keep(ids, self.context_encoder, self.head.context, report))

    def embed_context(self, context: Text) -> Contexts:
        """What is kept of one context."""
        return self.embed_contexts([context])

    @torch.no_grad()
    def score(self, contexts: Iterable[Text], candidates: Iterable[str | Example] | Candidates) -> Tensor:
        """(contexts, candidates)"""
        asked = as_contexts(contexts)
        chosen = candidates if isinstance(candidates, Candidates) else self.prepare(candidates)
        if not asked or not len(chosen):
            raise TwofoldError(f"there are no {'candidates' if asked else 'contexts'} to score; give at least one")
        with Evaluating(self):
            parts = []
            if chosen.vectors is not None:
                parts.append(self.head.score(self.embed_contexts(asked), chosen.vectors))
            if self.joined:
                joint = [self._joint_pairs([(one, text) for text in chosen.texts]) for one in asked]
                parts.append(torch.stack(joint))
            return _numbers("scores", parts[0] if len(parts) == 1 else parts[0] + parts[1])

    @torch.no_grad()
    def score_pairs(self, pairs: Iterable[tuple[Text, str]], report: Report | None = None) -> Tensor:
        """The score of each context with the candidate beside it: (pairs,)."""
        pairs = as_pairs(pairs)
        if not self.joined:
            return _numbers("scores", self._compare_pairs(pairs, report))
        joint = self._joint_pairs(pairs, report)
        return _numbers("scores", joint + self._compare_pairs(pairs) if self.reads_alone else joint)

    @property
    def reads_alone(self) -> bool:
        """Whether each side is read by itself, be it beside what is read as one text."""
        return not self.joined or self.head.compares

    def _joint_pairs(self, pairs: Sequence[tuple[Text, str]], report: Report | None = None) -> Tensor:
        """What both say as one text: (pairs,)."""
        first = _encoded_once(self.contexts, [context for context, _ in pairs])
        second = _encoded_once(self.candidates, [text for _, text in pairs])
        frame = self.tokenizer.frame
        results = torch.empty(len(pairs), device=self.device)
        done = 0
        with Evaluating(self), self.autocast():
            for numbers in by_length([len(a) + len(b) for a, b in zip(first, second, strict=True)], READ_TOKENS):
                some = [(first[number], second[number]) for number in numbers]
                batch = Pieces.joint(some, frame, self._vocabulary())
                results[numbers] = self.joint(batch).float()
                done += len(numbers)
                if report:
                    report(done)
        return results

    def _compare_pairs(self, pairs: Sequence[tuple[Text, str]], report: Report | None = None) -> Tensor:
        """The score of each pair from what is kept of both when they are read alone: (pairs,)."""
        asked, of_pair = different([context for context, _ in pairs])
        place = {text: number for number, text in enumerate(dict.fromkeys(text for _, text in pairs))}
        contexts, vectors = self.embed_contexts(asked, report), self.embed_candidates(list(place))
        places = zip(of_pair, (place[text] for _, text in pairs), strict=True)
        return torch.stack([self.head.score(contexts.rows(c, c + 1), vectors[t : t + 1])[0, 0] for c, t in places])

    def check_context(self, context: Text) -> Text:
        """A context with something in it."""
        return Row("the context", {"context": as_context(context, "the context")}).text("context")

    @torch.no_grad()
    def _keep(
        self, ids: Sequence[Ids], encoder: Encoder, keep: Any, report: Report | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """What the head keeps of each text, read in batches of like length."""
        vectors: Tensor | None = None
        mask: Tensor | None = None
        done = 0
        with Evaluating(self), self.autocast():
            for numbers in by_length([len(one) for one in ids], READ_TOKENS):
                batch = Pieces.alone([ids[number] for number in numbers], self.tokenizer.frame, self._vocabulary())
                kept = keep(encoder(batch.to(self.device)))
                own = (kept if isinstance(kept, Tensor) else kept.vectors).float()
                if vectors is None:
                    vectors = own.new_empty(len(ids), *own.shape[1:])
                vectors[numbers] = own
                if isinstance(kept, Contexts) and kept.mask is not None:
                    mask = kept.mask.new_empty(len(ids), kept.mask.shape[1]) if mask is None else mask
                    mask[numbers] = kept.mask
                done += len(numbers)
                if report:
                    report(done)
        if vectors is None:
            raise TwofoldError("there is nothing to read; give at least one text")
        return _numbers("vectors", vectors), mask

    def _vocabulary(self) -> Vocabulary:
        tokenizer, config = self.tokenizer, self.config
        frame = tokenizer.frame
        limit = max(config.max_context, config.max_candidate)
        if self.joined:  # as long as both in one frame, with what stands between them
            limit = config.max_context + config.max_candidate - len(frame) + len(frame.between)
        return Vocabulary(len(tokenizer), limit, tokenizer.pad, tokenizer.unknown, tokenizer.start, tokenizer.end)


def _numbers(what: str, values: Tensor) -> Tensor:
    """The same values, none of which is nan or an infinity."""
    if not values.isfinite().all():
        raise TwofoldError(f"the {what} are {NOT_NUMBERS}")
    return values


def _encoded_once(side: SideField, texts: Sequence[Text]) -> list[list[int]]:
    """The ids of each text; one that comes again, as a context does with every candidate, is cut into tokens once."""
    once, places = different(texts)
    ids = side.encode_texts(once).ids
    return [ids[place] for place in places]
