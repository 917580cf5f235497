"""What each of several processes does in tests/training/test_ranking_processes.py: its share, in the given folder."""

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
from twofold.model import RankingLoss
from twofold.recipe import Recipe, train
from twofold.training import processes
from twofold.training.optimizer import add_up_gradients


@dataclass(frozen=True)
class Case:
    """A ranker and the batch it learns from."""

    kind: str
    rows: Sequence[Mapping[str, Any]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    separate: bool = False
    loss: RankingLoss = field(default_factory=RankingLoss)
    twice: bool = False
    """Whether the batch is read twice, piece by piece."""
    plain: bool = False
    """Whether the gradients are those of the loss itself."""


TEACHER = RankingLoss(teacher="kl", temperature=2.0)
CASES = {
    "bi": Case("bi", PAIRS[:4]),
    "bi-odd": Case("bi", GIVEN, loss=TEACHER),
    "bi-odd-twice": Case("bi", GIVEN, loss=TEACHER, twice=True),
    "bi-odd-plain": Case("bi", GIVEN, loss=TEACHER, plain=True),
    "bi-towers": Case("bi", GIVEN, separate=True, twice=True),
    "poly": Case("poly", GIVEN[:4], {"attention": "multihead", "heads": 2}),
    "poly-odd-twice": Case("poly", GIVEN, {"code_kind": "first"}, twice=True),
    "bi-several": Case("bi", SEVERAL, loss=TEACHER),
    "poly-several-twice": Case("poly", SEVERAL, loss=TEACHER, twice=True),
    "cross-several": Case("cross", SEVERAL),
    "cross-odd": Case("cross", PAIRS),
    "cross-odd-twice": Case("cross", PAIRS, twice=True),
}


def learned(case: Case, tokenizer: TextTokenizer, rank: int = 0, world: int = 1) -> dict[str, Tensor]:
    """The loss and the gradients that this process finds in its share."""
    reads = encoder("transformer", dropout=0.0, layers=1)
    ranker = small_ranker(tokenizer, reads, decoder(case.kind, **case.settings), separate=case.separate, loss=case.loss)
    ranker.train()
    ranker.chunk_tokens, ranker.memory_tokens = (20, 0) if case.twice else (1000, 1000)
    batch = batch_of(ranker, case.rows, rank=rank, world=world)
    if case.plain:
        loss = ranker.losses(batch)["main"]
        (loss.sum / len(case.rows)).backward()  # type: ignore[no-untyped-call]
    else:
        loss = ranker.backward(batch, {"main": len(case.rows)})["main"]
    if world > 1:
        add_up_gradients(ranker.parameters())
    (total,) = processes.add_up([float(loss.sum.detach())], ranker.device)
    return {"loss": torch.tensor(total), **gradients(ranker)}


def main(folder: Path) -> None:
    """All cases, then a training of each recipe."""
    tokenizer = TextTokenizer.load(folder / "tokenizer.json")
    with processes.joined():
        for name, case in CASES.items():
            found = learned(case, tokenizer, processes.rank(), processes.world())
            if processes.rank() == 0:
                save_file(found, folder / f"{name}.safetensors")
        for name, recipe in json.loads((folder / "recipes.json").read_text()).items():
            train(Recipe.of(recipe), folder / f"two-{name}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
