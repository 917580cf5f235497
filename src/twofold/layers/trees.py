"""Maximum spanning tree: the best dependency tree of a sentence, with exactly one word attached to the root."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

_ON_PATH, _DONE = 1, 2  # a node that is neither has no head yet


def best_tree(scores: NDArray[np.floating[Any]]) -> NDArray[np.int64]:
    """Finds the heads (words,) of the maximum spanning tree with exactly one child of the root (Chu-Liu/Edmonds).

    scores (words, words + 1): [d, h] scores word h as head of word d + 1; h = 0 is the root. A word is never its own
    head. Edges of -inf are never used; if every tree needs one, that is an error.
    """
    if scores.ndim != 2 or scores.shape[1] != len(scores) + 1:
        raise ValueError(f"scores of a tree are (words, words + 1), not {scores.shape}")
    values = scores.astype(np.float64)
    words = np.arange(len(values))
    values[words, words + 1] = -np.inf
    if np.isnan(values).any() or np.isposinf(values).any():
        raise ValueError("scores of a tree are numbers or -inf, and one here is nan or inf")
    barred = np.isneginf(values)
    # Constraints are counted apart from the scores, so that no large penalty rounds these: a second word at the root
    # weighs more than a barred edge for every word.
    wanted = -barred.astype(np.float64)
    wanted[:, 0] -= len(values) + 1
    heads: NDArray[np.int64] = _edmonds(wanted, np.where(barred, 0.0, values))
    if barred[words, heads].any():
        raise ValueError("scores of -inf leave no tree in which one word hangs from the root")
    return heads


@njit(nogil=True, cache=True)
def _edmonds(wanted: Any, scores: Any) -> Any:
    """Finds the tree with the fewest violated constraints, and among those the largest score, by Chu-Liu and Edmonds.

    From each word, heads are followed up to the root; each cycle on the way is contracted to a new node. Edges into
    that node still start at single words and count the gain over the edge of the cycle that they replace. Each node
    gets a head once and is merged at most once, so that the whole takes words² steps.
    """
    places = count = scores.shape[1]
    nodes = 2 * places
    want, score = np.zeros((nodes, places)), np.zeros((nodes, places))  # of the edge into a node from a word
    want[1:places], score[1:places] = wanted, scores
    ends = np.zeros((nodes, places), np.int64)  # the word that the edge ends at
    for place in range(places):
        ends[place] = place
    top = np.arange(places)  # the outermost node that contains each word
    outer, state = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)  # outer: the node that a node was merged into
    head, word = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)  # the edge into a node, from head to word
    state[0] = _DONE
    for start in range(1, places):
        node = top[start]
        while state[node] != _DONE:
            if state[node] == _ON_PATH:
                _merge(node, count, want, score, ends, top, outer, head)
                node, count = count, count + 1
            head[node] = _best(want, score, node, top)
            word[node] = ends[node, head[node]]
            state[node] = _ON_PATH
            node = top[head[node]]
        state[state == _ON_PATH] = _DONE
    # The edge into a cycle replaces that of the member that it enters; the other members keep theirs.
    for node in range(count - 1, places - 1, -1):
        member = word[node]
        while outer[member] != node:
            member = outer[member]
        head[member], word[member] = head[node], word[node]
    return head[1:places]


@njit(nogil=True, cache=True)
def _merge(first: int, new: int, want: Any, score: Any, ends: Any, top: Any, outer: Any, head: Any) -> None:
    """Contracts the cycle through node `first` to node `new`: the best edge from each word, minus the edge it
    replaces."""
    member = first
    while outer[member] == 0:
        outer[member] = new
        broken = head[member]
        for place in range(len(top)):
            wanted = want[member, place] - want[member, broken]
            gain = score[member, place] - score[member, broken]
            if member == first or _above(wanted, gain, want[new, place], score[new, place]):
                want[new, place], score[new, place] = wanted, gain
                ends[new, place] = ends[member, place]
        member = top[broken]
    top[outer[top] == new] = new


@njit(nogil=True, cache=True)
def _best(want: Any, score: Any, node: int, top: Any) -> int:
    """Finds the start of the best edge into a node; the root, which is in no other node, is always a candidate."""
    best = 0
    for place in range(1, len(top)):
        if top[place] != node and _above(want[node, place], score[node, place], want[node, best], score[node, best]):
            best = place
    return best


@njit(nogil=True, cache=True)
def _above(want: float, score: float, other_want: float, other_score: float) -> bool:
    return want > other_want or (want == other_want and score > other_score)
