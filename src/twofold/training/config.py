"""Settings of a training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

LARGEST_SEED = 2**63 - 1
MOST = 10**12
"""Maximum of settings that count steps, rows or tokens."""


@dataclass(frozen=True)
class TrainConfig:
    """Settings of a training."""

    epochs: int = 10
    """Number of passes over the training rows."""
    min_steps: int | None = None
    """Minimum number of steps: where `epochs` make fewer, the training lasts more epochs. A schedule follows the real
    length."""
    max_steps: int | None = None
    """Number of steps, in place of `epochs` and `min_steps`."""
    batch_tokens: int = 4096
    """Maximum number of tokens in a batch (rows × longest, padding included); rows of similar length share a batch."""
    batch_rows: int | None = None
    """Number of rows in a batch, drawn at random whatever their lengths, in place of `batch_tokens`."""
    accumulate: int = 1
    """Number of batches in a step (gradient accumulation); the gradients are those of their union."""
    optimizer: Literal["adamw", "adamax"] = "adamw"
    """Optimizer: `adamw` (fused) or `adamax`."""
    learning_rate: float = 1e-3
    """Peak learning rate of the schedule."""
    beta2: float = 0.98
    """Decay rate of the optimizer's second moment (Adam's β2)."""
    weight_decay: float = 0.01
    """Weight decay of matrices; norms and biases have none."""
    schedule: Literal["inverse_sqrt", "cosine", "constant", "plateau"] = "cosine"
    """Learning-rate schedule after the warm-up: `cosine` (down to zero), `inverse_sqrt`, `constant`, or `plateau`
    (multiplied by `plateau_factor` at each evaluation without improvement)."""
    warmup: int = 400
    """Number of warm-up steps, in which the learning rate rises linearly from zero."""
    warmup_share: float | None = None
    """Maximum fraction of all steps that the warm-up may take; null sets no limit."""
    learning_rate_multipliers: dict[str, float] = field(default_factory=dict)
    """Learning-rate multipliers by the prefix of parameter names, such as {decoders: 20}; 0 freezes the parameters."""
    freeze: Literal["none", "encoder", "gradual"] = "none"
    """Freezing: `encoder` trains the decoders alone; `gradual` starts so and unfreezes the encoder layer by layer from
    the top (gradual unfreezing)."""
    unfrozen_by: float = 0.5
    """Fraction of the training after which `freeze: gradual` has unfrozen all layers."""
    layer_decay: float = 1.0
    """Layer-wise learning-rate decay: factor from each encoder layer to the layer below it."""
    plateau_factor: float = 0.5
    """Factor of the learning rate at an evaluation without improvement, with `schedule: plateau`."""
    clip: float = 1.0
    """Maximum norm of the gradients (gradient clipping); 0 turns clipping off."""
    ema: float = 0.0
    """Decay of the exponential moving average (EMA) of the weights, such as 0.998, which is then evaluated and saved;
    0 uses the weights themselves."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of the large products: `auto` is bfloat16 on processors and GPUs that compute it natively, else
    float32. Weights, optimizer state, norms, scores and losses are float32. A resumed training keeps its precision."""
    device: str = "auto"
    """Device: `cpu`, `cuda`, `cuda:1` or `mps`; `auto` uses the GPU if there is one."""
    seed: int = 1
    """Random seed of initialization, shuffling, sampling and dropout."""
    log_every: int = 50
    """Number of steps between lines of the log."""
    evaluate_every: int | None = None
    """Number of steps between evaluations; null evaluates once an epoch."""
    best: str = "loss"
    """Metric that selects the best model, one of the metrics of the output."""
    patience: int | None = None
    """Number of evaluations without improvement after which the training stops (early stopping); null never stops."""
    save_every: int | None = None
    """Number of steps between checkpoints; null leaves it to `save_minutes`."""
    save_minutes: float = 10.0
    """Maximum number of minutes between checkpoints."""
    tensorboard: bool = False
    """Writes the log for TensorBoard as well."""
    negatives: int = 15
    """Cross-encoders: number of negatives for each context, those of its row first, then responses of other rows."""
    hard_negatives: bool = False
    """Cross-encoders with `compare`: uses the hardest negatives of the batch, those that `compare` scores highest,
    instead of random ones."""
    candidates: int = 10
    """Rankers: number of candidates for each validation row: its response, and others drawn by seed."""
    chunk_tokens: int = 1024
    """Rankers: maximum number of tokens (rows × longest) that are encoded at a time (chunk of gradient caching)."""
    memory_tokens: int = 8192
    """Rankers: number of tokens whose activations are kept for the gradients. Chunks of a larger batch that have no
    room are encoded twice (gradient caching), so that memory does not grow with the batch."""

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
