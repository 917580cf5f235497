"""Each layer imports only layers above it in this table; `import twofold` and the help do not wait for torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import twofold

ROOT = Path(twofold.__file__).parent
LAYERS = [
    {"errors"},
    {"storage", "progress", "results", "tables", "recording", "precision"},
    {"types", "config"},
    {"explaining", "reading"},
    {"data", "layers", "generate"},
    {"inputs"},
    {"outputs"},
    {"encoders", "decoders", "losses"},
    {"model"},
    {"index"},
    {"metrics"},
    {"training"},
    {"recipe"},
    {"convert", "runtime"},
    {"exporting", "models"},
    {"api", "plot"},
    {"serve"},
    {"cli"},
    {"__main__"},
]
RANK = {name: number for number, names in enumerate(LAYERS) for name in names}
FILES = sorted(path for path in ROOT.rglob("*.py") if path.relative_to(ROOT).as_posix() != "__init__.py")


def layer(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(tree: ast.AST) -> Iterator[str]:
    """Every name that a piece of code imports, as module.name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported(path: Path) -> set[str]:
    """The layers of twofold that a file imports, also inside functions."""
    names = imports(ast.parse(path.read_text(encoding="utf-8")))
    return {name.split(".")[1] for name in names if name.startswith("twofold.")} - {"__version__"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_file_imports_only_layers_above_its_own(path: Path) -> None:
    row = layer(path)
    for other in imported(path) - {row}:
        assert RANK[other] < RANK[row], f"{row} must not import {other}"


@pytest.mark.parametrize(
    "path",
    [path for path in FILES if layer(path) in ("encoders", "decoders", "losses")],
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_a_part_does_not_import_another_part(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    names = [name for name in imports(ast.parse(text)) if name.startswith(f"twofold.{layer(path)}")]
    assert all(name.count(".") == 2 for name in names), "a part imports from its package alone, not from a neighbor"


def module_file(name: str) -> Path | None:
    """The file of a module, or of the module in which a name stands."""
    parts = name.split(".")[1:]
    for length in (len(parts), len(parts) - 1):
        path = ROOT.joinpath(*parts[:length])
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if length and file.is_file():
                return file
    return None


def test_no_import_leads_back_to_its_own_file() -> None:
    graph: dict[Path, set[Path]] = {}
    for path in FILES:
        body = ast.parse(path.read_text(encoding="utf-8")).body
        # Imports for types alone, and inside functions, are not made when the module is.
        names = [name for node in body if isinstance(node, ast.Import | ast.ImportFrom) for name in imports(node)]
        files = [module_file(name) for name in names if name.startswith("twofold.")]
        graph[path] = {file for file in files if file is not None and file != path}
    TopologicalSorter(graph).prepare()  # raises a CycleError that names the files


@pytest.mark.parametrize("code", ["import twofold", "import twofold.cli"])
def test_neither_the_package_nor_its_help_imports_torch(code: str) -> None:
    subprocess.run([sys.executable, "-c", f"{code}, sys; assert 'torch' not in sys.modules"], check=True)


def test_every_public_name_can_be_had() -> None:
    assert all(getattr(twofold, name) is not None for name in twofold.__all__)
