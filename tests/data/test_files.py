"""Every kind of file gives the same rows, and a bad one gives a line that says where it is bad."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from twofold.data.files import Row, Sources, fingerprint, read_rows
from twofold.errors import TwofoldError

ROWS = [{"source": "하나, 둘", "target": "1 2"}, {"source": "three", "target": "3"}]
CONTENT = {
    "rows.jsonl": "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS),
    "rows.tsv": "source\ttarget\n하나, 둘\t1 2\nthree\t3\n",
    "rows.csv": 'source,target\n"하나, 둘",1 2\nthree,3\n',
}
DRESSED = {
    "as it is": lambda text: text.encode(),
    "after a byte order mark": lambda text: b"\xef\xbb\xbf" + text.encode(),
    "with the line ends of Windows": lambda text: text.replace("\n", "\r\n").encode(),
    "without a last line end": lambda text: text.rstrip("\n").encode(),
}


def write(path: Path, content: bytes) -> str:
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return str(path)


def refusal(where: Sources) -> str:
    """The one line that reading ends with."""
    with pytest.raises(TwofoldError) as caught:
        list(read_rows(where))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("dressed", DRESSED)
@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("name", CONTENT)
def test_every_kind_of_file_gives_the_same_rows(tmp_path: Path, name: str, packed: str, dressed: str) -> None:
    where = write(tmp_path / f"{name}{packed}", DRESSED[dressed](CONTENT[name]))
    first = 1 if "jsonl" in name else 2
    assert list(read_rows(where)) == [Row(f"{where}:{first + n}", row) for n, row in enumerate(ROWS)]


@pytest.mark.parametrize("name", ["lines.txt", "lines.txt.gz", "lines", "lines.de"])
def test_plain_text_is_one_column_called_text(tmp_path: Path, name: str) -> None:
    where = write(tmp_path / name, "\ufeffeins\r\n 둘 \n\nvier".encode())
    texts = {"eins": 1, " 둘 ": 2, "vier": 4}  # the blank line holds no text
    assert list(read_rows(where)) == [Row(f"{where}:{n}", {"text": text}) for text, n in texts.items()]
    assert [row.line for row in read_rows(where)] == [1, 2, 4]


def test_a_row_knows_the_line_where_it_begins(tmp_path: Path) -> None:
    for name, content, lines in (
        ("a.jsonl", '\n{"text": "a"}\n\n{"text": "b"}\n', [2, 4]),
        ("a.tsv", "text\na\n\nb\n", [2, 4]),
        ("a.csv", 'text,n\n"a\nb",1\n\n"c\n\nd",2\ne,3\n', [2, 5, 8]),
    ):
        path = tmp_path / name
        path.write_text(content)
        rows = list(read_rows(str(path)))
        assert [row.line for row in rows] == lines
        assert [row.place for row in rows] == [f"{path}:{line}" for line in lines]


def test_blank_lines_are_passed_over_but_counted(tmp_path: Path) -> None:
    for name, content in {"a.jsonl": '\n{"a": "b"}\n \n{"a": "c"}\n', "a.tsv": "a\n\nb\n\n\nc\n"}.items():
        where = write(tmp_path / name, content.encode())
        first, second = (2, 4) if name == "a.jsonl" else (3, 6)
        assert list(read_rows(where)) == [Row(f"{where}:{first}", {"a": "b"}), Row(f"{where}:{second}", {"a": "c"})]


def test_a_quoted_csv_field_may_hold_commas_quotes_and_line_ends(tmp_path: Path) -> None:
    where = write(tmp_path / "a.csv", b'source,target\n"one,\ntwo ""and""\nthree",1\nfour,4\n')
    rows = list(read_rows(where))
    assert [row.values["source"] for row in rows] == ['one,\ntwo "and"\nthree', "four"]
    assert rows[1].place == f"{where}:5"


def test_a_csv_row_of_several_lines_is_named_by_its_first(tmp_path: Path) -> None:
    where = write(tmp_path / "a.csv", b'source,target\none,1\n"two\nthree\nfour",234\n')
    assert [row.place for row in read_rows(where)] == [f"{where}:2", f"{where}:3"]


def test_quotation_marks_mean_nothing_in_a_tsv_file(tmp_path: Path) -> None:
    where = write(tmp_path / "a.tsv", b'source\ttarget\n"one\t""\n')
    assert [row.values for row in read_rows(where)] == [{"source": '"one', "target": '""'}]


@pytest.mark.parametrize("packed", ["", ".gz"])
def test_plain_text_files_are_read_side_by_side(tmp_path: Path, packed: str) -> None:
    de, en = write(tmp_path / f"a.de{packed}", b"eins\r\nzwei\r\n"), write(tmp_path / f"a.en{packed}", b"one\ntwo")
    values = [{"de": "eins", "en": "one"}, {"de": "zwei", "en": "two"}]
    assert list(read_rows({"de": de, "en": en})) == [Row(f"{de}:{n}", row) for n, row in enumerate(values, start=1)]


@pytest.mark.parametrize("short", ["de", "en"])
def test_files_side_by_side_must_have_the_same_lines(tmp_path: Path, short: str) -> None:
    paths = {name: write(tmp_path / name, b"a\nb\n" if name == short else b"a\nb\nc\n") for name in ("de", "en")}
    longer = next(path for name, path in paths.items() if name != short)
    assert refusal(paths).startswith(f"{paths[short]}: ends before {longer}")


def test_several_files_are_read_one_after_the_other(tmp_path: Path) -> None:
    first, second = (write(tmp_path / name, CONTENT[name].encode()) for name in ("rows.tsv", "rows.jsonl"))
    both = list(read_rows((first, second)))
    assert both == [*read_rows(first), *read_rows(second)]
    assert fingerprint((first, second)) != fingerprint((second, first)) != fingerprint(second)


def test_of_several_files_the_one_without_rows_is_named(tmp_path: Path) -> None:
    good, empty = write(tmp_path / "a.txt", b"one"), write(tmp_path / "b.txt", b"")
    assert refusal((good, empty)) == f"{empty}: holds no rows"


def test_a_folder_of_hugging_face_datasets_gives_its_rows(tmp_path: Path) -> None:
    import datasets  # type: ignore[import-untyped]

    rows = datasets.Dataset.from_list(ROWS)
    single, several = tmp_path / "one", tmp_path / "several"
    rows.save_to_disk(str(single))
    datasets.DatasetDict({"train": rows, "test": rows}).save_to_disk(str(several))
    assert list(read_rows(str(single))) == [Row(f"{single}:{n}", row) for n, row in enumerate(ROWS, start=1)]
    assert list(read_rows(str(several / "train"))) == [
        Row(f"{several / 'train'}:{n}", row) for n, row in enumerate(ROWS, start=1)
    ]
    said = refusal(str(several))
    assert said.startswith(f"{several}: holds several splits")
    assert all(str(several / split) in said for split in ("train", "test"))


def test_another_folder_is_refused(tmp_path: Path) -> None:
    assert refusal(str(tmp_path)).startswith(f"{tmp_path}: a folder, but not one")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("empty.jsonl", b"", ": holds no rows"),
        ("empty.txt.gz", b"", ": holds no rows"),
        ("blank.jsonl", b"\n \n", ": holds no rows"),
        ("header.tsv", b"source\ttarget\n", ": holds no rows"),
        ("half.jsonl", b'{"source": "a"}\n{"source":\n', ":2: not JSON ("),
        ("deep.jsonl", b"[" * 100_000 + b"\n", ":1: not JSON ("),
        ("list.jsonl", b'{"source": "a"}\n\n["a"]\n', ":3: not a JSON object"),
        ("bytes.txt", b"a\nb\xff\n", ":2: not valid UTF-8 (invalid start byte at byte 1)"),
        ("bytes.jsonl.gz", b'{"source": "a"}\n{"source": "\xe3\x81"}\n', ":2: not valid UTF-8"),
        ("bytes.tsv", b"source\na\nb\nc\xff\n", ":4: not valid UTF-8"),
        ("short.tsv", b"source\ttarget\na\tb\na\n", ":3: 1 fields, but 2 columns (source, target)"),
        ("long.csv", b"source,target\na,b,c\n", ":2: 3 fields, but 2 columns (source, target)"),
        ("twice.csv", b"source,source\na,b\n", ":1: a column name stands twice in source, source"),
        ("open.csv", b'source,target\na,b\n"c,d\n', ":3: not csv ("),
        ("quote.v2.csv", b'source\n"a"b\n', ":2: not csv ("),
    ],
)
def test_a_bad_file_is_named_with_the_line(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    where = write(tmp_path / name, content)
    assert refusal(where).startswith(f"{where}{said}")


@pytest.mark.parametrize("name", ["rows.jsonl.gz", "rows.txt.gz", "rows.csv.gz"])
def test_a_damaged_gz_file_is_named(tmp_path: Path, name: str) -> None:
    whole = gzip.compress(b"a line of text\n" * 1000)
    for content in (whole[: len(whole) // 2], whole[:-5], b"never packed"):
        (tmp_path / name).write_bytes(content)
        assert refusal(str(tmp_path / name)).startswith(str(tmp_path / name))


@pytest.mark.parametrize("name", ["none.jsonl", "none.tsv", "none.csv.gz", "none.txt"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    where = str(tmp_path / name)
    assert refusal(where) == f"{where}: cannot be read (No such file or directory)"
    with pytest.raises(TwofoldError, match="No such file"):
        fingerprint(where)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"source": "a", "x": "b"}, "no 'target' here; this row has source, x"),
        ({"target": None}, "'target' is null; fill it or remove the row"),
        ({"target": 3}, "'target' is neither a text nor a list of texts, but 3"),
        ({"target": ["a", 3]}, "'target' is neither a text nor a list of texts, but ['a', 3]"),
        ({"target": " \t"}, "'target' is empty; fill it or remove the row"),
        ({"target": []}, "'target' is empty; fill it or remove the row"),
        ({"target": ["", " "]}, "'target' is empty; fill it or remove the row"),
    ],
)
def test_a_row_without_its_text_is_named(values: dict[str, object], said: str) -> None:
    with pytest.raises(TwofoldError) as caught:
        Row("rows.jsonl:7", values).text("target")
    assert str(caught.value) == f"rows.jsonl:7: {said}"


def test_a_dialogue_is_a_list_of_turns(tmp_path: Path) -> None:
    where = write(tmp_path / "a.jsonl", b'{"context": ["hello?", "yes"]}\n')
    assert [row.text("context") for row in read_rows(where)] == [["hello?", "yes"]]


def test_a_fingerprint_follows_the_content_and_not_the_name(tmp_path: Path) -> None:
    first, same = write(tmp_path / "one.txt", b"a\n"), write(tmp_path / "same.txt", b"a\n")
    other, kind = write(tmp_path / "other.txt", b"b\n"), write(tmp_path / "one.tsv", b"a\n")
    assert fingerprint(first) == fingerprint(same)
    assert len({fingerprint(first), fingerprint(other), fingerprint(kind)}) == 3
    assert fingerprint({"source": first, "target": other}) != fingerprint({"source": other, "target": first})
