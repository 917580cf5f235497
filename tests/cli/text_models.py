"""Short trainings that tests of labels, pairs, tags and trees on the command line share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.commands import run
from tests.conftest import write_jsonl
from tests.texts import chained, colored, overlapping, recipe, rows_of, tagged
from twofold.recipe.file import to_yaml

TREE = {"kind": "tree", "width": 8, "relation_width": 4}
CONLLU = """\
# newdoc id = first
# sent_id = 1
# text = Don't go home
1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No
1\tDo\tdo\tAUX\tVB\tMood=Imp\t3\taux\t3:aux\t_
2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t3:advmod\t_
3\tgo\tgo\tVERB\tVB\t_\t0\troot\t0:root\tKept=Yes
3.1\tgo\tgo\tVERB\t_\t_\t_\t_\t3:conj\tCopyOf=3
4\thome\thome\tADV\tRB\t_\t3\tadvmod\t3:advmod\tSpaceAfter=No

# sent_id = 2
1\tDogs\tdog\tNOUN\tNNS\t_\t2\tnsubj\t_\t_
2\tbark\tbark\tVERB\tVBP\t_\t0\troot\t_\t_

"""
MODELS: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "label": (colored, {"source": "text", "target": "label"}, {"kind": "label"}),
    "pair": (
        overlapping,
        {"source": ["one", "other"], "target": "score", "output": {"kind": "number"}},
        {"kind": "label"},
    ),
    "tags": (tagged, {"source": "words", "target": "tags"}, {"kind": "tags"}),
    "tree": (chained, {"source": "words", "target": ["heads", "relations"]}, TREE),
    "words": (colored, {"source": "text"}, {"kind": "tokens"}),
}


def write_recipe(folder: Path, rows: str | Path, data: dict[str, Any], writes: dict[str, Any], **train: Any) -> Path:
    path = folder / "recipe.yaml"
    path.write_text(to_yaml(recipe(rows, data, writes, **{"max_steps": 2, **train})), encoding="utf-8")
    return path


def train_models(folder: Path) -> Path:
    """Folders of short trainings, and of two over a file of CoNLL-U."""
    (folder / "some.conllu").write_text(CONLLU, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TWOFOLD_CACHE", str(folder / "cache"))
        made = {
            name: (write_jsonl(folder / f"{name}.jsonl", rows_of(make, 30, 1)), data, writes)
            for name, (make, data, writes) in MODELS.items()
        }
        data = {"source": "words", "input": {"max_tokens": 40}}
        made["upos"] = (str(folder / "some.conllu"), {**data, "target": "upos"}, {"kind": "tags"})
        made["parse"] = (str(folder / "some.conllu"), {**data, "target": ["heads", "relations"]}, TREE)
        for name, given in made.items():
            result = run("train", write_recipe(folder, *given), "--out", folder / name)
            assert result.exit_code == 0, result.stderr
    return folder
