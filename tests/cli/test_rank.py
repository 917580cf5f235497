"""`twofold rank` as a user meets it: what it prints, the files it reads, cascades, and what it refuses."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests import made
from tests.commands import answer, refusal, run
from tests.conftest import decoder, encoder, small_model, write_jsonl
from tests.rankers import small_ranker
from twofold.data.tokenizer import TextTokenizer
from twofold.model import Ranker, load

KINDS = ["bi", "poly", "cross"]
TEXTS = list(dict.fromkeys(row["source"] for row in made.numbers(30, seed=5)))


def ranker(folder: Path, kind: str) -> Ranker:
    return Ranker.from_pretrained(folder / kind)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, tokenizer: TextTokenizer) -> Path:
    """A ranker of each kind with weights of its own, and `text`, a model that writes."""
    folder = tmp_path_factory.mktemp("models")
    for seed, kind in enumerate(KINDS):
        made_up = small_ranker(tokenizer, encoder("transformer"), decoder(kind), seed)
        made_up.save_pretrained(folder / kind)
    small_model(tokenizer, encoder("rnn"), decoder("attention_rnn")).save_pretrained(folder / "text")
    return folder


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"{text}\n" for text in TEXTS), encoding="utf-8")
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_one_json_object_tells_the_best_candidates(models: Path, lines: Path, kind: str) -> None:
    content = answer("rank", models / kind, "--candidates", lines, "seven hundred")
    assert list(content) == ["context", "hits", "exact", "milliseconds"]
    assert content["context"] == ["seven hundred"]
    assert content["exact"] is True
    assert content["milliseconds"] > 0
    hits = content["hits"]
    assert [list(hit) for hit in hits] == [["text", "score", "id"]] * 10
    assert [hit["text"] for hit in hits] == [TEXTS[hit["id"] - 1] for hit in hits]
    scores = ranker(models, kind).score(["seven hundred"], ranker(models, kind).prepare(TEXTS))[0]
    assert [hit["id"] - 1 for hit in hits] == scores.argsort(descending=True)[:10].tolist()
    assert [hit["score"] for hit in hits] == pytest.approx(scores.sort(descending=True).values[:10].tolist(), abs=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_explain_adds_what_makes_up_the_scores(models: Path, lines: Path, kind: str) -> None:
    arguments = ("rank", models / kind, "--candidates", lines, "-k", "2", "seven hundred", "and two")
    plain, content = answer(*arguments), answer(*arguments, "--explain")
    explanation = content.pop("explanation")
    assert content["hits"] == plain["hits"]
    for hit, candidate in zip(content["hits"], explanation["candidates"], strict=True):
        assert (candidate["text"], candidate["id"]) == (hit["text"], hit["id"])
        assert candidate["score"] == pytest.approx(hit["score"], rel=1e-5)
        assert candidate["context_influence"]["words"] == ["seven", "hundred", "and", "two"]
        assert ("parts" in candidate) == (kind == "poly")
    of_last = answer(*arguments, "--then", f"{models / 'poly'}:5", "--explain")["explanation"]["candidates"]
    assert all("codes" in candidate["parts"] for candidate in of_last)


def test_without_json_each_hit_is_a_line(models: Path, lines: Path) -> None:
    hits = answer("rank", models / "poly", "--candidates", lines, "-k", "3", "삼백")["hits"]
    shown = run("rank", models / "poly", "--candidates", lines, "-k", "3", "삼백")
    assert shown.stdout.splitlines() == [f"{hit['score']:8.3f}  {hit['id']:>8}  {hit['text']}" for hit in hits]
    assert shown.stderr == ""


def test_what_a_terminal_would_obey_is_shown_as_blanks(models: Path, tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "a.jsonl", [{"text": "red\x1b[31m\tand\nnew", "id": "x\x07"}])
    (line,) = run("rank", models / "bi", "--candidates", file, "one").stdout.splitlines()
    assert line.endswith("x   red [31m and new")
    (hit,) = answer("rank", models / "bi", "--candidates", file, "one")["hits"]
    assert (hit["text"], hit["id"]) == ("red\x1b[31m\tand\nnew", "x\x07")


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.txt", "one\n\n  \ntwo\nthree", {1: "one", 4: "two", 5: "three"}),
        ("answers", "one\r\ntwo\r\n", {1: "one", 2: "two"}),
        ("a.jsonl", '{"text": "one", "id": "a"}\n{"text": "two", "id": 7}\n', {"a": "one", 7: "two"}),
        ("b.jsonl", '{"text": "one"}\n{"text": ""}\n{"text": "two"}\n', {1: "one", 3: "two"}),
        ("c.jsonl", '{"text": "one", "title": "A", "id": 0}\n', {0: "A one"}),
        ("a.tsv", 'id\ttext\nx\t"one"\ny\ttwo\n', {"x": '"one"', "y": "two"}),
        ("a.csv", 'text,more\n"one, two",3\n', {2: "one, two"}),
    ],
)
def test_candidates_come_from_lines_and_from_tables(
    models: Path, tmp_path: Path, name: str, content: str, expected: dict[Any, str], packed: bool
) -> None:
    file = tmp_path / (f"{name}.gz" if packed else name)
    file.write_bytes(gzip.compress(content.encode()) if packed else content.encode())
    hits = answer("rank", models / "bi", "--candidates", file, "one")["hits"]
    assert {hit["id"]: hit["text"] for hit in hits} == expected
    assert len(hits) == len(expected)


@pytest.mark.parametrize(("k", "shown"), [("1", 1), ("7", 7), ("1000", len(TEXTS))])
def test_k_says_how_many_and_more_than_all_is_all(models: Path, lines: Path, k: str, shown: int) -> None:
    whole = ranker(models, "poly").rank("seven", TEXTS, len(TEXTS))
    hits = answer("rank", models / "poly", "--candidates", lines, "-k", k, "seven")["hits"]
    assert [hit["id"] - 1 for hit in hits] == [hit.id for hit in whole[:shown]]  # lines count from 1, lists from 0


def test_several_contexts_are_turns_of_one_dialogue(models: Path, lines: Path) -> None:
    content = answer("rank", models / "poly", "--candidates", lines, "one", "", "seven hundred")
    assert content["context"] == ["one", "", "seven hundred"]
    alone = answer("rank", models / "poly", "--candidates", lines, "seven hundred")
    assert [hit["score"] for hit in content["hits"]] != [hit["score"] for hit in alone["hits"]]
    ranking = ranker(models, "poly").rank(["one", "", "seven hundred"], TEXTS)
    assert [hit["score"] for hit in content["hits"]] == pytest.approx([hit.score for hit in ranking])


@pytest.mark.parametrize("kind", KINDS)
def test_equal_texts_score_the_same_and_stand_in_the_order_of_the_file(models: Path, tmp_path: Path, kind: str) -> None:
    texts = [TEXTS[number * number % 11] for number in range(400)]
    (tmp_path / "a.txt").write_text("\n".join(texts), encoding="utf-8")
    hits = answer("rank", models / kind, "--candidates", tmp_path / "a.txt", "-k", "400", "seven hundred")["hits"]
    for text in set(texts):
        same = [hit for hit in hits if hit["text"] == text]
        assert len({hit["score"] for hit in same}) == 1
        assert [hit["id"] for hit in same] == [number for number, one in enumerate(texts, start=1) if one == text]


def test_a_cascade_puts_the_best_of_one_model_in_the_order_of_another(models: Path, lines: Path) -> None:
    first, last = ranker(models, "bi"), ranker(models, "cross")
    few = first.rank("seven hundred", TEXTS, 5)
    ordered = last.rank("seven hundred", [hit.text for hit in few], 3)
    content = answer(
        "rank", models / "bi", "--candidates", lines, "-k", "3", "seven hundred", "--then", f"{models / 'cross'}:5"
    )
    assert [hit["text"] for hit in content["hits"]] == [hit.text for hit in ordered]
    assert [hit["score"] for hit in content["hits"]] == pytest.approx([hit.score for hit in ordered], abs=1e-6)
    assert all(hit["text"] == TEXTS[hit["id"] - 1] for hit in content["hits"])
    assert content["exact"] is False


def test_each_stage_of_a_cascade_sees_what_the_one_before_left(models: Path, lines: Path) -> None:
    stages = ["--then", f"{models / 'poly'}:9", "--then", f"{models / 'cross'}:4"]
    content = answer("rank", models / "bi", "--candidates", lines, "seven hundred", *stages)
    some = [hit.text for hit in ranker(models, "bi").rank("seven hundred", TEXTS, 9)]
    fewer = [hit.text for hit in ranker(models, "poly").rank("seven hundred", some, 4)]
    ordered = [hit.text for hit in ranker(models, "cross").rank("seven hundred", fewer)]
    assert [hit["text"] for hit in content["hits"]] == ordered
    assert content["exact"] is False


@pytest.mark.parametrize("depths", [[len(TEXTS)], [10_000], [len(TEXTS), 500], [len(TEXTS) - 1], [500, 20], [20, 500]])
def test_a_cascade_is_exact_only_where_every_stage_sees_all(models: Path, lines: Path, depths: list[int]) -> None:
    stages = [part for depth in depths for part in ("--then", f"{models / 'cross'}:{depth}")]
    content = answer("rank", models / "poly", "--candidates", lines, "seven hundred", *stages)
    assert content["exact"] is all(depth >= len(TEXTS) for depth in depths)
    if content["exact"]:
        alone = answer("rank", models / "cross", "--candidates", lines, "seven hundred")
        assert [hit["id"] for hit in content["hits"]] == [hit["id"] for hit in alone["hits"]]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", b"", ": holds no "),
        ("a.jsonl", b"", ": holds no "),
        ("a.txt", b"\n  \n\t\n", ": holds no rows"),
        ("a.txt", b"one\n\xff\xfe\n", ":2: not valid UTF-8"),
        ("a.jsonl", b'{"text": "one"}\n{"id": 2}\n', ":2: no 'text' here"),
        ("a.jsonl", b'{"text": "one"}\n{"text": ["two"]}\n', ":2: no 'text' here"),
        ("a.jsonl", b'{"text": "one"}\n{"text": "\\ud83d"}\n', ":2: 'text' holds half a character"),
        ("a.jsonl", b'{"text": "one", "title": "\\ud83d"}\n', ":1: 'text' holds half a character"),
        ("a.jsonl", b'"one"\n', ":1: not a JSON object"),
        ("a.tsv", b"id\tanswer\n1\tone\n", ":2: no 'text' here"),
        ("a.tsv", b"id\ttext\n1\tone\n\n1\ttwo\n", ":4: the id '1' is that of "),
        ("a.gz", b"one\n", ": cannot be read"),
        ("none.txt", None, ": cannot be read"),
    ],
)
def test_candidates_that_cannot_be_read_are_named_with_their_line(
    models: Path, tmp_path: Path, name: str, content: bytes | None, said: str
) -> None:
    file = tmp_path / name
    if content is not None:
        file.write_bytes(content)
    assert refusal("rank", models / "bi", "--candidates", file, "one").startswith(f"{file}{said}")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "texts",
    [
        ["one"],
        ["👩‍👩‍👧 😀", "один", "\u202eone"],
        ["\x00", "\x07\x1b[31m", "one\x0ctwo"],
        ["one " * 250_000, "x" * 1_000_000],
    ],
    ids=["one-candidate", "emoji", "control-characters", "a-megabyte"],
)
def test_candidates_of_any_text_are_ranked(models: Path, tmp_path: Path, kind: str, texts: list[str]) -> None:
    file = write_jsonl(tmp_path / "a.jsonl", [{"text": text} for text in texts])
    hits = answer("rank", models / kind, "--candidates", file, "seven hundred")["hits"]
    assert sorted(hit["text"] for hit in hits) == sorted(texts)


@pytest.mark.parametrize("kind", KINDS)
def test_of_ten_thousand_turns_the_newest_stay(models: Path, tmp_path: Path, kind: str) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("one\ntwo\n")
    turns = [f"one {number}" for number in range(10_000)]
    whole = answer("rank", models / kind, "--candidates", lines, *turns)
    assert whole["context"] == turns
    newest = answer("rank", models / kind, "--candidates", lines, *turns[-40:])
    assert whole["hits"] == newest["hits"]
    other = answer("rank", models / kind, "--candidates", lines, *turns[:-1], "seven")
    assert whole["hits"] != other["hits"]


@pytest.mark.parametrize("context", [[""], [" \t\n"], ["", "  "], ["\udcff"]])
def test_a_context_without_words_is_one_line(models: Path, lines: Path, context: list[str]) -> None:
    assert refusal("rank", models / "bi", "--candidates", lines, *context).startswith("the context: ")


def test_a_context_that_no_token_is_made_of_is_ranked_all_the_same(models: Path, lines: Path) -> None:
    assert len(answer("rank", models / "poly", "--candidates", lines, "\u200b\x01")["hits"]) == 10


def test_models_of_another_kind_are_named_with_what_would_do(models: Path, lines: Path) -> None:
    said = refusal("rank", models / "text", "--candidates", lines, "one")
    assert said.startswith(f"{models / 'text'}: does not rank candidates")
    said = refusal("rank", models / "bi", "--candidates", lines, "one", "--then", f"{models / 'text'}:5")
    assert said.startswith(f"{models / 'text'}: does not rank candidates")
    for kind in KINDS:
        said = refusal("predict", models / kind, "one")
        assert said == f"{models / kind}: ranks candidates and writes no text; use `twofold rank`"


@pytest.mark.parametrize("name", ["defualt", "/none/of/these", "./runs/none", "x" * 5000])
def test_a_model_that_is_not_there_is_one_line(models: Path, lines: Path, name: str) -> None:
    assert refusal("rank", name, "--candidates", lines, "one").startswith(f"{Path(name)}: "[:300])
    assert refusal("rank", models / "bi", "--candidates", lines, "one", "--then", f"{name}:3").startswith(
        str(Path(name))[:300]
    )


def test_a_missing_folder_beside_others_is_not_asked_of_the_hub(
    models: Path, lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(models.parent)
    monkeypatch.setattr(load, "zero_shot", lambda name: pytest.fail(f"asked for {name}"))
    name = f"{models.name}/ploy"
    assert refusal("rank", name, "--candidates", lines, "one").startswith(f"{name}: no such model")


def test_a_model_whose_weights_are_not_numbers_is_one_line(models: Path, lines: Path, tmp_path: Path) -> None:
    broken = ranker(models, "bi")
    next(broken.encoder.parameters()).data.fill_(float("nan"))
    broken.save_pretrained(tmp_path / "broken")
    assert refusal("rank", tmp_path / "broken", "--candidates", lines, "one").startswith("the vectors are not numbers")


@pytest.mark.parametrize(
    "wrong",
    [
        *(
            ["--then", stage]
            for stage in ("model", "model:", ":5", "model:0", "model:-1", "model:five", "model:1.5", "")
        ),
        *(["-k", number] for number in ("0", "-1", "some")),
        ["--nonsense"],
    ],
)
def test_wrong_usage_ends_with_status_2(models: Path, lines: Path, wrong: list[str]) -> None:
    assert wrong[0] in refusal("rank", models / "bi", "--candidates", lines, "one", *wrong, status=2)


def test_a_context_and_candidates_must_be_given(models: Path, lines: Path) -> None:
    assert "CONTEXT" in refusal("rank", models / "bi", "--candidates", lines, status=2)
    assert "--candidates" in refusal("rank", models / "bi", "one", status=2)


@pytest.mark.parametrize(
    ("stdin", "texts"),
    [
        ("one\n\ntwo\nthree", {1: "one", 3: "two", 4: "three"}),
        ('{"text": "one", "id": "a"}\n{"text": "two"}\n', {"a": "one", 2: "two"}),
        ("삼백\n", {1: "삼백"}),
    ],
)
def test_candidates_come_from_standard_input(models: Path, stdin: str, texts: dict[Any, str]) -> None:
    hits = answer("rank", models / "bi", "--candidates", "-", "one", stdin=stdin)["hits"]
    assert {hit["id"]: hit["text"] for hit in hits} == texts


def test_standard_input_without_candidates_is_one_line(models: Path) -> None:
    result = run("rank", models / "bi", "--candidates", "-", "one", stdin="")
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert "standard input.txt: holds no rows" in line


@pytest.mark.parametrize("context", ["-5 degrees", "-", "--five"])
def test_an_input_that_begins_with_a_minus_sign_stands_after_two(models: Path, lines: Path, context: str) -> None:
    content = json.loads(run("rank", models / "bi", "--candidates", lines, "--json", "--", context).stdout)
    assert content["context"] == [context]


@pytest.mark.parametrize("context", ["-5 degrees", "-five", "--five degrees"])
def test_an_input_taken_for_an_option_is_told_how_to_be_given(models: Path, lines: Path, context: str) -> None:
    said = refusal("rank", models / "bi", "--candidates", lines, context, status=2)
    assert said.endswith("; put -- before an input that begins with a minus sign")
    assert "put --" not in refusal("rank", models / "bi", "--candidatez", lines, "one", status=2)
