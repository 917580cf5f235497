"""The training loop: the same steps in the same order, however often it is stopped and resumed."""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from twofold.data.batches import Moment, Plan
from twofold.errors import TwofoldError
from twofold.model import Model, Ranker
from twofold.model.batches import TrainingRows
from twofold.model.config import MAIN
from twofold.model.model import make_device
from twofold.model.saved import fill, unique_tensors
from twofold.progress import bar
from twofold.training import checkpoint, freezing, optimizer, processes
from twofold.training.config import TrainConfig
from twofold.training.gradient_caching import GradientCaching
from twofold.types import Batch, Loss

Validate = Callable[[Any], dict[str, float]]


@dataclass(frozen=True)
class Outcome:
    """How a training ended."""

    steps: int
    best: float | None
    """The best value of the metric that decides, if there were rows to judge by."""
    finished: bool
    """Whether it came to its end, or was asked to stop before."""


class Trainer:
    """Trains one model in one folder: `model/` is the best so far, `checkpoints/` where to go on, `log.jsonl`."""

    def __init__(
        self,
        model: Model,
        rows: TrainingRows,
        validate: Validate | None,
        config: TrainConfig,
        folder: Path,
        higher_is_better: bool = False,
    ) -> None:
        """higher_is_better: whether that is so of the metric by which the best model is kept"""
        self.model, self.rows, self.validate, self.config, self.folder = model, rows, validate, config, folder
        self.sign = 1 if higher_is_better else -1
        self.device = make_device(config.device)
        model.to(self.device)
        fast = self.device.type == "cuda" and torch.cuda.is_bf16_supported()
        if config.precision == "bfloat16" or (config.precision == "auto" and fast):
            model.precision = torch.bfloat16
        self.caching = GradientCaching(config.chunk_tokens, config.memory_tokens, config.hard_negatives)
        self.optimizer = optimizer.make_optimizer(model, config)
        self.freezing = freezing.Freezing(model, config)
        self.freezing.at(1.0)  # what learns at any time must be known
        freezing.refuse_what_cannot_learn(model, config)
        self.ema = optimizer.ExponentialMovingAverage(model, config.ema) if config.ema else None
        self.freezing.at(0.0)
        self.progress = checkpoint.Progress()
        self.first = processes.rank() == 0
        self._asked_to_stop = self._stopping = False
        self._saved_at = time.monotonic()
        self._rate = 0.0

    def resume(self) -> None:
        """Take up the newest checkpoint, if there is one."""
        path = checkpoint.latest(self.folder / "checkpoints")
        if path is None:
            return
        self.progress, groups = checkpoint.load(path)
        fill(self.model, groups["model"], path / "model.safetensors")
        optimizer.restore_optimizer(self.optimizer, self.model, groups["optimizer"])
        if self.ema:
            self.ema.restore(groups["ema"])

    def run(self, about: dict[str, object] | None = None) -> Outcome:
        """Train to the end, or until interrupted; `about` goes into the log's first line."""
        board = self.folder / "tensorboard" if self.config.tensorboard else None
        log = (
            checkpoint.Log(self.folder / "log.jsonl", self.progress.step, board, self.progress.log)
            if self.first
            else None
        )
        with contextlib.closing(log) if log else contextlib.nullcontext(), processes.asked_to_stop(self._stop):
            if log and about and not self.progress.step:
                log.write(0, about)
            finished = self._epochs(log)
        best = None if self.progress.best is None else self.progress.best * self.sign
        return Outcome(self.progress.step, best, finished)

    def _epochs(self, log: checkpoint.Log | None) -> bool:
        """Whether the training came to its end."""
        config, progress = self.config, self.progress
        self.model.train()
        plan = self._advanced(self.rows.plan(progress.epoch))  # it may be resumed with fewer rows than before
        clock, tokens = time.monotonic(), 0
        with bar("training", self._total(plan), progress.step, self.first) as report:
            while not self._ended():
                tokens += self._step(plan)
                plan = self._advanced(plan)
                if progress.step % config.log_every == 0 or self._ended():
                    seconds, clock = time.monotonic() - clock, time.monotonic()
                    values = self._summary(plan) | {"tokens_per_second": round(tokens / max(seconds, 1e-9))}
                    tokens = 0
                    if log:
                        log.write(progress.step, values)
                    report(progress.step, loss=f"{values['loss']:.3f}", tokens_per_second=values["tokens_per_second"])
                else:
                    report(progress.step)
                if self._evaluation_is_due():
                    pause = time.monotonic()
                    self._evaluate(log)
                    clock += time.monotonic() - pause
                if self._checkpoint_is_due() or self._stopping:
                    self._save(log)
                if self._stopping:
                    return False
        if progress.evaluated < progress.step:
            self._evaluate(log)
        self._save(log)
        return True

    def _advanced(self, plan: Plan) -> Plan:
        """The batches of this epoch, or of the next one where all of them are done."""
        if self.progress.batch < len(plan):
            return plan
        self.progress.epoch, self.progress.batch = self.progress.epoch + 1, 0
        return self.rows.plan(self.progress.epoch)

    def _ended(self) -> bool:
        if self.config.patience and self.progress.worse >= self.config.patience:
            return True
        if self.config.max_steps:
            return self.progress.step >= self.config.max_steps
        return self.progress.epoch >= self.config.epochs

    def _total(self, plan: Plan) -> int:
        """How many steps the training has, if later epochs are as long as this one."""
        return self.config.max_steps or self.config.epochs * -(-len(plan) // self.config.accumulate)

    def _share(self, plan: Plan) -> float:
        """How much of the training is done, from 0 to 1."""
        if self.config.max_steps:
            return min(1.0, self.progress.step / self.config.max_steps)
        return min(1.0, (self.progress.epoch + self.progress.batch / len(plan)) / self.config.epochs)

    def _step(self, plan: Plan) -> int:
        """One change of the weights; returns how many real tokens this process has read."""
        config, progress, share = self.config, self.progress, self._share(plan)
        progress.step += 1
        self.freezing.at(share)
        # What is random in a step follows from its number: nothing to save, nothing to replay.
        torch.manual_seed(_mix(config.seed, progress.step, processes.rank()))
        numbers = range(progress.batch, min(progress.batch + config.accumulate, len(plan)))
        progress.batch = numbers.stop
        moment = Moment(progress.epoch, share, processes.rank(), processes.world())
        made = [self.rows.batch(plan.rows(number), moment) for number in numbers]
        batches = [batch.to(self.device) for batch in made if batch is not None]
        counts = self._global_counts(batches)
        for batch in batches:
            for name, loss in self._backward(batch, counts).items():
                progress.seen[name][0] += float(loss.sum.detach())
                if not math.isfinite(progress.seen[name][0]):
                    raise TwofoldError(
                        f"the loss is no longer a number at step {progress.step}; lower train.learning_rate or raise "
                        "train.warmup; the checkpoints before are kept"
                    )
        for name, count in counts.items():
            progress.seen[name][1] += count
        if processes.world() > 1:
            processes.add_up_gradients(self.model.parameters())
        if config.clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), config.clip)
        self._rate = optimizer.learning_rate(config, progress.step, share, progress.plateau, self._total(plan))
        for group in self.optimizer.param_groups:
            group["lr"] = self._rate * group["scale"]
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.ema:
            self.ema.update(progress.step)
        return sum(self.model.tokens(batch) for batch in batches)

    def _backward(self, batch: Batch, counts: dict[str, int]) -> dict[str, Loss]:
        """Add the gradients of this batch, a part of a whole in which `counts` things count."""
        if isinstance(self.model, Ranker):
            return {MAIN: self.caching.backward(self.model, batch, 1.0 / counts[MAIN])}
        losses = self.model.losses(batch)
        self.model.weighted(losses, counts).backward()  # type: ignore[no-untyped-call]
        return losses

    def _global_counts(self, batches: Sequence[Batch]) -> dict[str, int]:
        names = list(self.model.weights)
        counted: Counter[str] = Counter()
        for batch in batches:
            counted.update(self.model.counts(batch))
        for name in names:
            self.progress.seen.setdefault(name, [0.0, 0.0])
        mine = [float(number) for number in (*(counted[name] for name in names), self._asked_to_stop)]
        *sums, stop = processes.add_up(mine, self.device)
        self._stopping = stop > 0  # asked of one process, done by all after the same step
        return {name: int(total) for name, total in zip(names, sums, strict=True)}

    def _summary(self, plan: Plan) -> dict[str, float]:
        """The mean losses since the last line, and where the training stands."""
        seen, progress = self.progress.seen, self.progress
        sums = processes.add_up([seen[name][0] for name in seen], self.device)
        means = {name: total / max(seen[name][1], 1) for name, total in zip(seen, sums, strict=True)}
        loss = sum(self.model.weights[name] * mean for name, mean in means.items())
        progress.seen = {}
        several = {f"loss_{name}": mean for name, mean in means.items()} if len(means) > 1 else {}
        epoch = round(progress.epoch + progress.batch / len(plan), 4)
        return {"loss": loss, **several, "epoch": epoch, "learning_rate": self._rate}

    def _evaluation_is_due(self) -> bool:
        if self.config.evaluate_every:
            return self.progress.step % self.config.evaluate_every == 0
        return self.progress.batch == 0

    def _evaluate(self, log: checkpoint.Log | None) -> None:
        """Judge the model as it stands; a better one than before becomes `model/`."""
        progress = self.progress
        progress.evaluated = progress.step
        if self.ema:
            self.ema.swap()
        # Only the first process has the time; the others wait for its word.
        metrics = processes.from_first(self.validate(self.model) if self.validate and self.first else {})
        better = True
        if self.validate:
            if self.config.best not in metrics:
                raise TwofoldError(
                    f"train.best={self.config.best}: nothing to judge by; all labels of these rows are unknown, or all "
                    "their pixels ignored"
                )
            value = metrics[self.config.best] * self.sign
            better = progress.best is None or value > progress.best
            if better:
                progress.best, progress.worse = value, 0
            else:
                progress.worse += 1
                progress.plateau *= self.config.plateau_factor
        if better and self.first:
            self.model.save_pretrained(self.folder / "model")
        if self.ema:
            self.ema.swap()
        if log and metrics:
            log.write(progress.step, {f"dev_{name}": value for name, value in metrics.items()})

    def _checkpoint_is_due(self) -> bool:
        every = self.config.save_every
        on_time = time.monotonic() - self._saved_at >= self.config.save_minutes * 60
        return on_time or bool(every and self.progress.step % every == 0)

    def _save(self, log: checkpoint.Log | None) -> None:
        if not log:
            return
        log.sync()
        self.progress.log = log.written
        groups = {
            "model": unique_tensors(self.model),
            "optimizer": optimizer.optimizer_tensors(self.optimizer, self.model),
        }
        if self.ema:
            groups["ema"] = self.ema.tensors()
        checkpoint.save(self.folder / "checkpoints", self.progress, groups)
        self._saved_at = time.monotonic()

    def _stop(self) -> None:
        self._asked_to_stop = True


def _mix(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))
