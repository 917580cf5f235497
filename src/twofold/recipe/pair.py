"""What recipes share whose model is one encoder and one or several decoders."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from twofold.config import DecoderPart, unstructure
from twofold.data.files import Row
from twofold.data.labels import MOST_LABELS, labels_in, number_in
from twofold.data.tokenizer import TextTokenizer
from twofold.data.words import begun, words_in
from twofold.errors import TwofoldError
from twofold.generate.options import GenerateOptions
from twofold.metrics import evaluate
from twofold.model import DecoderSlot, Model, ModelConfig
from twofold.model.config import MAIN, OF_WORDS, STRANGER
from twofold.model.limits import within_positions
from twofold.model.sentence_folder import say_left_out
from twofold.recipe.base import Recipe


@dataclass(frozen=True)
class PairRecipe(Recipe):
    """A recipe for a `Model`."""

    decoder: DecoderPart | None = None
    """The part that writes `data.target`."""
    decoders: dict[str, DecoderSlot] | None = None
    """Instead: several parts over one encoder, by name, each with its `target` column and `weight`."""
    generate: GenerateOptions = field(default_factory=GenerateOptions)
    """How the trained model writes texts unless told otherwise; evaluation while training is greedy."""

    def __post_init__(self) -> None:
        if (self.decoder is None) == (not self.decoders):
            raise ValueError("give either `decoder` or `decoders`")

    @classmethod
    def prepared(cls, content: dict[str, Any]) -> dict[str, Any]:
        return _with_slots(content)

    def plain(self) -> dict[str, Any]:
        content: dict[str, Any] = unstructure(self)
        for slot in (content["decoders"] or {}).values():
            slot.update(slot.pop("part"))
        return {key: value for key, value in content.items() if value is not None}

    def check(self) -> None:
        self.model_config().check()

    def model_config(self) -> ModelConfig:
        """What the model is built from."""
        raise NotImplementedError

    def built(self, config: ModelConfig, tokenizers: Mapping[str, TextTokenizer], rows: Iterable[Row]) -> Model:
        """The model with the weights it starts from; names and numbers are looked up in the training rows."""
        classes, numbers = _found(config, rows)
        config = replace(config, encoder=self.encoder.settled(), classes=classes, numbers=numbers)
        model = Model(within_positions(config), tokenizers)
        if not self.start or self.start_anyway:  # otherwise every weight of the encoder comes from there
            say_left_out(self.encoder)
            self.encoder.fill(model.encoder, self.start_anyway)
        if self.start:
            model.take_weights(self.start, self.start_anyway)
        return model

    @property
    def slots(self) -> dict[str, DecoderSlot]:
        """Every decoder by its name."""
        return self.decoders or {MAIN: DecoderSlot(self.decoder or DecoderPart(), self.data.target)}

    def targets(self) -> dict[str, str | tuple[str, ...]]:
        """The columns to write, by the settings that name them; what is learned from the text itself has none."""
        if not self.decoders:
            main = next(iter(self.slots.values()))
            return {"data.target": main.target} if main.part.writes != "tokens" else {}
        written = {name: slot.target for name, slot in self.decoders.items() if slot.target not in ("", STRANGER)}
        return {f"decoders.{name}.target": target for name, target in written.items()}

    def validator(self, rows: list[Row]) -> Callable[[Any], dict[str, float]] | None:
        """Judges by the loss alone unless the recipe picks the best model by what it writes."""
        if not rows:
            return None
        families = ["loss", "likelihood"] if self.train.best in ("loss", "perplexity") else None
        options = replace(self.generate, beam=1, n_best=1, sample=False)
        return lambda model: evaluate(model, rows, options, families=families).metrics


def _found(
    config: ModelConfig, rows: Iterable[Row]
) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[float, float]]]:
    """For each decoder the names that its column holds, or the mean and deviation of its numbers."""
    asked = {
        name: slot
        for name, slot in config.decoders.items()
        if slot.part.writes in ("label", *OF_WORDS) and slot.target != STRANGER
    }
    if not asked:
        return {}, {}
    kinds = {name: str(getattr(slot.part, "answers", "words")) for name, slot in asked.items()}
    columns = {name: one.target if isinstance(one.target, str) else one.target[-1] for name, one in asked.items()}
    names: dict[str, set[str]] = {name: set() for name in asked if kinds[name] != "number"}
    numbers: dict[str, list[float]] = {name: [] for name in asked if kinds[name] == "number"}
    loose: Counter[str] = Counter()
    for row in rows:
        for name, column in columns.items():
            if name in numbers:
                numbers[name].append(number_in(row, column))
                continue
            kind = kinds[name]
            found = words_in(row, column) if kind == "words" else labels_in(row, column, kind)
            names[name].update(found)
            loose[name] += asked[name].part.writes == "tags" and begun(found) != list(found)
            if len(names[name]) > MOST_LABELS:
                raise TwofoldError(f"'{column}' has over {MOST_LABELS:,} different values; is it the column of labels?")
    for name, own in names.items():
        if not own:
            raise TwofoldError(f"'{columns[name]}' holds no label")
        if len(own) == 1 and asked[name].part.writes != "tree":
            warnings.warn(
                f"'{columns[name]}' holds {next(iter(own))!r} and nothing else: nothing to learn", stacklevel=4
            )
        if loose[name] and any(tag.startswith("B-") for tag in own):
            own |= {f"B-{tag[2:]}" for tag in own if tag.startswith("I-")}
            warnings.warn(
                f"'{columns[name]}': in {loose[name]:,} sentences a name begins with I- (the form IOB1); it is learned "
                "as B-, with which every name in an answer begins",
                stacklevel=4,
            )
    for name, values in numbers.items():
        if len(set(values)) == 1:
            warnings.warn(f"'{columns[name]}' holds {values[0]} and nothing else: nothing to learn", stacklevel=4)
    deviations = {name: (float(np.mean(own)), float(np.std(own)) or 1.0) for name, own in numbers.items()}
    return {name: tuple(sorted(own)) for name, own in names.items()}, deviations


def _with_slots(content: dict[str, Any]) -> dict[str, Any]:
    """Put the settings of each of several decoders apart from its target and weight."""
    slots = content.get("decoders")
    if not isinstance(slots, dict):
        return content
    apart = {}
    for name, slot in slots.items():
        if not isinstance(slot, dict):
            raise TwofoldError(f"recipe.decoders.{name}: needs `kind` and `target`")
        own = {key: slot[key] for key in ("target", "weight") if key in slot}
        own.setdefault("target", "")  # what is learned from the text itself has no column
        apart[name] = {"part": {key: value for key, value in slot.items() if key not in own}, **own}
    return {**content, "decoders": apart}
