"""The command line as a user meets it: train, evaluate, predict, list, and what they print."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from tests import made
from tests.conftest import small_recipe, write_jsonl
from twofold.cli import main
from twofold.config import ROLES, kinds
from twofold.data.named_models import MODELS
from twofold.recipe.file import recipe_names, to_yaml

ROWS = made.numbers(60, seed=4)
COMMANDS = sorted(main.commands)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def done(*arguments: str | Path) -> str:
    """Standard output of a command that must succeed."""
    result = run(*arguments)
    assert result.exit_code == 0, (result.stderr, result.exception)
    return result.stdout


def answer(*arguments: str | Path) -> Any:
    """The one JSON object that a command prints."""
    content = json.loads(done(*arguments, "--json"))
    assert isinstance(content, dict)
    return content


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Rows, a recipe, and `run`, a training of four steps."""
    folder = tmp_path_factory.mktemp("cli")
    train = write_jsonl(folder / "rows.jsonl", ROWS)
    content = small_recipe(train, data={"held_out": 10}, generate={"beam": 2})
    (folder / "recipe.yaml").write_text(to_yaml(content), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TWOFOLD_CACHE", str(folder / "cache"))
        result = run("train", folder / "recipe.yaml", "--out", folder / "run")
        assert result.exit_code == 0, (result.stderr, result.exception)
        assert result.stdout == ""
        assert result.stderr.splitlines()[-1].startswith("done after 4 steps; the best model is in ")
        yield folder


def test_a_training_folder_holds_the_model_the_recipe_and_the_log(folder: Path) -> None:
    names = {path.name for path in (folder / "run").iterdir()}
    assert {"model", "checkpoints", "recipe.yaml", "log.jsonl"} <= names
    log = [json.loads(line) for line in (folder / "run" / "log.jsonl").read_text().splitlines()]
    assert log[0] == {
        "step": 0,
        "precision": "float32",
        "rows": 50,
        "validation_rows": 10,
        "cut": {"input": 0, "main": 0},
    }
    assert [line["step"] for line in log if "loss" in line] == [1, 2, 3, 4]
    assert any("dev_loss" in line for line in log)


def test_the_resolved_recipe_trains_the_same_again(folder: Path, tmp_path: Path) -> None:
    done("train", folder / "run" / "recipe.yaml", "--out", tmp_path / "again")
    same = [path / "model" / "model.safetensors" for path in (folder / "run", tmp_path / "again")]
    assert same[0].read_bytes() == same[1].read_bytes()


def test_changes_on_the_command_line_go_into_the_training(folder: Path, tmp_path: Path) -> None:
    done("train", folder / "recipe.yaml", "train.max_steps=2", "encoder.width=5", "--out", tmp_path / "out")
    log = (tmp_path / "out" / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in log if "learning_rate" in line] == [1, 2]
    assert "width: 5\n" in (tmp_path / "out" / "recipe.yaml").read_text()


def test_evaluate_prints_metrics_and_examples(folder: Path) -> None:
    content = answer("evaluate", folder / "run", folder / "rows.jsonl")
    assert content["examples"] == len(ROWS)
    assert {"loss", "perplexity", "bleu", "chrf", "exact_match"} <= set(content["metrics"])
    assert all(isinstance(value, float) for value in content["metrics"].values())
    assert sum(line["rows"] for line in content["bleu_by_length"]) == len(ROWS)
    shown = done("evaluate", folder / "run", folder / "rows.jsonl")
    assert f"{len(ROWS)} examples" in shown
    assert f"perplexity   {content['metrics']['perplexity']:.4f}" in shown


def test_predict_prints_an_output_and_a_score_for_each_input(folder: Path) -> None:
    content = answer("predict", folder / "run", "one", "칠만 삼백", "one")
    assert [one["input"] for one in content["predictions"]] == ["one", "칠만 삼백", "one"]
    for prediction in content["predictions"]:
        assert set(prediction) == {"input", "output", "score", "normalized_score"}
        assert isinstance(prediction["output"], str)
        assert prediction["score"] < 0
    assert content["predictions"][0] == content["predictions"][2]
    lines = done("predict", folder / "run", "one", "칠만 삼백").splitlines()
    assert lines == [f"{one['score']:8.3f}  {one['output']}" for one in content["predictions"][:2]]


@pytest.mark.parametrize("model", ["run", "run/model", "run/model/"])
def test_the_model_may_be_the_training_folder_or_its_model(folder: Path, model: str) -> None:
    assert answer("predict", f"{folder}/{model}", "one") == answer("predict", folder / "run", "one")


def test_the_model_may_be_the_current_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder / "run")
    assert answer("predict", ".", "one") == answer("predict", folder / "run", "one")


def test_predict_gives_several_outputs_where_asked(folder: Path) -> None:
    (prediction,) = answer("predict", folder / "run", "one", "--beam", "4", "--n-best", "3")["predictions"]
    assert len(prediction["alternatives"]) == 2
    assert all(set(other) == {"output", "score", "normalized_score"} for other in prediction["alternatives"])
    normalized = [prediction["normalized_score"], *(other["normalized_score"] for other in prediction["alternatives"])]
    assert normalized == sorted(normalized, reverse=True)
    header, *shown = done("predict", folder / "run", "one", "--beam", "4", "--n-best", "3").splitlines()
    assert header.split() == ["normalized", "log-prob", "output"]
    assert [line.split(maxsplit=2)[:2] for line in shown] == [
        [f"{output['normalized_score']:.3f}", f"{output['score']:.3f}"]
        for output in (prediction, *prediction["alternatives"])
    ]
    assert len({line.index(" -", 9) for line in shown}) == 1  # the columns are aligned


def test_sampling_follows_its_seed(folder: Path) -> None:
    draws = [answer("predict", folder / "run", "one", "--sample", "--seed", seed) for seed in ("1", "1", "2")]
    assert draws[0] == draws[1]
    assert draws[0] != draws[2]
    greedy = answer("predict", folder / "run", "one", "--beam", "1")
    assert (
        answer("predict", folder / "run", "one", "--sample", "--top-k", "1")["predictions"][0]["output"]
        == (greedy["predictions"][0]["output"])
    )


def test_a_stream_joined_is_the_greedy_output(folder: Path) -> None:
    (prediction,) = answer("predict", folder / "run", "one two", "--beam", "1")["predictions"]
    assert done("predict", folder / "run", "one two", "--stream") == prediction["output"] + "\n"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("inputs.txt", "one\ntwo\n"),
        ("inputs.jsonl", '{"source": "one"}\n{"source": "two", "target": "2"}\n'),
        ("inputs.tsv", "id\tsource\n1\tone\n2\ttwo\n"),
        ("inputs.csv", "text\none\ntwo\n"),
    ],
)
def test_inputs_may_come_from_a_file(folder: Path, tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    expected = answer("predict", folder / "run", "three", "one", "two")
    assert answer("predict", folder / "run", "three", "--file", tmp_path / name) == expected


def test_options_of_writing_change_what_is_written(folder: Path) -> None:
    (short,) = answer("predict", folder / "run", "one", "--max-length", "2")["predictions"]
    (long,) = answer("predict", folder / "run", "one")["predictions"]
    assert len(short["output"]) < len(long["output"])


def test_a_plot_goes_into_its_file_and_not_into_the_answer(folder: Path, tmp_path: Path) -> None:
    content = answer("predict", folder / "run", "one", "--plot", tmp_path / "attention.png")
    assert (tmp_path / "attention.png").read_bytes().startswith(b"\x89PNG")
    assert content == answer("predict", folder / "run", "one")


def test_explain_adds_what_a_page_draws_to_the_answer(folder: Path) -> None:
    plain = answer("predict", folder / "run", "one two", "six")["predictions"]
    explained = answer("predict", folder / "run", "one two", "six", "--explain")["predictions"]
    for before, after in zip(plain, explained, strict=True):
        explanation = after.pop("explanation")
        assert after == before
        assert explanation["output"] == before["output"]
        assert {"attention", "choices", "beam", "influence"} <= set(explanation)
    assert json.loads(done("predict", folder / "run", "six", "--explain"))["predictions"][0]["explanation"]


def test_the_figure_shows_the_attention_that_is_asked_for(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    done("predict", folder / "run", "one", "--plot", path, "--layer", "1", "--head", "all")
    assert "<!-- Cross-attention, layer 1 of 1 -->" in path.read_text(encoding="utf-8")
    for options, said in (
        (["--layer", "2", "--plot", path], "--layer 2: there are 1; give a number from 1 to 1, or all"),
        (["--attention", "encoder", "--plot", path], "this model has no self-attention of the encoder to draw"),
        (["--head", "1"], "--head needs --plot FILE"),
        (["--layer", "top"], "'top' is not a valid number or all"),
    ):
        result = run("predict", folder / "run", "one", *options)
        assert result.exit_code in (1, 2)
        assert said in result.stderr


@pytest.mark.filterwarnings("always:.* were cut:UserWarning")
def test_an_input_that_is_too_long_is_cut_with_a_warning_beside_the_answer(folder: Path) -> None:
    result = run("predict", folder / "run", "one", "two " * 100, "--json")
    assert result.exit_code == 0
    assert len(json.loads(result.stdout)["predictions"]) == 2
    assert result.stderr == "warning: 1 of 2 inputs are longer than 30 tokens and were cut\n"


def test_list_names_what_comes_along() -> None:
    assert answer("list") == {
        "inputs": kinds("inputs"),
        "outputs": kinds("outputs"),
        "encoders": kinds("encoders"),
        "decoders": kinds("decoders"),
        "losses": kinds("losses"),
        "metrics": kinds("metrics"),
        "recipes": recipe_names(),
        "experiments": [],
        "models": list(MODELS),
    }
    shown = done("list")
    assert all(name in shown for role in ROLES for name in kinds(role))
    assert all(name in shown for name in recipe_names())


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_the_help_of_every_command_shows_an_example(command: str, flag: str) -> None:
    shown = done(command, flag)
    assert f"\n    twofold {command}" in shown
    summary = main.commands[command].get_short_help_str()
    assert summary
    assert summary.rstrip(".")[:40] in done("--help")


def test_every_option_has_a_help() -> None:
    for command in main.commands.values():
        assert all(one.help for one in command.params if isinstance(one, click.Option)), command.name


def test_the_version_is_shown() -> None:
    from twofold import __version__

    assert __version__ in done("--version")


def test_a_folder_that_holds_a_training_is_not_taken_again(folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (folder / "run").rglob("*")}
    result = run("train", folder / "recipe.yaml", "--out", folder / "run")
    assert result.exit_code == 1
    assert result.stderr == (
        f"error: {folder / 'run'}: holds a training already; go on with --resume or choose another folder\n"
    )
    assert {path: path.stat().st_mtime_ns for path in (folder / "run").rglob("*")} == before


def test_a_finished_training_resumed_further_goes_on(folder: Path, tmp_path: Path) -> None:
    done("train", folder / "recipe.yaml", "--out", tmp_path / "out", "--resume", "train.max_steps=2")
    done("train", folder / "recipe.yaml", "--out", tmp_path / "out", "--resume", "train.max_steps=3")
    log = [json.loads(line) for line in (tmp_path / "out" / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in log if "loss" in line] == [1, 2, 3]


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("nonsense",),
        ("train",),
        ("train", "recipe.yaml"),
        ("evaluate", "run"),
        ("predict", "run"),
        ("predict", "run", "one", "--nonsense"),
        ("predict", "run", "one", "--beam", "wide"),
        ("predict", "run", "one", "two", "--stream"),
        ("predict", "run", "one", "--stream", "--json"),
        ("list", "more"),
    ],
)
def test_wrong_usage_ends_with_status_2(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Usage: " in result.stderr
