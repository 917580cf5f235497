"""Tagged words and trees are read as they stand, written back unharmed, and refused with the line that is wrong."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from twofold.data.conll import check_tree, plain_conllu, with_tags, with_tree
from twofold.data.files import Row, read_rows
from twofold.errors import TwofoldError

TAGGED = "Ada\tB-PER\nLovelace\tI-PER\n\n서울\tB-LOC\n#\tO\n"
TREES = """\
# sent_id = 1
# text = vámonos _ 3 000
1-2	vámonos	_	_	_	_	_	_	_	SpaceAfter=No
1	vamos	ir	VERB	V	Mood=Imp|Number=Plur	0	root	0:root|4.1:conj	_
2	nos	nosotros	PRON	P	Case=Acc	1	obj	1:obj	_
3	_	_	PUNCT	_	_	1	punct	1:punct	Note=a b
4	3 000	3 000	NUM	_	_	1	obl	1:obl	_
4.1	vamos	ir	VERB	V	_	_	_	0:root	CopyOf=1

# no tree here
0.1	ya	ya	ADV	_	_	_	_	1:advmod	_
1	네	네	INTJ	IC	_	_	_	_	_
"""
FIRST, SECOND = TREES.rstrip("\n").split("\n\n")
DRESSED = {
    "as it is": lambda text: text.encode(),
    "after a byte order mark": lambda text: b"\xef\xbb\xbf" + text.encode(),
    "with the line ends of Windows": lambda text: text.replace("\n", "\r\n").encode(),
    "without a last line end": lambda text: text.rstrip("\n").encode(),
    "with more blank lines": lambda text: (text.replace("\n\n", "\n\n \n") + "\n\n").encode(),
}


def write(path: Path, content: bytes) -> str:
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return str(path)


def refusal(where: str) -> str:
    """The one line that reading ends with."""
    with pytest.raises(TwofoldError) as caught:
        list(read_rows(where))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def word(number: str, form: str = "a", head: str = "_", columns: int = 10) -> str:
    return "\t".join([number, form, *"____", head, *"___"][:columns]) + "\n"


@pytest.mark.parametrize("dressed", DRESSED)
@pytest.mark.parametrize("packed", ["", ".gz"])
def test_each_sentence_of_tagged_words_is_one_row(tmp_path: Path, packed: str, dressed: str) -> None:
    where = write(tmp_path / f"a.conll{packed}", DRESSED[dressed](TAGGED))
    assert list(read_rows(where)) == [
        Row(f"{where}:1", {"words": ["Ada", "Lovelace"], "tags": ["B-PER", "I-PER"]}),
        Row(f"{where}:{5 if 'blank' in dressed else 4}", {"words": ["서울", "#"], "tags": ["B-LOC", "O"]}),
    ]


def test_the_last_column_is_the_tag_and_those_between_are_numbered(tmp_path: Path) -> None:
    where = write(tmp_path / "a.conll", b"EU\tNNP\tB-NP\tB-ORG\nrejects\tVBZ\tB-VP\tO\n")
    (row,) = read_rows(where)
    assert row.values == {
        "words": ["EU", "rejects"],
        "column2": ["NNP", "VBZ"],
        "column3": ["B-NP", "B-VP"],
        "tags": ["B-ORG", "O"],
    }


@pytest.mark.parametrize("start", ["-DOCSTART-\n\n", "-DOCSTART-\tO\n", "-DOCSTART- -X- O O\n\n"])
def test_the_start_of_a_document_is_not_a_word(tmp_path: Path, start: str) -> None:
    where = write(tmp_path / "a.conll", (start + "a\tO\n" + start + "b\tO\n").encode())
    assert [row.values["words"] for row in read_rows(where)] == [["a"], ["b"]]


@pytest.mark.parametrize("dressed", DRESSED)
@pytest.mark.parametrize("packed", ["", ".gz"])
def test_each_tree_is_one_row_over_its_syntactic_words(tmp_path: Path, packed: str, dressed: str) -> None:
    where = write(tmp_path / f"a.conllu{packed}", DRESSED[dressed](TREES))
    first = {
        "words": ["vamos", "nos", "_", "3 000"],
        "lemmas": ["ir", "nosotros", "_", "3 000"],
        "upos": ["VERB", "PRON", "PUNCT", "NUM"],
        "xpos": ["V", "P", "_", "_"],
        "feats": ["Mood=Imp|Number=Plur", "Case=Acc", "_", "_"],
        "heads": [0, 1, 1, 1],
        "relations": ["root", "obj", "punct", "obl"],
        "conllu": FIRST,
    }
    second = {"words": ["네"], "lemmas": ["네"], "upos": ["INTJ"], "xpos": ["IC"], "feats": ["_"]}
    assert list(read_rows(where)) == [
        Row(f"{where}:4", first),
        Row(
            f"{where}:{13 if 'blank' in dressed else 12}",
            second | {"heads": [None], "relations": ["_"], "conllu": SECOND},
        ),
    ]


def test_the_sentences_joined_again_are_the_file(tmp_path: Path) -> None:
    where = write(tmp_path / "a.conllu", TREES.encode())
    assert "\n\n".join(row.values["conllu"] for row in read_rows(where)) + "\n" == TREES


def test_line_ends_of_other_alphabets_stay_inside_a_word(tmp_path: Path) -> None:
    odd = "a\u2028b\x0bc\x85d"
    where = write(tmp_path / "a.conllu", word("1", odd).encode())
    (row,) = read_rows(where)
    assert row.values["words"] == [odd]
    assert with_tags(row.values["conllu"], "upos", ["X"]).split("\t")[1] == odd


def test_comments_without_a_sentence_are_passed_over(tmp_path: Path) -> None:
    where = write(tmp_path / "a.conllu", f"# licence\n\n# one\n{word('1')}\n# the end\n".encode())
    assert [row.values["conllu"] for row in read_rows(where)] == ["# one\n" + word("1").rstrip("\n")]


def test_multi_word_tokens_and_empty_nodes_may_follow_one_another(tmp_path: Path) -> None:
    ids = ["0.1", "0.2", "1-2", "1", "1.1", "2", "2.1", "3-3", "3", "4-6", "4", "5", "6", "7"]
    where = write(tmp_path / "a.conllu", "".join(map(word, ids)).encode())
    (row,) = read_rows(where)
    assert len(row.values["words"]) == 7
    assert [line.split("\t")[0] for line in row.values["conllu"].split("\n")] == ids


def test_words_without_tags_are_read_to_be_tagged(tmp_path: Path) -> None:
    where = write(tmp_path / "a.conll", "Ada\nlives\n\n서울\n".encode())
    assert [row.values for row in read_rows(where)] == [{"words": ["Ada", "lives"]}, {"words": ["서울"]}]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("none.conll", "", ": holds no rows"),
        ("none.conll.gz", "\n-DOCSTART-\tO\n\n", ": holds no rows"),
        ("spaces.conll", "a O\n", ":1: only one column; a tab must stand between a word and its tag"),
        ("more.conll", "a\tO\n\nb\tX\tO\n", ":3: 3 columns, but 2 at the first word of the file"),
        ("fewer.conll", "a\tX\tO\nb\tO\n", ":2: 2 columns, but 3 at the first word of the file"),
        ("one.conll", "a\tO\nb O\n", ":2: 1 columns, but 2 at the first word of the file"),
        ("word.conll", "a\tO\n\tO\n", ":2: column 1 of 2 is blank; fill it"),
        ("space.conll.gz", "a\tO\n\u3000\tO\n", ":2: column 1 of 2 is blank; fill it"),
        ("tag.conll", "a\tO\nb\t\n", ":2: column 2 of 2 is blank; fill it"),
    ],
)
def test_a_bad_file_of_tagged_words_is_named_with_the_line(tmp_path: Path, name: str, content: str, said: str) -> None:
    where = write(tmp_path / name, content.encode())
    assert refusal(where).startswith(f"{where}{said}")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("# only a comment\n", ": holds no rows"),
        (word("1") + word("2", columns=9), ":2: 9 columns, but CoNLL-U has ten"),
        ("1 a b c d e f g h i\n", ":1: 1 columns, but CoNLL-U has ten, with one tab between two"),
        (word("1", form=""), ":1: column 2 of 10 is blank"),
        (word("2"), ":1: id '2' does not fit; here word 1, empty node 0.1 or a multi-word token from 1 may stand"),
        (word("1") + word("3"), ":2: id '3' does not fit; here word 2,"),
        (word("1") + "\n# x\n" + word("1") + "# y\n" + word("1"), ":6: id '1' does not fit; here word 2,"),
        (word("01"), ":1: id '01' does not fit; here word 1,"),
        (word("１"), ":1: id '１' does not fit; here word 1,"),
        (word("x\u2028" * 1000), ":1: id 'x\\u2028"),
        (word("1") + word("1.2"), ":2: id '1.2' does not fit; here word 2, empty node 1.1 "),
        (word("1") + word("0.1"), ":2: id '0.1' does not fit; here word 2, empty node 1.1 "),
        (word("1") + word("1.1") + word("1.1"), ":3: id '1.1' does not fit; here word 2, empty node 1.2 "),
        (word("0.1"), ":1: a sentence of empty nodes; it needs a word"),
        (word("1") + word("1-2") + word("2"), ":2: id '1-2' does not fit; here word 2,"),
        (word("2-3") + word("1"), ":1: id '2-3' does not fit; here word 1,"),
        ("# x\n" + word("1-3") + word("1") + word("2"), ":2: multi-word token '1-3' does not fit; it must end at one"),
        (word("1") + word("2-1") + word("2"), ":2: multi-word token '2-1' does not fit"),
        (word("1-") + word("1"), ":1: multi-word token '1-' does not fit"),
        (word("1-2"), ":1: multi-word token '1-2' does not fit"),
        (word("1-2") + word("1") + word("2-3") + word("2") + word("3"), ":3: multi-word token '2-3' does not fit"),
        (word("1") + word("2", head="x"), ":2: HEAD 'x' is neither _ nor a number from 0 to 2"),
        (word("1", head="2"), ":1: HEAD '2' is neither _ nor a number from 0 to 1, the last word"),
        (word("1", head="-1"), ":1: HEAD '-1' is neither"),
        (word("1", head="0.1"), ":1: HEAD '0.1' is neither"),
        (word("1", head="9" * 5000), ":1: HEAD '999"),
    ],
)
def test_a_bad_file_of_trees_is_named_with_the_line(tmp_path: Path, content: str, said: str) -> None:
    where = write(tmp_path / "a.conllu", content.encode())
    message = refusal(where)
    assert message.startswith(f"{where}{said}")
    assert len(message) < len(where) + 300


@pytest.mark.parametrize("name", ["a.conll", "a.conllu"])
def test_bytes_that_are_no_text_and_missing_files_are_named(tmp_path: Path, name: str) -> None:
    where = str(tmp_path / name)
    assert refusal(where) == f"{where}: cannot be read (No such file or directory)"
    write(tmp_path / name, b"\n\nb\xff\tO\n")
    assert refusal(where).startswith(f"{where}:3: not valid UTF-8")


@pytest.mark.parametrize(
    ("heads", "said"),
    [
        ([0], None),
        ([2, 0, 2], None),
        ([0, 1, 2, 3], None),
        ([], "has no root"),
        ([1], "has no root"),
        ([2, 1], "has no root"),
        ([0, 1, 1, 0], "has two roots (words 1 and 4)"),
        ([0, 0, 1, 0], "has 3 roots (words 1, 2 …)"),
        ([0, 1, 3], "has a cycle through word 3"),
        ([0, 3, 2, 3], "has a cycle through word 2"),
        ([0, 3], "has a head outside the sentence (3, of word 2)"),
        ([0, -1], "has a head outside the sentence (-1, of word 2)"),
    ],
)
def test_what_is_wrong_with_a_tree_is_said(heads: list[int], said: str | None) -> None:
    assert check_tree(heads) == said


def climbs(heads: list[int], word: int) -> list[int]:
    """The words above one, as many steps as there are words, with 0 once the root is passed."""
    path = []
    for _ in heads:
        word = heads[word - 1] if word else 0
        path.append(word)
    return path


def test_random_heads_are_a_tree_just_when_every_word_climbs_to_the_one_root() -> None:
    random = np.random.default_rng(1)
    said = set()
    for _ in range(4000):
        size = int(random.integers(1, 8))
        heads = [int(head) for head in random.integers(0, size + 1, size)]
        problem = check_tree(heads)
        is_tree = heads.count(0) == 1 and all(climbs(heads, word)[-1] == 0 for word in range(1, size + 1))
        assert (problem is None) == is_tree
        if problem and "cycle" in problem:
            through = int(problem.split()[-1])
            assert through in climbs(heads, through)
        said.add("a tree" if problem is None else " ".join(problem.split()[:3]))
    assert {"a tree", "has no root", "has two roots", "has a cycle"} <= said


def test_random_trees_are_trees_until_one_word_hangs_below_itself() -> None:
    random = np.random.default_rng(2)
    for size in random.integers(2, 200, 100).tolist():
        order = (random.permutation(size) + 1).tolist()
        heads = [0] * size
        for n in range(1, size):
            heads[order[n] - 1] = order[int(random.integers(n))]
        assert check_tree(heads) is None
        low = order[-1]
        high = next(above for above in (low, *climbs(heads, low)) if above != order[0] and above)
        heads[high - 1] = low
        problem = check_tree(heads)
        assert problem is not None
        assert problem.startswith("has a cycle through word ")
        assert int(problem.split()[-1]) in climbs(heads, low)


def test_a_very_deep_tree_is_checked_in_one_pass() -> None:
    size = 200_000
    assert check_tree(range(size)) is None
    assert check_tree([*range(2, size + 1), 0]) is None
    assert check_tree([0, size, *range(2, size)]) == "has a cycle through word 2"


def test_a_new_tree_changes_heads_relations_and_deps_of_words_only() -> None:
    new = with_tree(FIRST, [2, 0, 4, 2], ["a", "root", "b:c", "d"])
    before, after = ([line.split("\t") for line in text.split("\n")] for text in (FIRST, new))
    for old, line in zip(before, after, strict=True):
        if old[0].isdecimal():
            assert line[:6] + line[9:] == old[:6] + old[9:]
        else:
            assert line == old
    changed = [line[6:9] for line in after if line[0].isdecimal()]
    assert changed == [["2", "a", "_"], ["0", "root", "_"], ["4", "b:c", "_"], ["2", "d", "_"]]


def test_the_same_tree_again_removes_only_deps() -> None:
    deps = ("0:root|4.1:conj", "1:obj", "1:punct", "1:obl")
    expected = FIRST
    for old in deps:
        expected = expected.replace(f"\t{old}\t", "\t_\t")
    assert with_tree(FIRST, [0, 1, 1, 1], ["root", "obj", "punct", "obl"]) == expected


def test_new_tags_change_their_column_only() -> None:
    assert with_tags(FIRST, "upos", ["VERB", "PRON", "PUNCT", "NUM"]) == FIRST
    assert with_tags(FIRST, "xpos", ["V", "P", "_", "_"]) == FIRST
    assert with_tags(SECOND, "upos", ["X"]) == SECOND.replace("INTJ", "X")
    assert with_tags(SECOND, "xpos", ["X"]) == SECOND.replace("IC", "X")


def test_the_end_of_a_sentence_stays_as_it_is() -> None:
    windows = TREES.split("\n\n")[1].replace("\n", "\r\n") + "\r\n"
    assert with_tags(windows, "upos", ["X"]) == windows.replace("INTJ", "X")


@pytest.mark.parametrize("count", [0, 3, 5])
def test_a_wrong_number_of_values_is_refused(count: int) -> None:
    right = [0, 1, 1, 1]
    with pytest.raises(ValueError, match=f"{count} values for a sentence of 4 words"):
        with_tags(FIRST, "upos", ["X"] * count)
    with pytest.raises(ValueError, match=f"{count} values for a sentence of 4 words"):
        with_tree(FIRST, right, ["x"] * count)
    with pytest.raises(ValueError, match=f"{count} values for a sentence of 4 words"):
        with_tree(FIRST, [0] * count, ["x"] * 4)


def test_bare_words_make_a_sentence_that_reads_back(tmp_path: Path) -> None:
    words = ["#", "_", "3 000", "서울", "1-2", "-DOCSTART-"]
    where = write(tmp_path / "a.conllu", plain_conllu(words).encode())
    (row,) = read_rows(where)
    assert row.values["words"] == words
    assert row.values["heads"] == [None] * 6
    assert all(row.values[name] == ["_"] * 6 for name in ("lemmas", "upos", "xpos", "feats", "relations"))
    tree = with_tree(with_tags(plain_conllu(words), "upos", list("ABCDEF")), [0, 1, 2, 3, 4, 5], list("abcdef"))
    (row,) = read_rows(write(tmp_path / "b.conllu", tree.encode()))
    assert (row.values["upos"], row.values["heads"]) == (list("ABCDEF"), [0, 1, 2, 3, 4, 5])


@pytest.mark.parametrize("value", ["", " ", "a\tb", "a\nb", "a\r"])
def test_what_would_break_the_lines_is_never_written(value: str) -> None:
    refused = pytest.raises(TwofoldError, match="cannot stand in CoNLL-U; it is blank or holds a tab or a line end")
    with refused:
        plain_conllu(["a", value])
    with refused:
        with_tags(SECOND, "upos", [value])
    with refused:
        with_tree(SECOND, [0], [value])
