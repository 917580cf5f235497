"""Reads tagged words (.conll) and dependency trees (.conllu, Universal Dependencies); writes trees back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from reprlib import repr as shown

from twofold.data.files import Row, lines_of
from twofold.errors import TwofoldError

Line = tuple[str, str]
"""Place and content of a line."""
ID, FORM, LEMMA, UPOS, XPOS, FEATS, HEAD, DEPREL, DEPS, MISC = COLUMNS = range(10)
TAG_COLUMNS = ("upos", "xpos")
"""Tag columns of CoNLL-U."""
NAMES = {"words": FORM, "lemmas": LEMMA, "upos": UPOS, "xpos": XPOS, "feats": FEATS, "relations": DEPREL}


def read_conll(path: Path) -> Iterator[Row]:
    """Reads one row for each sentence of a file with a word and its tag on each line: `words` and `tags`, or words
    alone.

    Columns in between are `column2`, `column3` and so on. `-DOCSTART-` lines are skipped.
    """
    names: list[str] = []
    lines = ((place, "" if line.split(maxsplit=1)[:1] == ["-DOCSTART-"] else line) for place, line in lines_of(path))
    for sentence in _sentences(lines):
        words = []
        for place, line in sentence:
            *before, tag = line.split("\t")
            cells = [*before, tag.strip()]  # a trailing blank does not make a different tag
            if len(cells) == 1 and not names and " " in tag.strip():
                raise TwofoldError(f"{place}: only one column; a tab must stand between a word and its tag")
            names = names or ["words", *(f"column{n}" for n in range(2, len(cells))), "tags"][: len(cells)]
            if len(cells) != len(names):
                said = f"{place}: {len(cells)} columns, but {len(names)} at the first word of the file"
                raise TwofoldError(f"{said}; give every word the same columns, with one tab between two")
            _refuse_blanks(place, cells)
            words.append(cells)
        columns = map(list, zip(*words, strict=True))
        yield Row(sentence[0][0], dict(zip(names, columns, strict=True)))


def read_conllu(path: Path) -> Iterator[Row]:
    """Reads one row for each sentence: a list for each column over the syntactic words, and its source lines as
    `conllu`.

    `heads` has None for `_`. Comments that no word follows before the next blank line are skipped.
    """
    for sentence in _sentences(lines_of(path)):
        words = _syntactic_words(sentence)
        if not words:
            continue
        known: dict[str, int | None] = {"_": None, **{str(n): n for n in range(len(words) + 1)}}
        for place, cells in words:
            if cells[HEAD] not in known:
                numbers = f"a number from 0 to {len(words)}, the last word of the sentence"
                raise TwofoldError(f"{place}: HEAD {shown(cells[HEAD])} is neither _ nor {numbers}")
        values: dict[str, object] = {name: [cells[n] for _, cells in words] for name, n in NAMES.items()}
        values["heads"] = [known[cells[HEAD]] for _, cells in words]
        yield Row(words[0][0], values | {"conllu": "\n".join(line for _, line in sentence)})


def check_tree(heads: Sequence[int]) -> str | None:
    """Checks a tree and returns the problem as the end of a sentence ("has no root"), or None for a valid tree.

    `heads[i]` is the head of word i + 1; 0 is the root.
    """
    for word, head in enumerate(heads, start=1):
        if not 0 <= head <= len(heads):
            return f"has a head outside the sentence ({head}, of word {word})"
    roots = [word for word, head in enumerate(heads, start=1) if head == 0]
    if not roots:
        return "has no root"
    if len(roots) == 2:
        return f"has two roots (words {roots[0]} and {roots[1]})"
    if len(roots) > 2:
        return f"has {len(roots)} roots (words {roots[0]}, {roots[1]} …)"
    reached_from = [0] * (len(heads) + 1)
    for start in range(1, len(heads) + 1):
        word = start
        while word and not reached_from[word]:
            reached_from[word] = start
            word = heads[word - 1]
        if word and reached_from[word] == start:
            return f"has a cycle through word {word}"
    return None


def universal(relation: str) -> str:
    """Returns the relation without its subtype: nsubj for nsubj:pass."""
    return relation.partition(":")[0]


def with_tree(conllu: str, heads: Sequence[int], relations: Sequence[str]) -> str:
    """Returns the sentence with another tree.

    DEPS becomes `_`, because the old graph would contradict the new tree; all else is kept.
    """
    return _replaced(conllu, {HEAD: [str(head) for head in heads], DEPREL: relations, DEPS: ["_"] * len(heads)})


def with_tags(conllu: str, column: str, tags: Sequence[str]) -> str:
    """Returns the sentence with other tags in one column; all else is kept."""
    return _replaced(conllu, {NAMES[column]: tags})


def plain_conllu(words: Sequence[str]) -> str:
    """Writes bare words as CoNLL-U, with `_` in every other column."""
    lines = ("\t".join([str(n), _cell(word), *"_" * 8]) for n, word in enumerate(words, start=1))
    return "\n".join(lines)


def _sentences(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Splits the lines at blank lines."""
    for blank, run in groupby(lines, key=lambda line: not line[1].strip()):
        if not blank:
            yield list(run)


def _syntactic_words(sentence: Sequence[Line]) -> list[tuple[str, list[str]]]:
    """Returns the place and the columns of each word; ids of words, empty nodes and multi-word tokens must ascend."""
    words: list[tuple[str, list[str]]] = []
    ranges: list[tuple[str, int, str]] = []  # place, first word and last word of each multi-word token
    nodes = 0  # empty nodes since the last word
    for place, line in sentence:
        if line.startswith("#"):
            continue
        cells = line.split("\t")
        if len(cells) != len(COLUMNS):
            raise TwofoldError(f"{place}: {len(cells)} columns, but CoNLL-U has ten, with one tab between two")
        _refuse_blanks(place, cells)
        last, following = len(words), len(words) + 1
        if cells[ID] == str(following):
            words.append((place, cells))
            nodes = 0
        elif cells[ID] == f"{last}.{nodes + 1}":
            nodes += 1
        elif cells[ID].startswith(f"{following}-"):
            ranges.append((place, following, cells[ID].partition("-")[2]))
        else:
            fitting = f"word {following}, empty node {last}.{nodes + 1} or a multi-word token from {following}"
            said = f"{place}: id {shown(cells[ID])} does not fit; here {fitting} may stand"
            raise TwofoldError(f"{said}, or the blank line that ends a sentence")
    if nodes and not words:
        raise TwofoldError(f"{sentence[-1][0]}: a sentence of empty nodes; it needs a word")
    _check_ranges(ranges, len(words))
    return words


def _check_ranges(ranges: Iterable[tuple[str, int, str]], words: int) -> None:
    """Checks that multi-word tokens cover words of their sentence and do not overlap."""
    known = {str(n): n for n in range(1, words + 1)}
    covered = 0
    for place, first, last in ranges:
        if not covered < first <= known.get(last, 0):
            rule = f"it must end at one of the {words} words of its sentence, and share none with another"
            raise TwofoldError(f"{place}: multi-word token {shown(f'{first}-{last}')} does not fit; {rule}")
        covered = known[last]


def _refuse_blanks(place: str, cells: Sequence[str]) -> None:
    for number, cell in enumerate(cells, start=1):
        if not cell.strip():
            raise TwofoldError(f"{place}: column {number} of {len(cells)} is blank; fill it or remove the line")


def _replaced(conllu: str, columns: Mapping[int, Sequence[str]]) -> str:
    lines = conllu.split("\n")
    words = [n for n, line in enumerate(lines) if line.partition("\t")[0].isdecimal()]
    for values in columns.values():
        if len(values) != len(words):
            raise ValueError(f"{len(values)} values for a sentence of {len(words)} words")
    for word, n in enumerate(words):
        cells = lines[n].split("\t")
        for column, values in columns.items():
            cells[column] = _cell(values[word])
        lines[n] = "\t".join(cells)
    return "\n".join(lines)


def _cell(value: str) -> str:
    if not value.strip() or any(end in value for end in "\t\r\n"):
        raise TwofoldError(f"{shown(value)} cannot stand in CoNLL-U; it is blank or holds a tab or a line end")
    return value
