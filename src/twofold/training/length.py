"""Length of a training: a number of steps, or a number of epochs with a floor in steps."""

from __future__ import annotations

from twofold.data.batches import Plan
from twofold.training.checkpoint import Progress
from twofold.training.config import TrainConfig

LEAST_EVALUATIONS = 10
"""Number of evaluations, at least, that a training keeps when the floor adds epochs."""


class Length:
    """Turns `train.epochs`, `train.min_steps` and `train.max_steps` into epochs and steps of the data at hand."""

    def __init__(self, config: TrainConfig, batches: int) -> None:
        """batches: number of batches of the first epoch"""
        self.config = config
        steps = max(1, -(-batches // config.accumulate))
        self.epochs = max(config.epochs, -(-(config.min_steps or 0) // steps))
        self.raised = self.epochs > config.epochs and not config.max_steps
        """True if the floor adds epochs."""
        self.epochs_between_evaluations = max(1, self.epochs // max(config.epochs, LEAST_EVALUATIONS))

    def total(self, plan: Plan) -> int:
        """Number of steps of the whole training, if later epochs are as long as this one."""
        return self.config.max_steps or self.epochs * -(-len(plan) // self.config.accumulate)

    def share(self, progress: Progress, plan: Plan) -> float:
        """Fraction of the training that is done, from 0 to 1."""
        if self.config.max_steps:
            return min(1.0, progress.step / self.config.max_steps)
        return min(1.0, (progress.epoch + progress.batch / len(plan)) / self.epochs)

    def ended(self, progress: Progress) -> bool:
        """True after the last step, or after `train.patience` evaluations without a better one."""
        if self.config.patience and progress.worse >= self.config.patience:
            return True
        if self.config.max_steps:
            return progress.step >= self.config.max_steps
        return progress.epoch >= self.epochs

    def evaluation_is_due(self, progress: Progress) -> bool:
        if self.config.evaluate_every:
            return progress.step % self.config.evaluate_every == 0
        return progress.batch == 0 and progress.epoch % self.epochs_between_evaluations == 0

    def setting(self) -> str:
        """Setting that decides the length, with its value."""
        name = "max_steps" if self.config.max_steps else "min_steps" if self.raised else "epochs"
        return f"train.{name}={getattr(self.config, name)}"
