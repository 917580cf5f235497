"""What recipes share whose model is one encoder and one or several decoders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from twofold.config import DecoderPart, unstructure
from twofold.data.files import Row
from twofold.errors import TwofoldError
from twofold.evaluation import evaluate
from twofold.generate.options import GenerateOptions
from twofold.model import DecoderSlot, ModelConfig
from twofold.model.config import MAIN
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

    @property
    def slots(self) -> dict[str, DecoderSlot]:
        """Every decoder by its name."""
        return self.decoders or {MAIN: DecoderSlot(self.decoder or DecoderPart(), self.data.target)}

    def validator(self, rows: list[Row]) -> Callable[[Any], dict[str, float]] | None:
        """Judges by the loss alone unless the recipe picks the best model by what it writes."""
        if not rows:
            return None
        families = ["likelihood"] if self.train.best in ("loss", "perplexity") else None
        options = replace(self.generate, beam=1, n_best=1, sample=False)
        return lambda model: evaluate(model, rows, options, families=families).metrics


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
        apart[name] = {"part": {key: value for key, value in slot.items() if key not in own}, **own}
    return {**content, "decoders": apart}
