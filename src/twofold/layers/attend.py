"""Ways in which positions attend to each other: full, window and linear attention, over the same queries and keys."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from twofold.layers.mixed_precision import float32

AttendKind = Literal["full", "window", "linear"]
BLOCK = 64
"""Number of positions in a block of causal linear attention, and at least so many in one of window attention."""
TINY = 1e-30
"""Lower limit of the sum by which linear attention divides."""


class Attended(NamedTuple):
    """Output of attention, with the weights if requested."""

    values: Tensor
    weights: Tensor | None = None
    """Attention weights (rows, heads, queries, keys)."""


class KeysValues(NamedTuple):
    """Keys and values, (rows, heads, positions, width of a head) each."""

    keys: Tensor
    values: Tensor


class Attend(Protocol):
    """Interface of the kinds of self-attention, none of which has parameters."""

    def __call__(
        self,
        queries: Tensor,
        memory: KeysValues,
        mask: Tensor | None = None,
        causal: bool = False,
        dropout: float = 0.0,
        weights: bool = False,
    ) -> Attended:
        """Attends from all positions at once; `mask` (rows, 1, 1, keys) is true where real, `causal` hides the
        future."""
        ...

    def step(self, queries: Tensor, memory: KeysValues, visible: Tensor | None) -> Tensor:
        """Attends from the newest position of each hypothesis, (rows, heads, hypotheses, width of a head), to all
        cached entries; `visible` (rows, 1, hypotheses, entries) is 0 at its own past and -inf elsewhere."""
        ...


def attend(
    queries: Tensor,
    memory: KeysValues,
    mask: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
    weights: bool = False,
) -> Attended:
    """Scaled dot-product attention, softmax(q·k / √d)·v; `mask` is true where a query may attend, `causal` hides the
    future."""
    if not weights:
        return Attended(F.scaled_dot_product_attention(queries, *memory, mask, dropout, causal))
    scores = queries @ memory.keys.transpose(-2, -1) / math.sqrt(queries.shape[-1])
    if causal:
        ahead = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(ahead, -math.inf)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    share = scores.softmax(-1)
    return Attended(F.dropout(share, dropout) @ memory.values, share)


def kept(states: Tensor) -> Tensor:
    """Keys or values to attend to at every step: in float32 on a CPU, whose kernels for few queries are slow below."""
    return states.float() if states.device.type == "cpu" else states


def attend_kept(queries: Tensor, memory: KeysValues, mask: Tensor | None) -> Tensor:
    """Attends from few positions in the type of the kept keys and values, which autocast would convert at each step."""
    kind = memory.keys.dtype
    with float32(queries.device.type):
        mask = mask if mask is None or mask.dtype == torch.bool else mask.to(kind)
        return F.scaled_dot_product_attention(queries.to(kind), *memory, mask)


class FullAttention:
    """Softmax attention from every position to every other (Vaswani et al. 2017)."""

    __call__ = staticmethod(attend)

    def step(self, queries: Tensor, memory: KeysValues, visible: Tensor | None) -> Tensor:
        return attend_kept(queries, memory, visible)


@dataclass(frozen=True)
class WindowAttention:
    """Softmax attention to the positions at most `window` away (sliding window of Longformer, Beltagy et al. 2020).

    Long texts are cut into blocks of queries, each of which sees its own block and the ones beside it.
    """

    window: int

    def __call__(
        self,
        queries: Tensor,
        memory: KeysValues,
        mask: Tensor | None = None,
        causal: bool = False,
        dropout: float = 0.0,
        weights: bool = False,
    ) -> Attended:
        positions, block = queries.shape[2], max(self.window, BLOCK)
        if not weights and positions > 2 * block:
            return Attended(self._blocked(queries, memory, mask, causal, dropout))
        places = torch.arange(positions, device=queries.device)
        allowed = self._allowed(places - places[:, None], mask, causal)
        return attend(queries, memory, allowed, False, dropout, weights)

    def step(self, queries: Tensor, memory: KeysValues, visible: Tensor | None) -> Tensor:
        entries = (self.window + 1) * queries.shape[2]
        keys, values = (part[:, :, -entries:] for part in memory)
        recent = None if visible is None else visible[..., -entries:]
        return attend_kept(queries, KeysValues(keys, values), recent)

    def _blocked(
        self, queries: Tensor, memory: KeysValues, mask: Tensor | None, causal: bool, dropout: float
    ) -> Tensor:
        rows, heads, positions, width = queries.shape
        block = max(self.window, BLOCK)
        blocks, after = -(-positions // block), 0 if causal else block
        spare, seen = blocks * block - positions, 2 * block + after

        def beside(states: Tensor) -> Tensor:
            """Joins each block with its neighbors: (rows × blocks, heads, positions seen, width of a head)."""
            padded = F.pad(states, (0, 0, block, spare + after))
            return padded.unfold(2, seen, block).permute(0, 2, 1, 4, 3).flatten(0, 1)

        real = queries.new_ones(rows, positions, dtype=torch.bool) if mask is None else mask[:, 0, 0]
        real = F.pad(real, (block, spare + after)).unfold(1, seen, block)  # (rows, blocks, positions seen)
        places = torch.arange(seen, device=queries.device)
        distance = places - block - places[:block, None]
        allowed = self._allowed(distance, real[:, :, None], causal).flatten(0, 1)[:, None]
        padded = F.pad(queries, (0, 0, 0, spare)).view(rows, heads, blocks, block, width)
        values = attend(
            padded.transpose(1, 2).flatten(0, 1), KeysValues(*map(beside, memory)), allowed, False, dropout
        ).values
        return values.view(rows, blocks, heads, block, width).transpose(1, 2).flatten(2, 3)[:, :, :positions]

    def _allowed(self, distance: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        """Attention mask from each key's distance to its query; padding attends to itself, so that it stays finite."""
        near = (distance >= -self.window) & (distance <= (0 if causal else self.window))
        return near if mask is None else (near & mask) | (distance == 0)


class LinearAttention:
    """Kernelized attention, φ(q)·φ(k) / Σφ(q)·φ(k) with φ = elu + 1 (Katharopoulos et al. 2020), summed in float32."""

    def __call__(
        self,
        queries: Tensor,
        memory: KeysValues,
        mask: Tensor | None = None,
        causal: bool = False,
        dropout: float = 0.0,
        weights: bool = False,
    ) -> Attended:
        if weights:
            return self._weighted(queries, memory, mask, causal)
        with float32(queries.device.type):
            queries, keys = _features(queries), _features(memory.keys)
            if mask is not None:
                keys = keys * mask.transpose(-2, -1)
            values = F.pad(memory.values.float(), (0, 1), value=1.0)  # the last column sums the weights
            sums = _causal_sums(queries, keys, values) if causal else queries @ (keys.transpose(-2, -1) @ values)
            return Attended((sums[..., :-1] / sums[..., -1:].clamp_min(TINY)).to(memory.values))

    def step(self, queries: Tensor, memory: KeysValues, visible: Tensor | None) -> Tensor:
        return self._weighted(queries, memory, None if visible is None else visible == 0).values

    def _weighted(self, queries: Tensor, memory: KeysValues, mask: Tensor | None, causal: bool = False) -> Attended:
        """Computes the weights themselves, in quadratic time; `mask` is true where a query may attend."""
        with float32(queries.device.type):
            products = _features(queries) @ _features(memory.keys).transpose(-2, -1)
            products = products.tril() if causal else products
            products = products if mask is None else products * mask
            shares = products / products.sum(-1, keepdim=True).clamp_min(TINY)
            return Attended((shares @ memory.values.float()).to(memory.values), shares)


def make_attend(kind: AttendKind, window: int) -> Attend:
    """Creates the attention of a kind; only `window` has a size."""
    kinds: dict[AttendKind, Attend] = {
        "full": FullAttention(),
        "window": WindowAttention(window),
        "linear": LinearAttention(),
    }
    return kinds[kind]


def _features(states: Tensor) -> Tensor:
    """Feature map elu(x) + 1, computed so that it stays above 0 for large negative x."""
    states = states.float()
    return states.clamp(max=0).exp() + states.relu()


def _causal_sums(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Computes Σ (q·k) v over each query's past: inside its block by a triangle, before it by cumulative sums."""
    rows, heads, positions, _ = queries.shape
    padding = (0, 0, 0, -positions % BLOCK)
    queries, keys, values = (
        F.pad(states, padding).view(rows, heads, -1, BLOCK, states.shape[3]) for states in (queries, keys, values)
    )
    totals = (keys.transpose(-2, -1) @ values).cumsum(2)  # (rows, heads, blocks, width of a head, width of values)
    before = F.pad(totals[:, :, :-1], (0, 0, 0, 0, 1, 0))
    inside = (queries @ keys.transpose(-2, -1)).tril() @ values
    return (queries @ before + inside).flatten(2, 3)[:, :, :positions]
