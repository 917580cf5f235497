"""How a text decoder writes when nobody tells it the answer."""

from __future__ import annotations

import math
from dataclasses import dataclass

MOST_HYPOTHESES = 1_000
LARGEST_SEED = 2**63 - 1


@dataclass(frozen=True)
class GenerateOptions:
    """Greedy by default; a beam above one searches, `sample` draws."""

    beam: int = 1
    """How many hypotheses are kept at each step; 1 is greedy."""
    n_best: int = 1
    """How many finished hypotheses are returned for each row, at most `beam`."""
    length_penalty: float = 1.0
    """A hypothesis is ranked by log-probability / length^penalty: 0 favors short ones, 1 takes the mean."""
    no_repeat: int = 0
    """No sequence of this many tokens is written twice; 0 allows all."""
    max_length: int | None = None
    """The most tokens to write, never more than the limit of the training data, which holds without it."""
    sample: bool = False
    """Draw each token at random instead of searching for the likeliest."""
    temperature: float = 1.0
    """When sampling: below 1 sharpens, above 1 flattens."""
    top_k: int = 0
    """When sampling: only the k likeliest tokens; 0 takes all."""
    top_p: float = 1.0
    """When sampling: only the likeliest tokens that together reach this probability."""
    seed: int = 0
    """When sampling: the same seed draws the same tokens."""

    def __post_init__(self) -> None:
        if self.beam < 1 or not 1 <= self.n_best <= self.beam:
            raise ValueError(f"beam {self.beam} and n_best {self.n_best}: both at least 1, n_best at most beam")
        if self.beam > MOST_HYPOTHESES:
            raise ValueError(f"beam must be at most {MOST_HYPOTHESES:,}, not {self.beam}")
        if not 0 <= self.seed <= LARGEST_SEED:
            raise ValueError(f"seed must be from 0 to {LARGEST_SEED}, not {self.seed}")
        if self.sample and self.beam > 1:
            raise ValueError(f"sampling writes one hypothesis; set beam to 1, not {self.beam}")
        if not self.temperature > 0 or not 0 < self.top_p <= 1 or self.top_k < 0 or self.no_repeat < 0:
            raise ValueError("temperature must be above 0, top_p in (0, 1], top_k and no_repeat at least 0")
        if not math.isfinite(self.length_penalty) or not math.isfinite(self.temperature):
            raise ValueError(f"length_penalty {self.length_penalty} and temperature {self.temperature} must be finite")
        if self.max_length is not None and self.max_length < 1:
            raise ValueError(f"max_length must be at least 1, not {self.max_length}")
