"""Corpora in their published form give rows of the uniform form, and a bad file gives a line that says where."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path
from typing import Any

import pytest

from twofold.data.corpora import corpus_names, read_corpus
from twofold.data.files import Row
from twofold.errors import TwofoldError

TRAIN = ["Context", "Utterance", "Label"]
RANKING = ["Context", "Ground Truth Utterance", *(f"Distractor_{n}" for n in range(9))]
CONTEXT = "the lamp is green __eou__ is that bad ? __eou__ __eot__ since when ? __eou__ __eot__ "
TURNS = ["the lamp is green is that bad ?", "since when ?"]

EPISODES = """\
1 your persona: i paint doors.
2 partner's persona: i sell kites.
3 your persona: i own two geese.
4 what do you do ?\ti paint doors .\t\tnothing .|who knows ?|i paint doors .
5 any pets ?\tgeese .\t\tgeese .|a boat .
1 your persona: i bake.
2 is it warm ?\tvery .\t\tno .|very .
"""


def table(header: list[str], *rows: list[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows([header, *rows])
    return text.getvalue().encode()


def write(path: Path, content: bytes) -> str:
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return str(path)


def values(form: str, path: Path, content: bytes) -> list[dict[str, Any]]:
    return [dict(row.values) for row in read_corpus(form, write(path, content))]


def refusal(form: str, where: str) -> str:
    """The one line that reading ends with."""
    with pytest.raises(TwofoldError) as caught:
        list(read_corpus(form, where))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", ["train.csv", "train.csv.gz"])
def test_right_pairs_of_ubuntu_become_pairs_and_wrong_ones_are_left_out(tmp_path: Path, name: str) -> None:
    rows = [[CONTEXT, "since noon __eou__", "1"], [CONTEXT, "buy a goat __eou__", "0"], ["hey", "ho", "1"]]
    where = write(tmp_path / name, table(TRAIN, *rows))
    assert list(read_corpus("ubuntu_v2", where)) == [
        Row(f"{where}:2", {"context": TURNS, "response": "since noon"}),
        Row(f"{where}:4", {"context": ["hey"], "response": "ho"}),
    ]
    assert list(read_corpus("ubuntu_v2", Path(where))) == list(read_corpus("ubuntu_v2", where))


def test_labels_of_ubuntu_may_have_a_decimal_point(tmp_path: Path) -> None:
    content = table(TRAIN, ["a __eou__ __eot__", "b", "0.0"], ["c __eou__ __eot__", "d", "1.0"])
    assert values("ubuntu_v2", tmp_path / "train.csv", content) == [{"context": ["c"], "response": "d"}]


@pytest.mark.parametrize("name", ["valid.csv", "test.csv.gz"])
def test_the_ground_truth_of_ubuntu_is_the_first_candidate(tmp_path: Path, name: str) -> None:
    wrong = [f"goat {n}" for n in range(9)]
    content = table(RANKING, [CONTEXT, "since __eou__ noon __eou__", *(f"{text} __eou__" for text in wrong)])
    where = write(tmp_path / name, content)
    assert list(read_corpus("ubuntu_v2", where)) == [
        Row(f"{where}:2", {"context": TURNS, "candidates": ["since noon", *wrong], "label": 0})
    ]


def test_distractors_of_ubuntu_may_be_fewer_and_in_any_order(tmp_path: Path) -> None:
    header = ["Distractor_1", "Ground Truth Utterance", "Context", "Distractor_0"]
    rows = values("ubuntu_v2", tmp_path / "valid.csv", table(header, ["two", "right", "hey", "one"]))
    assert rows == [{"context": ["hey"], "candidates": ["right", "one", "two"], "label": 0}]


def test_empty_turns_and_utterances_of_ubuntu_are_dropped(tmp_path: Path) -> None:
    context = " __eou__ __eot__ a __eou__  __eou__ b __eou__ __eot__ __eot__"
    rows = values("ubuntu_v2", tmp_path / "train.csv", table(TRAIN, [context, "__eou__ c __eou__ __eot__ d", "1"]))
    assert rows == [{"context": ["a b"], "response": "c d"}]


def test_a_pair_of_ubuntu_with_an_empty_side_is_left_out_but_a_ranking_row_keeps_every_candidate(
    tmp_path: Path,
) -> None:
    pairs = table(TRAIN, ["a", " __eou__", "1"], [" __eou__ __eot__", "b", "1"], ["c", "d", "1"])
    assert values("ubuntu_v2", tmp_path / "train.csv", pairs) == [{"context": ["c"], "response": "d"}]
    ranking = table(RANKING[:4], ["a", "b __eou__", "__eou__", "c"])
    assert [row["candidates"] for row in values("ubuntu_v2", tmp_path / "test.csv", ranking)] == [["b", "", "c"]]


def test_a_field_of_ubuntu_may_run_over_several_lines(tmp_path: Path) -> None:
    content = table(TRAIN, ["one,\ntwo __eou__ __eot__", 'the "third"\nline', "1"], ["four", "five", "1"])
    where = write(tmp_path / "train.csv", content)
    assert list(read_corpus("ubuntu_v2", where)) == [
        Row(f"{where}:2", {"context": ["one,\ntwo"], "response": 'the "third"\nline'}),
        Row(f"{where}:5", {"context": ["four"], "response": "five"}),
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", ": holds no rows to use; give a csv file of the Ubuntu Dialogue Corpus V2"),
        (table(TRAIN), ": holds no rows to use"),
        (table(TRAIN, ["a", "b", "0"]), ": holds no rows to use"),
        (
            table(["Context", "Utterance"], ["a", "b"]),
            ":1: no column 'Label' among Context, Utterance; train.csv needs",
        ),
        (table(["context", "Utterance", "Label"], ["a", "b", "1"]), ":1: no column 'Context' among context, Utterance"),
        (table(["Con\ntext"], ["a"]), ":1: no column 'Context' among Con\\ntext; "),
        (table(RANKING[:2], ["a", "b"]), ":1: no column 'Distractor_0' among"),
        (table([RANKING[0], *RANKING[2:]], ["a"] * 10), ":1: no column 'Ground Truth Utterance' among"),
        (table([*RANKING[:3], RANKING[4]], ["a"] * 4), ":1: no column 'Distractor_1' among"),
        (table(TRAIN, ["a", "b", "1"], ["c", "d", "2"]), ":3: the label is '2'; write 1 for a right pair, 0 for a"),
        (table(TRAIN, ["a", "b", ""]), ":2: the label is ''; write 1"),
        (table(TRAIN, ["a", "b", "1\n" * 99]), ":2: the label is '1\\n1"),
        (table(TRAIN, ["a", "b", "1"], ["c", "d"]), ":3: 2 fields, but 3 columns (Context, Utterance, Label)"),
        (table(TRAIN, ["a", "b", "1"]) + b"c\xff,d,1\n", ":3: not valid UTF-8 (invalid start byte at byte 1)"),
        (table(TRAIN) + b'"a,b,1\n', ":2: not csv ("),
    ],
)
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_a_bad_file_of_ubuntu_is_named_with_the_line(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    where = write(tmp_path / name, content)
    assert refusal("ubuntu_v2", where).startswith(f"{where}{said}")


@pytest.mark.parametrize("name", ["train_both_original.txt", "valid_both_original.txt.gz"])
def test_the_history_of_convai2_grows_and_each_episode_starts_anew(tmp_path: Path, name: str) -> None:
    where = write(tmp_path / name, EPISODES.encode())
    persona = ["i paint doors.", "i own two geese."]
    first, answer, second = "what do you do ?", "i paint doors .", "any pets ?"
    three, two = ["nothing .", "who knows ?", answer], ["geese .", "a boat ."]
    warm, baker = ["is it warm ?"], ["i bake."]
    assert list(read_corpus("convai2", where)) == [
        Row(f"{where}:4", {"context": [first], "candidates": three, "label": 2, "persona": persona}),
        Row(f"{where}:5", {"context": [first, answer, second], "candidates": two, "label": 0, "persona": persona}),
        Row(f"{where}:7", {"context": warm, "candidates": ["no .", "very ."], "label": 1, "persona": baker}),
    ]


def test_rows_of_convai2_do_not_change_after_they_were_given(tmp_path: Path) -> None:
    rows = read_corpus("convai2", write(tmp_path / "a.txt", EPISODES.encode()))
    first = next(rows)
    assert len(list(rows)) == 2
    assert first.values["context"] == ["what do you do ?"]


@pytest.mark.parametrize("tail", ["", "\t\t"])
def test_rows_of_convai2_without_candidates_become_pairs(tmp_path: Path, tail: str) -> None:
    content = f"1 any news ?\tnone .{tail}\n\n2 good .\tyes .{tail}\n".replace("\n", "\r\n")
    assert values("convai2", tmp_path / "train_none_original_no_cands.txt", content.encode()) == [
        {"context": ["any news ?"], "response": "none .", "persona": []},
        {"context": ["any news ?", "none .", "good ."], "response": "yes .", "persona": []},
    ]


def test_silence_in_convai2_is_no_turn_and_the_persona_stands_in_for_it(tmp_path: Path) -> None:
    content = "1 your persona: i bake.\n2 __SILENCE__\thello .\t\tbye .|hello .\n3 hi .\tbread ?\t\tno .|bread ?\n"
    rows = values("convai2", tmp_path / "train_self_original.txt", content.encode())
    assert [row["context"] for row in rows] == [["i bake."], ["hello .", "hi ."]]
    assert [row["persona"] for row in rows] == [["i bake."], ["i bake."]]


def test_silence_in_convai2_without_a_persona_is_left_out_but_its_response_is_history(tmp_path: Path) -> None:
    content = "1 partner's persona: i sell kites.\n2 __SILENCE__\thello .\t\tbye .|hello .\n3 hi .\tbread ?\n"
    rows = values("convai2", tmp_path / "train_other_original.txt", content.encode())
    assert rows == [{"context": ["hello .", "hi ."], "response": "bread ?", "persona": []}]


def test_the_last_of_equal_candidates_of_convai2_is_the_right_one(tmp_path: Path) -> None:
    rows = values("convai2", tmp_path / "a.txt", b"1 any news ?\tnone .\t\tnone .|rain .| none . |sun .\n")
    assert rows[0]["candidates"] == ["none .", "rain .", "none .", "sun ."]
    assert rows[0]["label"] == 2


def test_a_text_of_convai2_may_speak_of_a_persona(tmp_path: Path) -> None:
    rows = values("convai2", tmp_path / "a.txt", b"1 your persona: what is it ?\ta baker .\n")
    assert rows == [{"context": ["your persona: what is it ?"], "response": "a baker .", "persona": []}]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", ": holds no rows to use; give a text file of ConvAI2"),
        (b"1 your persona: i bake.\n", ": holds no rows to use"),
        (b"1 a\tb\nc\td\n", ":2: begins with 'c\\td'; begin it with its number and a space"),
        (b"1\ta\tb\n", ":1: begins with '1\\ta\\tb'; begin it with its number"),
        (b"9" * 5000 + b" a\tb\n", ":1: begins with '9999"),
        (b"3 a\tb\n", ":1: number 3 comes first; number an episode upwards from 1"),
        (b"0 a\tb\n", ":1: number 0 comes first"),
        (b"1 a\tb\n2 c\td\n2 e\tf\n", ":3: number 2 comes after 2; number an episode upwards from 1"),
        (b"1 a\tb\n2 c\n", ":2: 1 fields between tabs; give a text and a response, or"),
        (b"1 a\tb\tc|b\n", ":1: 3 fields between tabs"),
        (b"1 a\tb\t\tc|b\td\n", ":1: 5 fields between tabs"),
        (b"1 a\tb\n2 c\td\t\te|f\n", ":2: the response 'd' is not among its 2 candidates; add it to them"),
        (b"1 __SILENCE__\td\t\te|f\n", ":1: the response 'd' is not among its 2 candidates"),
        (b"1 a\tb\n2 c\xff\td\n", ":2: not valid UTF-8 (invalid start byte at byte 3)"),
    ],
)
@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_a_bad_file_of_convai2_is_named_with_the_line(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    where = write(tmp_path / name, content)
    assert refusal("convai2", where).startswith(f"{where}{said}")


@pytest.mark.parametrize("form", corpus_names())
@pytest.mark.parametrize("name", ["none.csv", "none.txt.gz"])
def test_a_missing_published_file_is_named(tmp_path: Path, form: str, name: str) -> None:
    where = str(tmp_path / name)
    assert refusal(form, where) == f"{where}: cannot be read (No such file or directory)"
