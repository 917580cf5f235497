"""The ranker: a model whose decoder scores candidates for a context; one or two encoders read both sides."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from twofold.config import kind_of
from twofold.data.cache import Field
from twofold.data.candidates import Candidate, Text, with_ids
from twofold.data.files import Row, Sources
from twofold.data.ranking import AUTO, RankingReader
from twofold.data.tokenizer import TextTokenizer
from twofold.decoders import RankingDecoder, RankingDecoderConfig, Vectors
from twofold.errors import TwofoldError, as_list
from twofold.inputs import INPUT, BatchSizes, Input
from twofold.inputs.pair import PairInput
from twofold.inputs.text import TextInput
from twofold.layers.blocks import BatchNorm
from twofold.model import encoding, explaining, reversing, saved
from twofold.model.candidates import Candidates, as_k, as_pairs, best, different, encoded_once
from twofold.model.config import MAIN, ModelConfig, building, check_widths
from twofold.model.model import Model, as_rows
from twofold.model.representation import CANDIDATES, CONTEXTS, PAIRS, Chunks, Represented, Side, finite, keep_items
from twofold.outputs.ranking import CANDIDATE, RankingOutput, RankingTarget, Unread
from twofold.progress import Report
from twofold.results import Hit, Hits
from twofold.types import Batch, Encoder, Example, InputSpec, Loss


class Ranker(Model):
    """f reads contexts and candidates, g scores them."""

    ranks = True
    is_reversed = False
    """Whether contexts and candidates have changed places since it was loaded."""

    def __init__(self, config: ModelConfig, tokenizers: Mapping[str, TextTokenizer]) -> None:
        self.joined = any(getattr(task.decoder, "joined", False) for task in config.tasks.values())
        """Whether a context and a candidate are read as one text."""
        super().__init__(config, tokenizers)
        decoder: Any = config.tasks[MAIN].decoder
        self.output_scale: float = decoder.output_scale
        self.symmetric = any(loss.is_symmetric() for loss in config.losses)
        """Whether a loss compares right candidates with all contexts as well."""
        if config.two_towers and not self.reads_alone:
            raise TwofoldError(f"two_towers: the decoder '{kind_of(decoder)}' reads both sides as one text")
        if any(isinstance(module, BatchNorm) for module in self.encoder.modules()):
            raise TwofoldError("norm: batch does not go with ranking, whose texts are read in pieces; use norm: layer")
        self.candidate_tower: Encoder | None = copy.deepcopy(self.encoder) if config.two_towers else None
        if config.candidate_encoder is not None:
            check_widths(config.encoder, config.candidate_encoder, config.needs())
            with building(config.candidate_encoder):
                self.candidate_tower = config.candidate_encoder.build(self.candidates.spec, config.needs())

    @property
    def kind(self) -> str:
        """The kind of the decoder."""
        return kind_of(self.config.tasks[MAIN].decoder)

    @property
    def head(self) -> RankingDecoder:
        """The decoder."""
        return cast(RankingDecoder, self.decoders[MAIN])

    @property
    def output(self) -> RankingOutput:
        """What is written: an order of candidates."""
        return cast(RankingOutput, self.outputs[MAIN])

    @property
    def contexts(self) -> Input[Any]:
        """How contexts are read."""
        return self.output.context

    @property
    def candidates(self) -> Input[Any]:
        """How candidates are read."""
        return self.output.candidate

    @property
    def reader(self) -> RankingReader:
        """Reads rows in the form of the training data."""
        return self.output.reader

    @property
    def tokenizer(self) -> TextTokenizer:
        return self.tokenizers[INPUT]

    @property
    def pair(self) -> PairInput:
        """How a context and a candidate are read as one text."""
        frame = self.tokenizer.frame
        context, candidate = cast(TextInput, self.contexts), cast(TextInput, self.candidates)
        # As long as both in one frame, with what stands between them.
        limit = context.limit + candidate.limit - len(frame) + len(frame.between)
        return PairInput(context.config, context.text, candidate.text, frame, limit)

    def reading_spec(self) -> InputSpec:
        if self.joined:
            return self.pair.vocabulary
        if self.config.candidate_encoder or self.contexts.tokenizer is None:
            return self.contexts.spec
        return replace(self.contexts.vocabulary, limit=max(self.contexts.limit, self.candidates.limit))

    def encoders(self) -> list[Encoder]:
        return [self.encoder] if self.candidate_tower is None else [self.encoder, self.candidate_tower]

    @property
    def candidate_encoder(self) -> Encoder:
        """What reads candidates alone."""
        return self.encoder if self.candidate_tower is None else self.candidate_tower

    def side(self, what: str) -> Side:
        """How contexts, candidates, or pairs of both are read, and what the decoder keeps of them."""
        head, alone = self.head, self.candidate_encoder
        if what == CONTEXTS:
            # Of a cross-encoder the encoder itself may read both as one text only.
            return Side(self.contexts, alone if self.joined else self.encoder, head.context)
        if what == CANDIDATES:
            return Side(self.candidates, alone, head.candidate)
        return Side(self.pair, self.encoder, lambda hidden: Vectors(head.joint(hidden)))

    @property
    def reads_alone(self) -> bool:
        """Whether each side is read by itself, be it beside what is read as one text."""
        return not self.joined or self.head.compares

    def start_from(self, anyway: bool = False) -> None:
        """Take the weights that the encoder's settings name; a tower of the candidates' own begins with the same."""
        super().start_from(anyway)
        if self.config.candidate_encoder is not None:
            self.config.candidate_encoder.fill(self.candidate_encoder, anyway)
        elif self.candidate_tower is not None:
            self.candidate_tower.load_state_dict(self.encoder.state_dict())

    def take_weights(self, folder: str | Path, anyway: bool = False) -> None:
        """Begin with another model's weights: the encoder's, which must fit unless `anyway`, others where they do."""
        other = saved.read(Path(folder), allow_code=False)
        path, theirs = other.path, saved.read_weights(other)
        towers = any(name.startswith("candidate_tower.") for name in theirs)
        decoders = [task.decoder for task in other.config.tasks.values()]
        if self.joined and not any(isinstance(part, RankingDecoderConfig) and part.joined for part in decoders):
            if towers:
                raise TwofoldError(f"{path}: has a tower for each side, but a cross-encoder reads both with one")
            head = f"decoders.{MAIN}."  # of the ranker to whose score this one adds
            theirs = {name.replace(head, f"{head}compare.", 1): value for name, value in theirs.items()}
        if not towers:  # a model with one tower serves both
            read = {name: value for name, value in theirs.items() if name.startswith("encoder.")}
            theirs |= {name.replace("encoder.", "candidate_tower.", 1): value for name, value in read.items()}
        saved.take(self, theirs, path, anyway)

    reversed = reversing.reversed_ranker
    encode = encoding.encode_documents
    encode_query = encoding.encode_query
    similarity = encoding.similarity
    explain = explaining.explain_ranking  # type: ignore[assignment]
    rank_many = encoding.rank_many

    # --- learning ---

    def columns(self) -> dict[str, Field]:
        return self.output.columns()

    def read(self, where: Sources, folder: str | None = None, form: str = AUTO) -> Iterator[Row]:
        input, reader = self.config.input.in_folder(folder), replace(self.reader, form=form)
        rows = input.rows(where) if form == AUTO else reader.read_as_given(where)
        return self.output.config.in_folder(folder).name_files(rows, where)

    def batch(self, examples: Sequence[Example], targets: bool = True, negatives: int = 15) -> Batch:
        """Examples as one batch, whose responses are each other's negatives; `negatives` is for cross-encoders."""
        sizes = BatchSizes(0, len(examples), 0, negatives if self.joined else None)
        return self.output.batch_at_hand(as_rows(examples), sizes)

    def target_of(self, batch: Batch) -> RankingTarget:
        """Which candidates of a batch are right."""
        return cast(RankingTarget, batch.targets[MAIN])

    def counts(self, batch: Batch) -> dict[str, int]:
        return {MAIN: len(batch)}

    def tokens(self, batch: Batch) -> int:
        lengths = cast(Unread, batch.inputs[CANDIDATE]).lengths()
        return batch.first.count() + sum(lengths[number] for number in self.target_of(batch).own)

    def represent(self, batch: Batch) -> Represented:
        """What the decoder keeps of both sides of a batch, or the scores of pairs read as one text."""
        with self.autocast():
            return Chunks(self, batch).represent_all()

    def loss_of(self, represented: Represented, target: RankingTarget) -> Loss:
        """The loss over what was kept, which needs no encoder."""
        with self.autocast():
            return represented.loss(self, target)

    def losses(self, batch: Batch) -> dict[str, Loss]:
        return {MAIN: self.loss_of(self.represent(batch), self.target_of(batch))}

    # --- ranking ---

    def rank(self, context: Any, candidates: Iterable[Any] | Candidates, k: int = 10) -> Hits:
        """The k best candidates for a context, equal ones in their order; all candidates are scored."""
        start = time.perf_counter()
        chosen = candidates if isinstance(candidates, Candidates) else self.prepare(candidates)
        if not len(chosen):
            raise TwofoldError("there are no candidates to rank; give at least one")
        k = as_k(k)
        scores = self.score([self.check_context(context)], chosen)[0].cpu().numpy()
        scores = scores[chosen.first]  # equal texts read in different batches may differ in the last digit
        hits = [Hit(chosen.texts[number], float(scores[number]), chosen.ids[number]) for number in best(scores, k)]
        return Hits(hits, True, (time.perf_counter() - start) * 1000)

    def prepare(
        self, texts: Iterable[Any], ids: Iterable[Any] | None = None, report: Report | None = None
    ) -> Candidates:
        """Candidates with their vectors, computed once for many contexts: texts, or rows with `text` and `id`.

        Without an id each has its place in the list, from 0. Images are given as paths, Pillow images, arrays or rows.
        """
        given = with_ids(list(self.candidates.candidates(as_list(texts, "texts"), blank=True)), ids)
        return self.prepare_given(given, report)

    def prepare_given(self, given: Sequence[Candidate], report: Report | None = None) -> Candidates:
        """Candidates that were read, with their vectors."""
        vectors = None
        if given and self.reads_alone:
            items = self.candidates.items_of([candidate.read for candidate in given])
            vectors = self.keep_candidates(items, report)
        return Candidates([candidate.text for candidate in given], [candidate.id for candidate in given], vectors)

    def embed_candidates(self, texts: Iterable[Any], report: Report | None = None) -> Vectors:
        """What is kept of each candidate."""
        given = self.candidates.candidates(as_list(texts, "texts"), blank=True)
        return self.keep_candidates(self.candidates.items_of([candidate.read for candidate in given]), report)

    def embed_contexts(self, contexts: Iterable[Any], report: Report | None = None) -> Vectors:
        """What is kept of each context."""
        return self.keep_contexts(self.contexts.items_of(self.as_contexts(contexts)), report)

    def keep_candidates(self, items: Sequence[Any], report: Report | None = None) -> Vectors:
        """What is kept of candidates that are items of their input."""
        return keep_items(self, CANDIDATES, items, report)

    def keep_contexts(self, items: Sequence[Any], report: Report | None = None) -> Vectors:
        """What is kept of contexts that are items of their input."""
        return keep_items(self, CONTEXTS, items, report)

    def as_contexts(self, contexts: Any) -> list[Any]:
        """Contexts that are read together; a text alone is refused."""
        given = enumerate(as_list(contexts, "contexts"))
        return [self.contexts.accepted(context, f"contexts[{number}]") for number, context in given]

    @torch.no_grad()
    def score(self, contexts: Iterable[Any], candidates: Iterable[Any] | Candidates) -> Tensor:
        """(contexts, candidates)"""
        asked = self.as_contexts(contexts)
        chosen = candidates if isinstance(candidates, Candidates) else self.prepare(candidates)
        if not asked or not len(chosen):
            raise TwofoldError(f"there are no {'candidates' if asked else 'contexts'} to score; give at least one")
        with self.evaluating():
            parts = []
            if chosen.vectors is not None:
                parts.append(self.head.score(self.embed_contexts(asked), chosen.vectors))
            if self.joined:
                joint = [self._joint_pairs([(text, other) for other in chosen.texts]) for text in asked]
                parts.append(torch.stack(joint))
            return finite("scores", parts[0] if len(parts) == 1 else parts[0] + parts[1])

    @torch.no_grad()
    def score_pairs(self, pairs: Iterable[tuple[Text, str]], report: Report | None = None) -> Tensor:
        """The score of each context with the candidate beside it: (pairs,)."""
        pairs = as_pairs(pairs)
        if not self.joined:
            return finite("scores", self._compare_pairs(pairs, report))
        joint = self._joint_pairs(pairs, report)
        return finite("scores", joint + self._compare_pairs(pairs) if self.reads_alone else joint)

    def check_context(self, context: Any) -> Any:
        return self.contexts.accepted(context, "the context", filled=True)

    def _joint_pairs(self, pairs: Sequence[tuple[Text, str]], report: Report | None = None) -> Tensor:
        """What both say as one text: (pairs,)."""
        first = encoded_once(self.contexts, [context for context, _ in pairs])
        second = encoded_once(self.candidates, [text for _, text in pairs])
        return keep_items(self, PAIRS, list(zip(first, second, strict=True)), report).vectors

    def _compare_pairs(self, pairs: Sequence[tuple[Text, str]], report: Report | None = None) -> Tensor:
        """The score of each pair from what is kept of both when they are read alone: (pairs,)."""
        asked, of_pair = different([context for context, _ in pairs])
        place = {text: number for number, text in enumerate(dict.fromkeys(text for _, text in pairs))}
        contexts, vectors = self.embed_contexts(asked, report), self.embed_candidates(list(place))
        places = zip(of_pair, (place[text] for _, text in pairs), strict=True)
        return torch.stack([self.head.score(contexts[c : c + 1], vectors[t : t + 1])[0, 0] for c, t in places])
