"""Editors and mypy know what the Python API returns: a user's strict script passes, and nothing in it is Any."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mypy import api

import twofold
from twofold.metrics import Report
from twofold.model.summary import Summary
from twofold.recipe.comparison import Comparison
from twofold.results import DecoderOutput, Hit, Hits, Hypothesis, Prediction, StoredCandidate
from twofold.results.explanation import Explanation, RankingExplanation
from twofold.training.run import Run
from twofold.types import Batch

SCRIPT = """
import twofold
from twofold import Candidates, Recipe, TwofoldError

texts = ["list files", "delete a file"]
model = twofold.load("runs/mine")
ranker = twofold.load("default")
other = twofold.load_ranker("runs/ranker")

reveal_type(model)  # Model
reveal_type(ranker)  # Ranker
reveal_type(other)  # Ranker
reveal_type(model.encode(texts))  # ndarray[shape, dtype[floating[_32Bit]]]
reveal_type(model.encode("list files", as_tensor=True))  # Tensor
reveal_type(ranker.encode(texts))  # ndarray[shape, dtype[floating[_32Bit]]]
reveal_type(ranker.encode(texts, as_tensor=True))  # Tensor
reveal_type(ranker.encode_query("list files"))  # ndarray[shape, dtype[floating[_32Bit]]]
reveal_type(ranker.encode_query(texts, True))  # Tensor
reveal_type(model.similarity(texts, texts))  # ndarray[shape, dtype[floating[_32Bit]]]
reveal_type(ranker.similarity("list files", texts))  # ndarray[shape, dtype[floating[_32Bit]]]
candidates: Candidates = ranker.prepare(texts)
reveal_type(model.rank("list files", texts, k=1))  # Hits
reveal_type(ranker.rank("list files", candidates))  # Hits
reveal_type(ranker.rank_many(texts, candidates, k=1))  # list[Hits]
reveal_type([hit.text for hit in ranker.rank("list files", texts)])  # list[str]
reveal_type(ranker.rank("list files", texts)[0].score)  # float
reveal_type(model.predict(texts, twofold.GenerateOptions(beam=3)))  # list[Prediction]
reveal_type(model.predict("list files")[0].score)  # float
reveal_type(next(model.stream("list files")))  # str
reveal_type(model.explain("list files"))  # Explanation
reveal_type(other.explain("list files", texts))  # RankingExplanation

batch = model.batch([{"source": "a", "target": "b"}])
reveal_type(batch)  # Batch
reveal_type(model(batch))  # dict[str, DecoderOutput]
reveal_type(ranker(batch)["main"].logits)  # Tensor
reveal_type(model.loss(batch))  # Tensor

run = twofold.train({"data": {"train": "rows.tsv"}, "encoder": {"kind": "rnn"}}, out="runs/mine")
reveal_type(run)  # Run
reveal_type(run.model)  # Model
reveal_type(run.metrics)  # dict[str, float]
report = twofold.evaluate(model, "dev.tsv", tokenize="13a")
reveal_type(report)  # Report
reveal_type(report.metrics["bleu"])  # float
reveal_type(Recipe.load("translate"))  # Recipe
index = twofold.build_index("answers.index", ranker, texts)
reveal_type(index)  # Index
reveal_type(twofold.open_index("answers.index").search("list files"))  # Hits
reveal_type(index.get(1))  # StoredCandidate | None
reveal_type(len(index))  # int
reveal_type(1 in index)  # bool
try:
    index.add(texts)
except TwofoldError as error:
    reveal_type(error)  # TwofoldError
"""
WRONG = {
    "ranker.rank('a', ['b'], k='three')": "incompatible type",
    "model.encode(['a'], as_tesnor=True)": "as_tesnor",
    "twofold.laod('default')": "laod",
    "twofold.evaluate(model, 'dev.tsv', tokenise='13a')": "tokenise",
}
"""Slips that mypy finds."""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Lines that strict mypy prints for the script and the slips after it."""
    path = tmp_path_factory.mktemp("typed") / "script.py"
    path.write_text("\n".join([SCRIPT, *WRONG, ""]), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MYPYPATH", str(Path(twofold.__file__).parent.parent))
        cache = Path(__file__).parent.parent / ".mypy_cache"  # that of `make check`
        arguments = ["--strict", "--python-version=3.11", f"--cache-dir={cache}", str(path)]
        return api.run(arguments)[0].splitlines()


def test_a_strict_script_passes_and_nothing_that_it_reveals_is_any(said: list[str]) -> None:
    errors = [int(line.split(":")[1]) for line in said if ": error:" in line]
    assert min(errors) > SCRIPT.count("\n"), said  # only the slips after the script
    revealed = {}
    for line in said:
        if match := re.search(r':(\d+): note: Revealed type is "(.*)"$', line):
            shown = match[2].replace("tuple[Any, ...]", "shape").replace("builtins.", "")
            revealed[int(match[1])] = re.sub(r"\b\w+\.(?:\w+\.)*", "", shown)
    expected = {
        number: line.rpartition("# ")[2]
        for number, line in enumerate(SCRIPT.splitlines(), start=1)
        if line.lstrip().startswith("reveal_type")
    }
    assert revealed == expected
    assert not [shown for shown in revealed.values() if "Any" in shown]


@pytest.mark.parametrize("slip", WRONG)
def test_a_slip_is_found_before_the_script_runs(said: list[str], slip: str) -> None:
    number = SCRIPT.count("\n") + 2 + list(WRONG).index(slip)
    assert any(f":{number}: error:" in line and WRONG[slip] in line for line in said), said


PUBLIC = (
    *(getattr(twofold, name) for name in dir(twofold) if name != "__version__"),
    *(Run, Report, Summary, Comparison, Hits, Hit, Prediction, Hypothesis, Explanation, RankingExplanation),
    *(StoredCandidate, Batch, DecoderOutput),
)
"""Names of `dir(twofold)`, and the classes of the results of these functions."""


def public_functions() -> dict[str, Callable[..., Any]]:
    """Public functions, and the public methods and constructors of public classes, by name."""
    functions: dict[str, Callable[..., Any]] = {}
    for value in PUBLIC:
        if not inspect.isclass(value):
            functions[value.__name__] = value
            continue
        for name, member in inspect.getmembers_static(value):
            function = getattr(member, "fget", None) or getattr(member, "__func__", member)
            function = inspect.unwrap(function) if callable(function) else function
            ours = inspect.isfunction(function) and function.__module__.startswith("twofold")
            if ours and (not name.startswith("_") or name == "__init__"):
                functions[f"{value.__name__}.{name}"] = function
    return functions


def is_annotated(function: Callable[..., Any]) -> bool:
    """Returns True if all parameters and the return value have annotations."""
    signature = inspect.signature(function)
    parameters = [value for name, value in signature.parameters.items() if name not in ("self", "cls")]
    annotations = [parameter.annotation for parameter in parameters]
    if function.__name__ != "__init__":
        annotations.append(signature.return_annotation)
    return inspect.Parameter.empty not in annotations


def test_every_public_function_and_method_has_annotations_for_all_parameters_and_the_return() -> None:
    functions = public_functions()
    annotated = [name for name, function in functions.items() if is_annotated(function)]
    print(f"{len(annotated)} of {len(functions)} public functions and methods are annotated")
    assert {"train", "summary", "Model.predict", "Ranker.rank", "Index.search", "Recipe.of"} <= functions.keys()
    assert sorted(set(functions) - set(annotated)) == []
