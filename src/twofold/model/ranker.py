"""Ranker class: a model whose decoder scores candidates for a context; one or two encoders read both sides."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import torch

from twofold.config import kind_of
from twofold.data.cache import Field
from twofold.data.files import Row, Sources
from twofold.data.ranking import AUTO, RankingReader
from twofold.data.tokenizer import TextTokenizer
from twofold.decoders import RankingDecoder, RankingDecoderConfig, Vectors
from twofold.errors import TwofoldError
from twofold.inputs import INPUT, BatchSizes, Input
from twofold.inputs.pair import PairInput
from twofold.inputs.text import TextInput
from twofold.layers.blocks import BatchNorm
from twofold.model import describing, encoding, explaining, ranking, reversing, saved, summarizing
from twofold.model.batches import as_rows
from twofold.model.config import MAIN, ModelConfig, building, check_widths
from twofold.model.model import Model
from twofold.model.representation import CANDIDATES, CONTEXTS, Chunks, Represented, Side
from twofold.model.starting import Start
from twofold.outputs.ranking import CANDIDATE, RankingOutput, RankingTarget, Unread
from twofold.results import DecoderOutput, Prediction
from twofold.types import Batch, Encoder, Example, InputSpec, Loss


class Ranker(Model):
    """Encoder f reads contexts and candidates; decoder g scores them."""

    ranks = True
    is_reversed = False
    """True if contexts and candidates were swapped after loading."""

    def __init__(self, config: ModelConfig, tokenizers: Mapping[str, TextTokenizer]) -> None:
        self.joined = any(getattr(task.decoder, "joined", False) for task in config.tasks.values())
        """True if a context and a candidate are read as one text (cross-encoder)."""
        super().__init__(config, tokenizers)
        decoder: Any = config.tasks[MAIN].decoder
        self.output_scale: float = decoder.output_scale
        self.symmetric = any(loss.is_symmetric() for loss in config.losses)
        """True if a loss also compares right candidates with all contexts."""
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
        """Kind of the decoder."""
        return kind_of(self.config.tasks[MAIN].decoder)

    @property
    def head(self) -> RankingDecoder:
        """Decoder that scores candidates."""
        return cast(RankingDecoder, self.decoders[MAIN])

    @property
    def has_probabilities(self) -> bool:
        """True if the decoder tells probabilities from scores."""
        return self.head.probabilities(torch.zeros(1)) is not None

    @property
    def output(self) -> RankingOutput:
        """Ranking output."""
        return cast(RankingOutput, self.outputs[MAIN])

    @property
    def contexts(self) -> Input[Any]:
        """Input of the contexts."""
        return self.output.context

    @property
    def candidates(self) -> Input[Any]:
        """Input of the candidates."""
        return self.output.candidate

    @property
    def reader(self) -> RankingReader:
        """Reader of rows in the form of the training data."""
        return self.output.reader

    @property
    def tokenizer(self) -> TextTokenizer:
        return self.tokenizers[INPUT]

    @property
    def pair(self) -> PairInput:
        """Input of a context and a candidate joined to one text."""
        frame = self.tokenizer.frame
        context, candidate = cast(TextInput, self.contexts), cast(TextInput, self.candidates)
        # As long as both in one frame, with what stands between them.
        limit = context.limit + candidate.limit - len(frame) + len(frame.between)
        limit = min(limit, cast(RankingDecoderConfig, self.config.tasks[MAIN].decoder).joint_limit() or limit)
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
        """Encoder that reads candidates alone."""
        return self.encoder if self.candidate_tower is None else self.candidate_tower

    def side(self, what: str) -> Side:
        """Input, encoder and representation of contexts, candidates or pairs."""
        head, alone = self.head, self.candidate_encoder
        if what == CONTEXTS:
            # Of a cross-encoder the encoder itself may read both as one text only.
            return Side(self.contexts, alone if self.joined else self.encoder, head.context)
        if what == CANDIDATES:
            return Side(self.candidates, alone, head.candidate)
        return Side(self.pair, self.encoder, lambda hidden: Vectors(head.joint(hidden)))

    @property
    def reads_alone(self) -> bool:
        """True if each side is also read by itself."""
        return not self.joined or self.head.compares

    def start_from(self, anyway: bool = False) -> None:
        """Loads the pre-trained weights that the encoder's settings name; the candidates' tower starts from the
        same."""
        super().start_from(anyway)
        if self.config.candidate_encoder is not None:
            self.config.candidate_encoder.fill(self.candidate_encoder, anyway)
        elif self.candidate_tower is not None:
            self.candidate_tower.load_state_dict(self.encoder.state_dict())

    def take(self, start: Start, anyway: bool = False) -> None:
        """Loads another model's weights: the encoder's must fit unless `anyway`, others are taken where they do."""
        path, given = start.path, start.weights()
        theirs = dict(given.tensors)
        towers = any(name.startswith("candidate_tower.") for name in theirs)
        if self.joined and not any(isinstance(part, RankingDecoderConfig) and part.joined for part in given.decoders):
            if towers:
                raise TwofoldError(f"{path}: has a tower for each side, but a cross-encoder reads both with one")
            head = f"decoders.{MAIN}."  # of the ranker to whose score this one adds
            theirs = {name.replace(head, f"{head}compare.", 1): value for name, value in theirs.items()}
        if not towers:  # a model with one tower serves both
            read = {name: value for name, value in theirs.items() if name.startswith("encoder.")}
            theirs |= {name.replace("encoder.", "candidate_tower.", 1): value for name, value in read.items()}
        saved.take(self, theirs, path, anyway)

    def predict(self, *inputs: Any, **settings: Any) -> list[Prediction]:
        """Refuses to predict: a ranker orders candidates, and answers nothing by itself."""
        raise TwofoldError("predict: this model ranks candidates and answers nothing by itself; use rank or similarity")

    reversed = reversing.reversed_ranker
    __repr__ = describing.ranker_lines
    encode = encoding.encode_documents
    encode_query = encoding.encode_query
    explain = explaining.explain_ranking  # type: ignore[assignment]
    summary = summarizing.ranker_summary

    # --- learning ---

    def columns(self) -> dict[str, Field]:
        return self.output.columns()

    def read(self, where: Sources, folder: str | None = None, form: str = AUTO) -> Iterator[Row]:
        input, reader = self.config.input.in_folder(folder), replace(self.reader, form=form)
        rows = input.rows(where) if form == AUTO else reader.read_as_given(where)
        return self.output.config.in_folder(folder).name_files(rows, where)

    def batch(self, examples: Sequence[Example], targets: bool = True, negatives: int = 15) -> Batch:
        """Turns examples into one batch, whose responses are in-batch negatives; `negatives` is for cross-encoders."""
        sizes = BatchSizes(0, len(examples), 0, negatives if self.joined else None)
        return self.output.batch_at_hand(as_rows(examples), sizes)

    def target_of(self, batch: Batch) -> RankingTarget:
        """Target of a batch: its right candidates."""
        return cast(RankingTarget, batch.targets[MAIN])

    def counts(self, batch: Batch) -> dict[str, int]:
        return {MAIN: len(batch)}

    def tokens(self, batch: Batch) -> int:
        lengths = cast(Unread, batch.inputs[CANDIDATE]).lengths()
        return batch.first.count() + sum(lengths[number] for number in self.target_of(batch).local_candidates)

    def forward(self, batch: Batch) -> dict[str, DecoderOutput]:
        """Scores of the candidates of a batch, as the losses see them.

        Each context has the scores of all candidates: the responses of all rows, then the given negatives. For a
        cross-encoder, it has those of the candidates that were read with it, the right one first.
        """
        return {MAIN: DecoderOutput(self.represent(batch).scores(self, self.target_of(batch)))}

    def represent(self, batch: Batch) -> Represented:
        """Representations of both sides of a batch, or the scores of joined pairs."""
        with self.autocast():
            return Chunks(self, batch).represent_all()

    def loss_of(self, represented: Represented, target: RankingTarget) -> Loss:
        """Loss over representations, which needs no encoder."""
        return represented.loss(self, target)

    def losses(self, batch: Batch) -> dict[str, Loss]:
        return {MAIN: self.loss_of(self.represent(batch), self.target_of(batch))}

    # --- ranking ---

    rank = ranking.rank
    rank_many = ranking.rank_many
    similarity = ranking.similarity
    prepare = ranking.prepare
    prepare_given = ranking.prepare_given
    score = ranking.score
    score_pairs = ranking.score_pairs
    embed_candidates = ranking.embed_candidates
    embed_contexts = ranking.embed_contexts
    keep_candidates = ranking.keep_candidates
    keep_contexts = ranking.keep_contexts
    as_contexts = ranking.as_contexts
    check_context = ranking.check_context
