"""Convolutions over the tokens: each word with its neighbors; the multilingual default is one of these."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twofold.data.named_models import checked, model_folder, named_model, repair_of
from twofold.data.sentencepiece import read_sentencepiece
from twofold.data.tokenizer import TextTokenizer
from twofold.encoders import EncoderConfig
from twofold.errors import TwofoldError
from twofold.inputs.text import Tokens
from twofold.layers.blocks import dropout, make_embedding
from twofold.types import Batch, Encoder, Hidden, HiddenSpec, Vocabulary

NAMED = "default-multilingual"
PIECES = 128_000
"""Vocabulary size of the multilingual weights."""
SIZES = (512, 256, (2, 3, 5), 512, 320)
"""Widths and orders of the multilingual weights, which are the defaults below."""
SHARDS = 17
"""Number of parts of the embedding table in the file: token t is row t // 17 of part t % 17."""
EPSILON = 1e-12
JOINED = {"enter.weight": "proj", "enter.bias": "proj_b", "enter_norm.weight": "ln_g", "enter_norm.bias": "ln_b"}
"""Parameters that the file holds in one part for each order, with the prefixes of the parts' names there."""
WHOLE = {"norm.weight": "ln_g", "norm.bias": "ln_b", "project.weight": "cnn_W", "project.bias": "cnn_b"}
"""Parameters that the file holds unchanged, with their names there."""
FINISH = {"narrow.first": "d0", "narrow.second": "d1", "narrow.shortcut": "p1"}
FINISH |= {"widen.first": "d2", "widen.second": "d3", "widen.shortcut": "p3"}
"""Weights of the final dense layers, with their names in the file."""


@dataclass(frozen=True)
class Config(EncoderConfig):
    """Settings of the convolutional text encoder."""

    weights: Literal["none", "default-multilingual"] = "none"
    """Initial weights: random (`none`), or the multilingual Universal Sentence Encoder, version 3."""
    train_table: bool = False
    """Trains the pretrained embedding table as well; `false` freezes it, which keeps training fast."""
    embedding: int = 512
    """Width of the token embeddings."""
    channels: int = 256
    """Channels of each convolution."""
    orders: tuple[int, ...] = (2, 3, 5)
    """Kernel sizes of the convolutions, in tokens."""
    width: int = 512
    """Width of the states and of the summary."""
    bottleneck: int = 320
    """Inner width of the dense layers between the mean of the states and the summary."""
    residual: bool = True
    """Adds the input of each convolution layer to its output (residual connection); `false` builds a plain stack."""
    dropout: float = 0.1
    """Dropout probability on the embeddings and on the outputs of the convolutions."""

    def __post_init__(self) -> None:
        if not self.orders or min(self.orders) < 1:
            raise ValueError(f"orders must be whole numbers from 1, not {list(self.orders)}")
        sizes = (self.embedding, self.channels, self.orders, self.width, self.bottleneck)
        if self.weights != "none" and sizes != SIZES:
            raise ValueError(f"weights {self.weights} have sizes of their own; leave the others as they are")
        if self.weights != "none" and not self.residual:
            raise ValueError(f"weights {self.weights} were trained with residual connections; leave residual out")

    def spec(self) -> HiddenSpec:
        return HiddenSpec(states=self.width, summary=self.width)

    def build(self, vocabulary: Vocabulary, needs: frozenset[str]) -> TextConvnet:
        if self.weights != "none" and vocabulary.size != PIECES:
            raise TwofoldError(
                f"weights {self.weights} belong to {PIECES} tokens, but the vocabulary has {vocabulary.size}; "
                "use the tokenizer that comes with them, or weights: none"
            )
        return TextConvnet(self, vocabulary, needs)

    def own_tokenizer(self, folder: Path | None = None) -> TextTokenizer | None:
        """Returns the tokenizer of the initial weights; `folder` has their files if they are elsewhere."""
        return None if self.weights == "none" else read_sentencepiece(_file("sp.model", folder))

    def fill(self, encoder: Any, anyway: bool = False, folder: Path | None = None) -> None:
        """Loads the initial weights; `folder` has their files if they are elsewhere."""
        if self.weights != "none":
            _fill(encoder, _file("weights.npz", folder))


class TextConvnet(Encoder):
    """Convolutional text encoder: the states of all positions, and their mean after dense layers as the summary.

    States are scaled by the square root of the length, as the multilingual weights expect.
    """

    def __init__(self, config: Config, vocabulary: Vocabulary, needs: frozenset[str]) -> None:
        super().__init__()
        self.needs, self.dropout, self.orders = needs, config.dropout, config.orders
        self.before = max((order - 1) // 2 for order in config.orders)
        self.after = max(order // 2 for order in config.orders)
        if config.weights == "none":
            self.embedding = make_embedding(vocabulary.size, config.embedding)
        else:  # to be filled: drawing random numbers for so many would take a second
            table = torch.zeros(vocabulary.size, config.embedding)
            self.embedding = nn.Embedding(vocabulary.size, config.embedding, _weight=table)
            self.embedding.requires_grad_(config.train_table)
        inside = len(config.orders) * config.channels
        self.enter = nn.Linear(config.embedding, inside)
        self.enter_norm = nn.LayerNorm(inside, EPSILON)
        self.convolutions = nn.ModuleList(
            Convolution(order, config.channels, config.residual) for order in config.orders
        )
        self.norm = nn.LayerNorm(config.embedding + inside, EPSILON)
        self.project = nn.Linear(config.embedding + inside, config.width)
        self.finish = Finish(config.width, config.bottleneck) if needs & {"summary", "finish"} else None

    def levels(self) -> list[list[nn.Parameter]]:
        """Returns the token embeddings, then all other parameters: the convolutions run in parallel."""
        table = list(self.embedding.parameters())
        return [table, [parameter for parameter in self.parameters() if parameter is not table[0]]]

    def forward(self, batch: Batch) -> Hidden:
        text = batch.read(Tokens)
        # From here on the real tokens of all rows stand in one line: nothing is computed for padding.
        at = text.mask.flatten().nonzero()[:, 0]  # (tokens,) places in the batch
        row = at // text.mask.shape[1]  # (tokens,)
        features = self._features(text.tokens.flatten()[at], self._windows(row))  # (tokens, features)
        roots = text.mask.sum(1, keepdim=True).to(features.dtype).sqrt()  # (rows, 1), of the lengths
        states = summary = None
        if "states" in self.needs:
            real = self.project(features) * roots[row]  # (tokens, width)
            states = real.new_zeros(text.mask.numel(), real.shape[1]).index_copy(0, at, real)
            states = states.view(*text.mask.shape, -1)  # (rows, positions, width)
        if "summary" in self.needs and self.finish is not None:
            # The projection is linear: sum first, and there is less to project.
            sums = features.new_zeros(len(text), features.shape[1]).index_add(0, row, features)
            mean = F.linear(sums / roots, self.project.weight) + roots * self.project.bias  # (rows, width)
            summary = self.finish(mean)
        return Hidden(mask=text.mask, states=states, summary=summary, finish=self.finish)

    def _windows(self, row: Tensor) -> Tensor:
        """(tokens, window): for each token its neighbors and itself; outside its row the number of tokens."""
        tokens = len(row)
        steps = torch.arange(-self.before, self.after + 1, device=row.device)
        near = torch.arange(tokens, device=row.device)[:, None] + steps
        there = near.clamp(0, tokens - 1)
        return near.masked_fill((near != there) | (row[there] != row[:, None]), tokens)

    def _features(self, tokens: Tensor, windows: Tensor) -> Tensor:
        """Computes the token embeddings and the outputs of all convolutions, (tokens, features)."""
        embedded = dropout(self.embedding(tokens), self.dropout, self.training)
        entered = self.enter_norm(self.enter(embedded)).chunk(len(self.convolutions), 1)
        features = [embedded]
        for order, convolution, values in zip(self.orders, self.convolutions, entered, strict=True):
            start = self.before - (order - 1) // 2
            near = windows[:, start : start + order]
            features.append(dropout(convolution(values, near), self.dropout, self.training))
        return self.norm(torch.cat(features, 1))  # type: ignore[no-any-return]


class Convolution(nn.Module):
    """Two layers over windows of `order` tokens, each with a residual connection if `residual`."""

    def __init__(self, order: int, channels: int, residual: bool = True) -> None:
        super().__init__()
        self.residual = residual
        self.first, self.second = (nn.Linear(order * channels, channels) for _ in range(2))

    def forward(self, values: Tensor, windows: Tensor) -> Tensor:
        """Maps `values` (tokens, channels); `windows` (tokens, order) holds indices of tokens."""
        for layer in (self.first, self.second):
            nothing = values.new_zeros(1, values.shape[1])
            near = torch.cat([values, nothing]).index_select(0, windows.flatten())
            changed = layer(near.view(len(windows), -1)).relu_()
            values = changed + values if self.residual else changed
        return values


class Finish(nn.Module):
    """Final dense layers: two pairs, each with a skip connection."""

    def __init__(self, width: int, bottleneck: int) -> None:
        super().__init__()
        self.narrow, self.widen = Dense(width, bottleneck), Dense(bottleneck, width)

    def forward(self, vectors: Tensor) -> Tensor:
        """Maps vectors (..., width) to the same shape."""
        return self.widen(self.narrow(vectors).relu_()).tanh()  # type: ignore[no-any-return]


class Dense(nn.Module):
    """Two dense layers and a skip connection, without biases."""

    def __init__(self, reads: int, writes: int) -> None:
        super().__init__()
        self.first = nn.Linear(reads, writes, bias=False)
        self.second = nn.Linear(writes, writes, bias=False)
        self.shortcut = nn.Linear(reads, writes, bias=False)

    def forward(self, vectors: Tensor) -> Tensor:
        return self.shortcut(vectors) + self.second(self.first(vectors).relu_())  # type: ignore[no-any-return]


def _file(name: str, folder: Path | None) -> Path:
    """Returns the path of a file of the multilingual weights, after its checksum is verified."""
    folder = folder or model_folder(NAMED)
    return checked(folder / name, named_model(NAMED).sums[name], repair_of(NAMED))


@torch.no_grad()
def _fill(encoder: TextConvnet, path: Path) -> None:
    """Copies the weights of the file, whose matrices are (in, out), into an encoder of the same sizes."""
    names = {**WHOLE, **{f"finish.{layer}.weight": entry for layer, entry in FINISH.items() if encoder.finish}}
    for place, order in enumerate(encoder.orders):
        for number, layer in ((1, "first"), (2, "second")):
            names[f"convolutions.{place}.{layer}.weight"] = f"w{number}_{order}"
            names[f"convolutions.{place}.{layer}.bias"] = f"b{number}_{order}"
    with np.load(path, allow_pickle=False) as file:
        table, scale, low = encoder.embedding.weight, file["scale"], file["lo"]
        for shard in range(SHARDS):
            rows = table[shard::SHARDS]
            levels = file[f"q{shard + 1}"][: len(rows)].astype(np.float32)
            rows.copy_(torch.from_numpy(levels * scale[shard] + low[shard]))
        values = {name: file[entry] for name, entry in names.items()}
        for name, entry in JOINED.items():
            values[name] = np.concatenate([file[f"{entry}{order}"] for order in encoder.orders], -1)
    for name, value in values.items():
        encoder.get_parameter(name).copy_(torch.from_numpy(value.T))
