"""Labels, pairs, tags and trees from the command line: what is shown, what is written, and how they are judged."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

import twofold
from tests.cli.text_models import CONLLU, train_models, write_recipe
from tests.commands import answer, refusal, run
from tests.conftest import write_jsonl
from tests.texts import COLORS
from twofold.data.conll import check_tree
from twofold.data.files import read_rows

HEAD, DEPREL, DEPS, UPOS = 6, 7, 8, 3
"""Columns of CoNLL-U."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_models(tmp_path_factory.mktemp("models"))


def test_a_label_is_shown_with_its_probability_and_the_others(models: Path) -> None:
    predictions = answer("predict", models / "label", "the red boat", "noon")["predictions"]
    assert [one["input"] for one in predictions] == ["the red boat", "noon"]
    for prediction in predictions:
        shares = {
            prediction["output"]: prediction["score"],
            **{other["output"]: other["score"] for other in prediction["alternatives"]},
        }
        assert shares.keys() == set(COLORS)
        assert sum(shares.values()) == pytest.approx(1, abs=1e-5)
        assert prediction["score"] == max(shares.values())
    lines = run("predict", models / "label", "the red boat").stdout.splitlines()
    assert [line.split()[1] for line in lines] == [
        predictions[0]["output"],
        *(o["output"] for o in predictions[0]["alternatives"]),
    ]


def test_two_texts_are_given_with_a_tab_or_in_a_file(models: Path, tmp_path: Path) -> None:
    (first,) = answer("predict", models / "pair", "the old\tboat was")["predictions"]
    assert isinstance(first["output"], float)
    (tmp_path / "lines.txt").write_text("the old\tboat was\nat noon\tat noon\n")
    (tmp_path / "rows.tsv").write_text("one\tother\tscore\nthe old\tboat was\t0\nat noon\tat noon\t2\n")
    by_line, by_column = (
        answer("predict", models / "pair", "--file", tmp_path / name)["predictions"]
        for name in ("lines.txt", "rows.tsv")
    )
    assert [one["output"] for one in by_line] == [one["output"] for one in by_column]
    assert by_line[0]["output"] == pytest.approx(first["output"], abs=1e-5)
    assert by_column[1]["input"] == ["at noon", "at noon"]


def test_a_pair_may_have_a_column_called_text(tmp_path: Path) -> None:
    rows = write_jsonl(tmp_path / "rows.jsonl", [{"text": "at noon", "reply": "seen", "y": n % 2} for n in range(6)])
    made = write_recipe(tmp_path, rows, {"source": ["text", "reply"], "target": "y"}, {"kind": "label"})
    assert run("train", made, "--out", tmp_path / "run").exit_code == 0
    predictions = answer("predict", tmp_path / "run", "--file", rows)["predictions"]
    assert [one["input"] for one in predictions] == [["at noon", "seen"]] * 6


def test_tags_and_trees_are_shown_word_by_word(models: Path) -> None:
    (tags,) = answer("predict", models / "tags", "the red boat")["predictions"]
    assert tags["output"]["words"] == ["the", "red", "boat"]
    assert len(tags["output"]["tags"]) == 3
    (tree,) = answer("predict", models / "tree", "the red boat")["predictions"]
    assert check_tree(tree["output"]["heads"]) is None
    shown = [run("predict", models / name, "the red boat").stdout.split()[1:] for name in ("tags", "tree")]
    assert shown[0] == [f"{word}/{tag}" for word, tag in zip(*tags["output"].values(), strict=True)]
    assert shown[1] == [f"{word}/{head}/{name}" for word, head, name in zip(*tree["output"].values(), strict=True)]


def cells(text: str) -> list[list[str]]:
    return [line.split("\t") for line in text.splitlines()]


def test_a_parsed_file_keeps_all_but_its_trees(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.conllu"
    predictions = answer("predict", models / "parse", "--file", models / "some.conllu", "--conllu", out)["predictions"]
    before, after = cells(CONLLU), cells(out.read_text(encoding="utf-8"))
    assert len(before) == len(after)
    words = iter(
        [(h, r) for one in predictions for h, r in zip(one["output"]["heads"], one["output"]["relations"], strict=True)]
    )
    for old, new in zip(before, after, strict=True):
        if old[0].isdecimal():
            head, relation = next(words)
            assert (new[HEAD], new[DEPREL], new[DEPS]) == (str(head), relation, "_")
            old, new = (
                [cell for place, cell in enumerate(line) if place not in (HEAD, DEPREL, DEPS)] for line in (old, new)
            )
        assert old == new  # comments, multi-word tokens and empty nodes too
    assert next(words, None) is None
    assert [row.values["heads"] for row in read_rows(str(out))] == [one["output"]["heads"] for one in predictions]
    assert answer("evaluate", models / "parse", out)["metrics"]["las"] == 1.0


def test_a_tagged_file_keeps_all_but_its_tags(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.conllu"
    predictions = answer("predict", models / "upos", "--file", models / "some.conllu", "--conllu", out)["predictions"]
    tags = [tag for one in predictions for tag in one["output"]["tags"]]
    before, after = cells(CONLLU), cells(out.read_text(encoding="utf-8"))
    assert [line[UPOS] for line in after if line[0].isdecimal()] == tags
    for lines in (before, after):
        for line in lines:
            line[UPOS : UPOS + 1] = [] if line[0].isdecimal() else line[UPOS : UPOS + 1]
    assert before == after


def test_a_sentence_that_is_given_becomes_conllu(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.conllu"
    (prediction,) = answer("predict", models / "parse", "Dogs bark", "--conllu", out)["predictions"]
    (row,) = read_rows(str(out))
    assert row.values["words"] == ["Dogs", "bark"]
    assert row.values["heads"] == prediction["output"]["heads"]
    packed = tmp_path / "out.conllu.gz"
    answer("predict", models / "parse", "Dogs bark", "--conllu", packed)
    assert gzip.decompress(packed.read_bytes()) == out.read_bytes()


@pytest.mark.parametrize("model", ["label", "pair", "tags"])
def test_what_is_no_tree_and_no_part_of_speech_is_not_written_as_conllu(
    models: Path, tmp_path: Path, model: str
) -> None:
    said = refusal("predict", models / model, "the\tred", "--conllu", tmp_path / "out.conllu")
    assert said == "--conllu: this decoder gives neither trees nor the columns upos or xpos; leave it out"
    assert not (tmp_path / "out.conllu").exists()


@pytest.mark.parametrize(
    ("model", "metrics"),
    [
        ("label", {"loss", "accuracy", "macro_f1", "micro_f1", "matthews"}),
        ("pair", {"loss", "pearson", "spearman"}),
        ("tags", {"loss", "accuracy"}),
        ("tree", {"loss", "uas", "las", "label_accuracy", "whole_trees"}),
        ("words", {"loss", "perplexity"}),
    ],
)
def test_each_kind_is_judged_by_its_own_metrics(models: Path, model: str, metrics: set[str]) -> None:
    report = answer("evaluate", models / model, models / f"{model}.jsonl")
    assert report["metrics"].keys() == metrics
    assert report["examples"] == 30
    shown = run("evaluate", models / model, models / f"{model}.jsonl").stdout
    assert shown.startswith("30 examples\n")
    assert all(f"\n{name}" in shown for name in metrics)


def test_a_subtype_that_training_never_saw_may_be_answered_rightly(models: Path, tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "rows.jsonl", [{"words": "the", "heads": [0], "relations": ["root:new"]}])
    result = run("evaluate", models / "tree", path, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(result.stdout)["metrics"]["las"] == 1


@pytest.mark.parametrize(
    ("command", "option", "use"),
    [
        ("evaluate", ["--corpus", "texts.jsonl"], "--corpus is for rankers"),
        ("evaluate", ["--among", "20"], "--among is for rankers"),
        ("evaluate", ["--images", "images"], "--folder/--images is for models that read files, such as images"),
        ("evaluate", ["--beam", "5"], "--beam is for decoders that write texts"),
        ("predict", ["--n-best", "3"], "--n-best is for decoders that write texts"),
        ("predict", ["--sample"], "--sample is for decoders that write texts"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(models: Path, command: str, option: list[str], use: str) -> None:
    given = models / "label.jsonl" if command == "evaluate" else "red"
    assert refusal(command, models / "label", given, *option) == f"{use}; leave it out"


def test_several_files_are_judged_together(models: Path, tmp_path: Path) -> None:
    whole = models / "label.jsonl"
    lines = whole.read_text().splitlines(keepends=True)
    for name, part in {"a.jsonl": lines[:10], "b.jsonl": lines[10:]}.items():
        (tmp_path / name).write_text("".join(part))
    report = twofold.evaluate(models / "label", [str(tmp_path / "a.jsonl"), tmp_path / "b.jsonl"])
    assert report == twofold.evaluate(models / "label", whole)


@pytest.mark.filterwarnings("always:.* was not seen in training:UserWarning")
@pytest.mark.parametrize(
    ("model", "rows", "right"),
    [
        ("label", [{"text": "the boat", "label": "bleu"}, {"text": "red", "label": "pink"}] * 40, "accuracy"),
        ("tags", [{"words": "the boat", "tags": "new lew"}, {"words": "red", "tags": "new"}] * 40, "accuracy"),
        ("tree", [{"words": "the", "heads": [0], "relations": ["top"]}] * 80, "las"),
    ],
)
def test_what_was_not_seen_in_training_is_said_once_and_counts_as_wrong(
    models: Path, tmp_path: Path, model: str, rows: list[dict[str, Any]], right: str
) -> None:
    path = write_jsonl(tmp_path / "rows.jsonl", rows)
    result = run("evaluate", models / model, path, "--json")
    assert result.exit_code == 0, result.stderr
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"warning: {path}:1: '")
    assert "was not seen in training, nor " in line
    assert "can only be answered wrongly; " in line
    report = json.loads(result.stdout)
    assert report["metrics"][right] == 0
    assert report["examples"] == 80


@pytest.mark.filterwarnings("default:.* sentences? .*overlapping windows:UserWarning")
def test_a_long_sentence_and_a_long_word_are_parsed_and_judged_whole_with_one_warning(
    models: Path, tmp_path: Path
) -> None:
    long = "".join(random.Random(1).choices("abdent", k=300))
    words = [*["go", "home"] * 60, long, "go"]
    lines = [f"{n}\t{word}\t_\tADV\t_\t_\t{n - 1}\tadvmod\t_\t_" for n, word in enumerate(words, start=1)]
    lines[0] = lines[0].replace("advmod", "root")
    (tmp_path / "long.conllu").write_text(CONLLU + "\n".join(lines) + "\n\n", encoding="utf-8")
    said = (
        "warning: 1 of 3 sentences is longer than 40 tokens and is read in overlapping windows; "
        "1 word is longer than a whole sentence may be and cut to 19 tokens\n"
    )
    judged = run("evaluate", models / "parse", tmp_path / "long.conllu", "--json")
    assert (judged.exit_code, judged.stderr) == (0, said)
    out = tmp_path / "out.conllu"
    result = run("predict", models / "parse", "--file", tmp_path / "long.conllu", "--conllu", out, "--json")
    assert result.exit_code == 0
    tree = json.loads(result.stdout)["predictions"][2]["output"]
    assert tree["words"] == words
    assert check_tree(tree["heads"]) is None
    *_, written = read_rows(str(out))
    assert (written.values["words"], written.values["heads"]) == (words, tree["heads"])
    right = [row.values["heads"] for row in read_rows(str(tmp_path / "long.conllu"))]
    heads = [one["output"]["heads"] for one in json.loads(result.stdout)["predictions"]]
    same = sum(a == b for one, gold in zip(heads, right, strict=True) for a, b in zip(one, gold, strict=True))
    assert json.loads(judged.stdout)["metrics"]["uas"] == pytest.approx(same / sum(map(len, right)))
