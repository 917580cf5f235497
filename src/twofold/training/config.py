"""The settings of a training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

LARGEST_SEED = 2**63 - 1
MOST = 10**12
"""The largest number of steps, rows or tokens that makes sense."""


@dataclass(frozen=True)
class TrainConfig:
    """How long, how fast, how often."""

    epochs: int = 10
    """Number of passes over the training rows."""
    min_steps: int | None = None
    """Minimum number of steps: where `epochs` make fewer, the training lasts more epochs. A schedule follows the real
    length."""
    max_steps: int | None = None
    """Number of steps, in place of `epochs` and `min_steps`."""
    batch_tokens: int = 4096
    """The most tokens in a batch, rows × longest with padding; rows of like length go together."""
    batch_rows: int | None = None
    """Instead: batches of this many rows drawn at random, whatever their lengths."""
    accumulate: int = 1
    """How many batches make a step; the gradients are those of their union."""
    optimizer: Literal["adamw", "adamax"] = "adamw"
    """AdamW (fused) or Adamax."""
    learning_rate: float = 1e-3
    """The highest rate of the schedule."""
    beta2: float = 0.98
    """How long the optimizer remembers the size of gradients."""
    weight_decay: float = 0.01
    """Pull of matrices towards zero; norms and biases are left alone."""
    schedule: Literal["inverse_sqrt", "cosine", "constant", "plateau"] = "cosine"
    """How the rate goes on after the warm-up."""
    warmup: int = 400
    """Steps over which the rate rises from zero."""
    warmup_share: float | None = None
    """The largest part of all steps that the warm-up may take, if there is such a limit."""
    learning_rate_multipliers: dict[str, float] = field(default_factory=dict)
    """Rates of some parameters as multiples of `learning_rate`, by how their names begin: {decoders: 20}; with 0 they
    do not learn."""
    freeze: Literal["none", "encoder", "gradual"] = "none"
    """encoder: what reads stays as it is, and only what writes learns; gradual: so at first, then layer by layer from
    the top down learns too."""
    unfrozen_by: float = 0.5
    """With gradual: after what share of the training everything learns."""
    layer_decay: float = 1.0
    """What the rate is multiplied by from each layer of the encoder to the one below it."""
    plateau_factor: float = 0.5
    """With `plateau`: what the rate is multiplied by when an evaluation brings nothing better."""
    clip: float = 1.0
    """The largest norm of the gradients; 0 leaves them as they are."""
    ema: float = 0.0
    """Decay of a running mean of the weights, which is what is judged and saved; 0 takes the weights themselves."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto: bfloat16 where the device computes it quickly, else float32."""
    device: str = "auto"
    """auto: the GPU if there is one."""
    seed: int = 1
    """All that is random follows from it."""
    log_every: int = 50
    """Steps between lines of the log."""
    evaluate_every: int | None = None
    """Steps between evaluations; without it once an epoch."""
    best: str = "loss"
    """The metric by which the best model is kept, one of those that judge the output."""
    patience: int | None = None
    """Stop after this many evaluations without a better one."""
    save_every: int | None = None
    """Steps between checkpoints."""
    save_minutes: float = 10.0
    """Minutes after which a checkpoint is written at the latest."""
    tensorboard: bool = False
    """Also write what is logged for TensorBoard."""
    negatives: int = 15
    """With cross: how many wrong candidates each context is read with, the given ones first, then others' responses."""
    hard_negatives: bool = False
    """With cross and compare: take those wrong candidates of the batch that the comparison takes for best, not any."""
    candidates: int = 10
    """Rankers: how many candidates a held-out pair is judged among: its response, and those of others drawn by seed."""
    chunk_tokens: int = 1024
    """Rankers: rows × longest that are read at a time."""
    memory_tokens: int = 8192
    """Rankers: a batch with more tokens than this is read twice, chunk by chunk (gradient caching), so that memory does
    not grow with it."""

    def __post_init__(self) -> None:
        least = {
            "epochs": 1,
            "min_steps": 1,
            "max_steps": 1,
            "batch_tokens": 1,
            "batch_rows": 1,
            "accumulate": 1,
            "log_every": 1,
        }
        least |= {"negatives": 1, "candidates": 2, "chunk_tokens": 1, "memory_tokens": 0}
        least |= {"evaluate_every": 1, "patience": 1, "save_every": 1, "warmup": 0, "seed": 0}
        for name, bound in least.items():
            value, most = getattr(self, name), LARGEST_SEED if name == "seed" else MOST
            if value is not None and not bound <= value <= most:
                limit = f"least {bound}" if value < bound else f"most {most}"
                raise ValueError(f"{name} must be at {limit}, not {value}")
        if self.learning_rate <= 0 or not 0 <= self.ema < 1 or not 0 < self.beta2 < 1:
            raise ValueError("learning_rate must be above 0, ema in [0, 1), beta2 in (0, 1)")
        if self.clip < 0 or self.weight_decay < 0 or self.save_minutes < 0 or not 0 < self.plateau_factor <= 1:
            raise ValueError("clip, weight_decay and save_minutes must be at least 0, plateau_factor in (0, 1]")
        if not 0 < self.unfrozen_by <= 1 or not 0 < self.layer_decay <= 1:
            raise ValueError("unfrozen_by and layer_decay must be above 0 and at most 1")
        if not 0 <= (self.warmup_share or 0) <= 1 or any(rate < 0 for rate in self.learning_rate_multipliers.values()):
            raise ValueError("warmup_share must be from 0 to 1, learning_rate_multipliers at least 0")
