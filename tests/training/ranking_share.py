"""Work of each of several processes in tests/training/test_ranking_processes.py: its share, in the given folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.conftest import decoder, encoder
from tests.rankers import GIVEN, PAIRS, SEVERAL, batch_of, gradients, small_ranker
from twofold.data.tokenizer import TextTokenizer
from twofold.losses import LossConfig
from twofold.losses.in_batch import Config as InBatch
from twofold.losses.kl import Config as KL
from twofold.model.config import MAIN
from twofold.recipe import Recipe, train
from twofold.training import processes
from twofold.training.gradient_caching import GradientCaching
from twofold.training.processes import add_up_gradients


@dataclass(frozen=True)
class Case:
    """A ranker and the batch it learns from."""

    kind: str
    rows: Sequence[Mapping[str, Any]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    two_towers: bool = False
    losses: tuple[LossConfig, ...] = (InBatch(),)
    twice: bool = False
    """True if the batch is read twice, piece by piece."""
    plain: bool = False
    """True if the gradients are those of the loss itself."""


TEACHER = (InBatch(), KL(temperature=2.0))
CASES = {
    "bi": Case("bi", PAIRS[:4]),
    "bi-odd": Case("bi", GIVEN, losses=TEACHER),
    "bi-odd-twice": Case("bi", GIVEN, losses=TEACHER, twice=True),
    "bi-odd-plain": Case("bi", GIVEN, losses=TEACHER, plain=True),
    "bi-towers": Case("bi", GIVEN, two_towers=True, twice=True),
    "poly": Case("poly", GIVEN[:4], {"attention": "multihead", "heads": 2}),
    "poly-odd-twice": Case("poly", GIVEN, {"code_kind": "first"}, twice=True),
    "bi-both-ways": Case("bi", GIVEN, losses=(InBatch(symmetric=True),)),
    "bi-both-ways-several-twice": Case("bi", SEVERAL, losses=(InBatch(symmetric=True),), twice=True),
    "poly-both-ways-twice": Case("poly", GIVEN, losses=(InBatch(symmetric=True),), twice=True),
    "bi-several": Case("bi", SEVERAL, losses=TEACHER),
    "poly-several-twice": Case("poly", SEVERAL, losses=TEACHER, twice=True),
    "cross-several": Case("cross", SEVERAL),
    "cross-odd": Case("cross", PAIRS),
    "cross-odd-twice": Case("cross", PAIRS, twice=True),
}


def learned(case: Case, tokenizer: TextTokenizer, rank: int = 0, world: int = 1) -> dict[str, Tensor]:
    """The loss and the gradients that this process finds in its share."""
    reads = encoder("transformer", dropout=0.0, layers=1)
    ranks = decoder(case.kind, **case.settings)
    ranker = small_ranker(tokenizer, reads, ranks, two_towers=case.two_towers, losses=case.losses)
    ranker.train()
    caching = GradientCaching(20, 0) if case.twice else GradientCaching(1000, 1000)
    batch = batch_of(ranker, case.rows, rank=rank, world=world)
    if case.plain:
        loss = ranker.losses(batch)[MAIN]
        (loss.sum / len(case.rows)).backward()  # type: ignore[no-untyped-call]
    else:
        loss = caching.backward(ranker, batch, 1.0 / len(case.rows))
    if world > 1:
        add_up_gradients(ranker.parameters())
    (total,) = processes.add_up([float(loss.sum.detach())], ranker.device)
    return {"loss": torch.tensor(total), **gradients(ranker)}


def main(folder: Path) -> None:
    """All cases, then a training of each recipe."""
    tokenizer = TextTokenizer.load(folder / "tokenizer.json")
    with processes.joined():
        for name, case in CASES.items():
            gradients = learned(case, tokenizer, processes.rank(), processes.world())
            if processes.rank() == 0:
                save_file(gradients, folder / f"{name}.safetensors")
        for name, recipe in json.loads((folder / "recipes.json").read_text()).items():
            train(Recipe.of(recipe), folder / f"two-{name}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
