"""Model card: README.md with what the model is, how it is run, what it was trained on and how it was measured."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from twofold import __version__, storage
from twofold.config import kind_of
from twofold.exporting.graphs import CONTEXT, PAIR
from twofold.exporting.job import Job
from twofold.exporting.parity import FILE, Parity
from twofold.model import Ranker
from twofold.outputs.ranking import CANDIDATE
from twofold.recipe.comparing import facts_of
from twofold.recipe.folder import DATA, ELSEWHERE
from twofold.recipe.given import RECIPE
from twofold.tables import cell

CARD = "README.md"
PIPELINES = {False: "sentence-similarity", True: "text-ranking"}
"""Tasks of the hub, by whether context and candidate are read as one text."""
READ_FIRST = """\
import json
from pathlib import Path

import numpy as np
from read import read

config = json.loads(Path("config.json").read_text(encoding="utf-8"))
"""


def write(job: Job, parity: Parity, run: str, folder: Path) -> None:
    """Writes the card; `run` is the code that runs graphs, or the whole example of a format without graphs."""
    example = "\n".join([READ_FIRST, run, *_calls(job)]) if "def run(" in run else run
    sections = [
        f"---\n{yaml.safe_dump(_front(job), sort_keys=False)}---",
        f"# {_title(job)}",
        "\n".join(_about(job, parity)),
        f"## Use\n\n```python\n{example.strip()}\n```",
        *([] if job.training is None else _trained(job.training)),
        "## Parity\n\n" + "\n".join(_compared(parity)),
    ]
    storage.write_bytes(folder / CARD, ("\n\n".join(sections) + "\n").encode())


def _front(job: Job) -> dict[str, Any]:
    """Settings at the head of the card, as the hub reads them."""
    model = job.model
    front: dict[str, Any] = {"library_name": job.format, "tags": ["twofold", job.format]}
    texts = isinstance(model, Ranker) and model.contexts.tokenizer and model.candidates.tokenizer
    if isinstance(model, Ranker) and texts:
        front["pipeline_tag"] = PIPELINES[model.joined]
    return front


def _title(job: Job) -> str:
    tasks = job.model.config.tasks.values()
    return f"{kind_of(job.model.config.encoder)} → {', '.join(kind_of(each.decoder) for each in tasks)}"


def _about(job: Job, parity: Parity) -> Iterator[str]:
    """Sentences about the model and its folder."""
    model = job.model
    count = sum(parameter.numel() for parameter in model.parameters())
    yield f"A model of Twofold {__version__} with {count:,} parameters, for {job.format} in {parity.precision}."
    if isinstance(model, Ranker):
        yield f"It ranks {model.candidates.config.noun}s for {model.contexts.config.noun}s."
        if (scale := output_scale(model)) != 1:
            yield f"Candidate vectors have the length {scale:.4g}, by which scores are multiplied in Twofold."
    for note in parity.notes:
        yield f"{note}."


def output_scale(model: Ranker) -> float:
    """Length of candidate vectors, which is the factor of the scores; 1 where they are not normalized."""
    vector = getattr(model.head, "vector", None)
    if vector is None or not vector.normalize:
        return 1.0
    return float(vector.scale if vector.log_scale is None else vector.log_scale.detach().exp())


def _calls(job: Job) -> Iterator[str]:
    """Lines that use the graphs on sample values."""
    model = job.model
    if not isinstance(model, Ranker):
        yield f'arrays = read(config["graphs"]["model"]["input"], [{model.input.example}])'
        yield 'for name, values in run("model", arrays).items():\n    print(name, values.shape)'
        return
    context, candidate = model.contexts.example, model.candidates.example
    total = []
    if model.reads_alone:
        yield "inputs = {}"
        for side, example in ((CONTEXT, context), (CANDIDATE, candidate)):
            yield f'arrays = read(config["graphs"]["{side}"]["input"], [{example}])'
            yield f'inputs |= {{f"{side}_{{name}}": value for name, value in run("{side}", arrays).items()}}'
        yield 'scores = run("score", inputs)["scores"]  # (contexts, candidates)'
        total.append("scores")
    if model.joined:
        yield f'arrays = read(config["graphs"]["{PAIR}"]["input"], [({context}, {candidate})])'
        yield f'pairs = run("{PAIR}", arrays)["scores"]  # (pairs,)'
        total.append("pairs")
    yield f"print({' + '.join(total)})"


def _trained(folder: Path) -> Iterator[str]:
    """Sections about the data and the results of a training."""
    if not (folder / RECIPE).is_file():
        return
    facts = facts_of(folder)
    lines = []
    if (folder / DATA).is_file():
        content = storage.read_json(folder / DATA, ELSEWHERE).get("data", {})
        lines += [f"- `{name}`: {Path(file['path']).name} ({file['sum']})" for name, file in content.items()]
    if facts.steps:
        lines.append(f"- steps: {facts.steps:,}; best by {facts.best} at step {facts.best_step}")
    yield "## Training\n\n" + "\n".join(lines)
    if facts.metrics:
        rows = [f"| {name} | {cell(value)} |" for name, value in facts.metrics.items()]
        head = "Metrics on the validation split of the training:\n\n| metric | value |\n|---|---|\n"
        yield "## Evaluation\n\n" + head + "\n".join(rows)


def _compared(parity: Parity) -> Iterator[str]:
    """Sentences about the certificate."""
    yield f"{FILE} compares {parity.samples} samples (empty, one letter, emoji, Korean, long, in ragged batches)"
    yield f"with PyTorch: the largest difference is {parity.largest_difference:.1e} of the largest value, and"
    yield f"{parity.agreement:.1%} of the rankings or answers agree."
    if parity.int8:
        before, after, rows = (parity.int8[name] for name in ("float32", "int8", "rows"))
        yield f"R@1 on {rows:.0f} rows is {after:.3f} in int8 and {before:.3f} in float32."
