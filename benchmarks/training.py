"""Cost of the toolkit and gain of its batches: real tokens per second of four loops, in one run.

The model is a Transformer of the same shape everywhere, with tied output, dropout, label smoothing, clipping and
fused AdamW. Times are CPU seconds of this process on one thread, so that a busy machine matters little.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from _common import need, save
from torch import Tensor, nn

from twofold.data.batches import Moment
from twofold.inputs.text import Tokens
from twofold.layers.blocks import sinusoids
from twofold.model import Model
from twofold.model.batches import TrainingRows
from twofold.model.config import MAIN
from twofold.recipe import Recipe
from twofold.recipe.build import build_model, cache_rows, split_rows, training_rows
from twofold.training.config import TrainConfig
from twofold.training.loop import Trainer
from twofold.training.optimizer import make_optimizer
from twofold.types import Batch, Vocabulary


class Plain(nn.Module):
    """`nn.Transformer` as a tutorial would use it: every position, padding too, meets the vocabulary."""

    def __init__(self, like: Model) -> None:
        super().__init__()
        encoder = like.config.encoder
        source, target = like.input.vocabulary, like.outputs[MAIN].spec
        assert isinstance(target, Vocabulary)
        width, dropout = encoder.width, encoder.dropout  # type: ignore[attr-defined]
        self.read, self.write = nn.Embedding(source.size, width), nn.Embedding(target.size, width)
        self.body = nn.Transformer(
            width, encoder.heads, encoder.layers, encoder.layers, encoder.feed_forward, dropout,  # type: ignore[attr-defined]
            batch_first=True, norm_first=True,
        )  # fmt: skip
        self.positions = nn.Buffer(sinusoids(max(source.limit, target.limit) + 1, width))
        self.drop, self.pad = nn.Dropout(dropout), target.pad

    def loss(self, batch: Batch) -> Tensor:
        source, target = batch.read(Tokens), batch.targets[MAIN]
        inputs, gold = target.tokens[:, :-1], target.tokens[:, 1:]
        read = self.drop(
            self.read(source.tokens) * self.read.embedding_dim**0.5 + self.positions[: source.tokens.shape[1]]
        )
        write = self.drop(self.write(inputs) * self.write.embedding_dim**0.5 + self.positions[: inputs.shape[1]])
        ahead = nn.Transformer.generate_square_subsequent_mask(inputs.shape[1], dtype=torch.bool)
        states = self.body(
            read, write, tgt_mask=ahead, src_key_padding_mask=~source.mask, tgt_key_padding_mask=~target.mask[:, 1:],
            memory_key_padding_mask=~source.mask, tgt_is_causal=True,
        )  # fmt: skip
        logits = states @ self.write.weight.T
        return F.cross_entropy(logits.flatten(0, 1), gold.flatten(), ignore_index=self.pad, label_smoothing=0.1)


def bare(model: nn.Module, loss: Callable[[Batch], Tensor], batches: Iterator[Batch], config: TrainConfig) -> None:
    """The shortest loop that trains."""
    optimizer = make_optimizer(model, config)
    model.train()
    for batch in batches:
        loss(batch).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), config.clip)
        optimizer.step()
        optimizer.zero_grad()


def seeded(data: TrainingRows, seed: int) -> TrainingRows:
    """Rows in batches that are drawn by another seed."""
    return replace(data, sizes=replace(data.sizes, seed=seed))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60, help="steps of each loop in each round")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    need("multi30k", "train.tsv.gz")
    torch.set_num_threads(1)
    recipe = Recipe.load("translate")
    with tempfile.TemporaryDirectory() as folder:
        model = build_model(recipe, Path(folder))
        cache = cache_rows(recipe, model)
        bucketed = training_rows(recipe, cache, split_rows(recipe, cache, model), model)
        like = round(len(bucketed.rows) / len(bucketed.plan(0)))
        padded = replace(bucketed, sizes=replace(bucketed.sizes, rows=like))
        config = replace(recipe.train, max_steps=options.steps, ema=0.0, precision="float32")

        def batches(data: TrainingRows, epoch: int) -> Iterator[Batch]:
            plan = data.plan(epoch)
            made = (data.batch(plan.rows(number), Moment()) for number in range(options.steps))
            return (batch for batch in made if batch is not None)

        def trainer(epoch: int) -> None:
            Trainer(fresh(), seeded(bucketed, epoch + 2), None, config, Path(folder) / f"run{epoch}").run()

        def fresh() -> Model:
            torch.manual_seed(1)
            return Model(model.config, model.tokenizers)

        def loop(make: Callable[[], nn.Module], data: TrainingRows, epoch: int) -> None:
            network = make()
            bare(network, network.loss, batches(seeded(data, epoch + 2), 0), config)  # type: ignore[arg-type]

        loops: dict[str, tuple[TrainingRows, Callable[[int], None]]] = {
            "nn.Transformer, padded batches of a fixed number of rows": (
                padded, lambda epoch: loop(lambda: Plain(model), padded, epoch)),
            "nn.Transformer, our buckets": (bucketed, lambda epoch: loop(lambda: Plain(model), bucketed, epoch)),
            "our model, our buckets, bare loop": (bucketed, lambda epoch: loop(fresh, bucketed, epoch)),
            "twofold train": (bucketed, trainer),
        }  # fmt: skip
        rates: dict[str, list[float]] = {name: [] for name in loops}
        for round_ in range(options.rounds):
            for name, (data, run) in loops.items():
                read = list(batches(seeded(data, round_ + 2), 0))
                tokens = sum(batch.first.count() + int(batch.targets[MAIN].mask[:, 1:].sum()) for batch in read)
                start = time.process_time()
                run(round_)
                rates[name].append(tokens / (time.process_time() - start))
                print(f"round {round_ + 1}: {name}: {rates[name][-1]:,.0f} real tokens per CPU second", flush=True)
    against_plain = statistics.median(
        b / a for a, b in zip(rates[next(iter(rates))], rates["twofold train"], strict=True)
    )
    against_bare = statistics.median(
        b / a for a, b in zip(rates["our model, our buckets, bare loop"], rates["twofold train"], strict=True)
    )
    print(
        f"twofold train: {against_plain:.2f} × the plain loop, {against_bare:.3f} × the bare loop (medians of ratios)"
    )
    shown = {name: {"median": statistics.median(values), "all": values} for name, values in rates.items()}
    ratios = {"to_plain_loop": against_plain, "to_bare_loop": against_bare}
    save(
        "training",
        {"real_tokens_per_cpu_second": shown, "ratio_of_twofold_train": ratios, "rows_per_padded_batch": like},
    )


if __name__ == "__main__":
    main()
