"""Training loop: equal steps in equal order, however often a training is stopped and resumed."""

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
from twofold.layers.lookups import RowGradients
from twofold.model import Model, Ranker, saved
from twofold.model.batches import TrainingRows
from twofold.model.config import MAIN
from twofold.model.model import make_device
from twofold.progress import bar
from twofold.training import checkpoint, freezing, optimizer, precisions, processes
from twofold.training.clock import Clock
from twofold.training.config import TrainConfig
from twofold.training.console import Console
from twofold.training.gradient_caching import GradientCaching
from twofold.training.length import Length
from twofold.training.log import FILE, FINAL, VALIDATION, Callback, History, Log, TensorBoard
from twofold.training.run import Run
from twofold.types import Batch, Loss

Measure = Callable[[Any], dict[str, float]]
"""Metrics of a model."""


@dataclass(frozen=True)
class Validation:
    """Judges a model by the validation rows."""

    metrics: Measure
    """Metrics at each evaluation, `train.best` among them."""
    final_metrics: Measure | None = None
    """Further metrics, which are measured once, of the best model after the last step."""
    higher_is_better: bool = False
    """Direction of `train.best`."""


class Trainer:
    """Trains a model in a folder: `model/` is the best model so far, `checkpoints/` and `log.jsonl` serve to resume."""

    def __init__(
        self,
        model: Model,
        rows: TrainingRows,
        validation: Validation | None,
        config: TrainConfig,
        folder: Path,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        """callbacks: functions that are called with every line of the log"""
        self.model, self.rows, self.validation, self.config, self.folder = model, rows, validation, config, folder
        self.callbacks = callbacks
        self.length = Length(config, len(rows.plan(0)))
        self.sign = 1 if validation and validation.higher_is_better else -1
        self.device = make_device(config.device)
        model.to(self.device)
        self.caching = GradientCaching(config.chunk_tokens, config.memory_tokens, config.hard_negatives)
        self.optimizer = optimizer.make_optimizer(model, config)
        self.freezing = freezing.Freezing(model, config)
        self.freezing.at(1.0)  # the moving average needs every parameter that learns at any time
        freezing.refuse_what_cannot_learn(model, config)
        self.ema = optimizer.ExponentialMovingAverage(model, config.ema) if config.ema else None
        self.freezing.at(0.0)
        self.progress = checkpoint.Progress(precision=precisions.begin(model, config))
        self.first = processes.rank() == 0
        self._asked_to_stop = self._stopping = False
        self._saved_at = time.monotonic()
        self._rate = 0.0

    def resume(self) -> None:
        """Restores the newest checkpoint, if there is one."""
        path = checkpoint.latest(self.folder / "checkpoints")
        if path is None:
            return
        self.progress, groups = checkpoint.load(path)
        precisions.resume(self.model, self.config, self.progress.precision)
        saved.fill(self.model, groups["model"], path / "model.safetensors")
        optimizer.restore_optimizer(self.optimizer, self.model, groups["optimizer"])
        if self.ema:
            self.ema.restore(groups["ema"])

    def run(self, about: dict[str, object] | None = None) -> Run:
        """Trains to the end, or until asked to stop; `about` is the first line of the log."""
        best, higher_is_better = self.config.best, self.sign > 0
        console = Console(History(), best, higher_is_better)
        with contextlib.ExitStack() as stack:
            stack.enter_context(processes.asked_to_stop(self._stop))
            log = self._open_log(stack, console) if self.first else None
            if log and about and not self.progress.step:
                log.write(0, {**about, "precision": self.progress.precision})
            if log:
                console.start(self.length)
            finished = self._epochs(log)
            if log and finished:
                self._measure_best(log)
                console.end(self.length)
        value = None if self.progress.best is None else self.progress.best * self.sign
        judged = console.history.best(best, higher_is_better)
        metrics = {**(judged.metrics if judged else {}), **console.history.final}
        return Run(self.folder, self.progress.step, value, finished, metrics)

    def _open_log(self, stack: contextlib.ExitStack, console: Console) -> Log:
        """Opens the log with all callbacks, which are closed with the stack."""
        callbacks: list[Callback] = [console, *self.callbacks]
        if self.config.tensorboard:
            board = TensorBoard(self.folder / "tensorboard", self.progress.step)
            callbacks.append(stack.enter_context(contextlib.closing(board)))
        log = stack.enter_context(contextlib.closing(Log(self.folder / FILE, callbacks, self.progress.log)))
        console.history = History.read(log.path)
        return log

    def _epochs(self, log: Log | None) -> bool:
        """Runs the steps that are left; returns False if asked to stop before the last."""
        progress = self.progress
        self.model.train()
        plan = self._advanced(self.rows.plan(progress.epoch))  # a resumed training may have fewer rows than before
        clock = Clock(progress.step)
        with bar("training", self.length.total(plan), progress.step, self.first) as report:
            while not self.length.ended(progress):
                clock.tokens += self._step(plan)
                plan = self._advanced(plan)
                evaluation_is_due = self.length.evaluation_is_due(progress)
                ended = self.length.ended(progress)
                if progress.step % self.config.log_every == 0 or evaluation_is_due or ended:
                    values = self._summary(plan) | clock.speeds(progress.step)
                    if log:
                        log.write(progress.step, values)
                    report(progress.step, loss=f"{values['loss']:.3f}", tokens_per_second=values["tokens_per_second"])
                else:
                    report(progress.step)
                if evaluation_is_due:
                    with clock.paused():
                        self._evaluate(log)
                if self._checkpoint_is_due() or self._stopping:
                    self._save(log)
                if self._stopping:
                    return False
        if progress.evaluated < progress.step:
            self._evaluate(log)
        self._save(log)
        return True

    def _advanced(self, plan: Plan) -> Plan:
        """Returns the plan of this epoch, or of the next if all batches of this one are done."""
        if self.progress.batch < len(plan):
            return plan
        self.progress.epoch, self.progress.batch = self.progress.epoch + 1, 0
        return self.rows.plan(self.progress.epoch)

    def _step(self, plan: Plan) -> int:
        """Updates the weights once; returns the number of real tokens that this process has read."""
        config, progress, share = self.config, self.progress, self.length.share(self.progress, plan)
        progress.step += 1
        self.freezing.at(share)
        # All randomness of a step follows from its number: nothing to save, nothing to replay.
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
        total = self.length.total(plan)
        self._rate = optimizer.learning_rate(config, progress.step, share, progress.plateau, total)
        for group in self.optimizer.param_groups:
            group["lr"] = self._rate * group["scale"]
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.ema:
            self.ema.update(progress.step)
        return sum(self.model.tokens(batch) for batch in batches)

    def _backward(self, batch: Batch, counts: dict[str, int]) -> dict[str, Loss]:
        """Adds the gradients of one batch; `counts` are those of all batches of the step."""
        with RowGradients():
            if isinstance(self.model, Ranker):
                return {MAIN: self.caching.backward(self.model, batch, 1.0 / counts[MAIN])}
            losses = self.model.losses(batch)
            self.model.weighted(losses, counts).backward()  # type: ignore[no-untyped-call]
            return losses

    def _global_counts(self, batches: Sequence[Batch]) -> dict[str, int]:
        """Counts of each decoder's loss over the batches of all processes."""
        names = list(self.model.weights)
        counted: Counter[str] = Counter()
        for batch in batches:
            counted.update(self.model.counts(batch))
        for name in names:
            self.progress.seen.setdefault(name, [0.0, 0.0])
        here = [float(number) for number in (*(counted[name] for name in names), self._asked_to_stop)]
        *sums, stop = processes.add_up(here, self.device)
        self._stopping = stop > 0  # one process was asked; all stop after the same step
        return {name: int(total) for name, total in zip(names, sums, strict=True)}

    def _summary(self, plan: Plan) -> dict[str, float]:
        """Mean losses since the last line of the log, epoch and learning rate."""
        seen, progress = self.progress.seen, self.progress
        sums = processes.add_up([seen[name][0] for name in seen], self.device)
        means = {name: total / max(seen[name][1], 1) for name, total in zip(seen, sums, strict=True)}
        loss = sum(self.model.weights[name] * mean for name, mean in means.items())
        progress.seen = {}
        several = {f"loss_{name}": mean for name, mean in means.items()} if len(means) > 1 else {}
        epoch = round(progress.epoch + progress.batch / len(plan), 4)
        return {"loss": loss, **several, "epoch": epoch, "learning_rate": self._rate}

    def _evaluate(self, log: Log | None) -> None:
        """Measures the model, or its moving average; the best so far is saved as `model/`."""
        progress = self.progress
        progress.evaluated = progress.step
        if self.ema:
            self.ema.swap()
        # The first process measures; the others wait for the result.
        validation = self.validation
        metrics = processes.from_first(validation.metrics(self.model) if validation and self.first else {})
        better = True
        if validation:
            if self.config.best not in metrics:
                raise TwofoldError(
                    f"train.best={self.config.best}: the validation rows give no value; all their labels are unknown, "
                    "or all their pixels ignored"
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
            log.write(progress.step, {f"{VALIDATION}{name}": value for name, value in metrics.items()})

    def _measure_best(self, log: Log) -> None:
        """Logs metrics of the best model that no evaluation has measured."""
        if self.validation is None or self.validation.final_metrics is None:
            return
        best = saved.read(self.folder / "model", allow_code=True)  # the model at hand runs the same code
        saved.fill(self.model, saved.read_weights(best), best.path)
        metrics = self.validation.final_metrics(self.model)
        if metrics:
            log.write(self.progress.step, {f"{FINAL}{name}": value for name, value in metrics.items()})

    def _checkpoint_is_due(self) -> bool:
        every = self.config.save_every
        on_time = time.monotonic() - self._saved_at >= self.config.save_minutes * 60
        return on_time or bool(every and self.progress.step % every == 0)

    def _save(self, log: Log | None) -> None:
        if not log:
            return
        log.sync()
        self.progress.log = log.written
        groups = {
            "model": saved.unique_tensors(self.model),
            "optimizer": optimizer.optimizer_tensors(self.optimizer, self.model),
        }
        if self.ema:
            groups["ema"] = self.ema.tensors()
        checkpoint.save(self.folder / "checkpoints", self.progress, groups)
        self._saved_at = time.monotonic()

    def _stop(self) -> None:
        self._asked_to_stop = True


def _mix(*numbers: int) -> int:
    """Hashes some numbers into a seed."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))
