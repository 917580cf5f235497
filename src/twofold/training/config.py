"""Settings of a training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

LARGEST_SEED = 2**63 - 1
MOST = 10**12
"""Maximum of settings that count steps, rows or tokens."""


@dataclass(frozen=True)
class TrainConfig:
    """Settings of a training: its length, batches, learning rates, evaluations and checkpoints."""

    epochs: int = 10
    """Number of passes over the training rows."""
    min_steps: int | None = None
    """Minimum number of steps: where `epochs` make fewer, the training lasts more epochs. A schedule follows the real
    length."""
    max_steps: int | None = None
    """Number of steps, in place of `epochs` and `min_steps`."""
    batch_tokens: int = 4096
    """Maximum number of tokens in a batch: rows × longest, padding included; rows of similar length go together."""
    batch_rows: int | None = None
    """Number of rows in a batch, drawn at random whatever their lengths, in place of `batch_tokens`."""
    accumulate: int = 1
    """Number of batches in a step; the gradients are those of their union."""
    optimizer: Literal["adamw", "adamax"] = "adamw"
    """Optimizer: AdamW (fused) or Adamax."""
    learning_rate: float = 1e-3
    """Highest learning rate of the schedule."""
    beta2: float = 0.98
    """Decay of the optimizer's running mean of squared gradients; with `adamax`, of their running maximum."""
    weight_decay: float = 0.01
    """Weight decay of matrices; norms and biases have none."""
    schedule: Literal["inverse_sqrt", "cosine", "constant", "plateau"] = "cosine"
    """Course of the learning rate after the warm-up."""
    warmup: int = 400
    """Number of steps over which the learning rate rises from zero."""
    warmup_share: float | None = None
    """Maximum share of all steps that the warm-up may take; null sets no limit."""
    learning_rate_multipliers: dict[str, float] = field(default_factory=dict)
    """Learning rates of some parameters as multiples of `learning_rate`, by the beginning of their names:
    {decoders: 20}; with 0 they do not learn."""
    freeze: Literal["none", "encoder", "gradual"] = "none"
    """Freezing: with `encoder` the encoder does not learn; with `gradual` its layers begin to learn one after another,
    from the top down (gradual unfreezing)."""
    unfrozen_by: float = 0.5
    """Share of the training after which all layers learn, with `freeze: gradual`."""
    layer_decay: float = 1.0
    """Factor of the learning rate from each layer of the encoder to the layer below it (layer-wise learning-rate
    decay)."""
    plateau_factor: float = 0.5
    """Factor of the learning rate after an evaluation without a better value, with `schedule: plateau`."""
    clip: float = 1.0
    """Maximum norm of the gradients; 0 leaves them as they are."""
    ema: float = 0.0
    """Decay of the exponential moving average (EMA) of the weights, which is evaluated and saved; 0 takes the weights
    themselves."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision; `auto` is bfloat16 where the device computes it quickly, else float32."""
    device: str = "auto"
    """Device; `auto` is the GPU if there is one."""
    seed: int = 1
    """Seed of all randomness."""
    log_every: int = 50
    """Number of steps between lines of the log."""
    evaluate_every: int | None = None
    """Number of steps between evaluations; null evaluates once an epoch."""
    best: str = "loss"
    """Metric by which the best model is kept, one of those that judge the output."""
    patience: int | None = None
    """Number of evaluations without a better one after which the training stops; null never stops early."""
    save_every: int | None = None
    """Number of steps between checkpoints; null goes by `save_minutes` alone."""
    save_minutes: float = 10.0
    """Number of minutes after which a checkpoint is written at the latest."""
    tensorboard: bool = False
    """Writes the log for TensorBoard as well."""
    negatives: int = 15
    """Number of negatives of each context, for `cross`: the given ones first, then responses of others."""
    hard_negatives: bool = False
    """Takes those negatives of the batch that the comparison scores best, not any, for `cross` with `compare`."""
    candidates: int = 10
    """Number of candidates of a validation pair, for rankers: its response, and responses of others drawn by seed."""
    chunk_tokens: int = 1024
    """Number of tokens (rows × longest) that are read at a time, for rankers."""
    memory_tokens: int = 8192
    """Number of tokens above which a batch is read twice, chunk by chunk (gradient caching), so that memory does not
    grow with it, for rankers."""

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
