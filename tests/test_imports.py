"""Each layer imports only layers above it in this table; `import twofold` and the help do not wait for torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import twofold

ROOT = Path(twofold.__file__).parent
LAYERS = [
    {"errors"},
    {"storage", "progress", "results"},
    {"types", "config"},
    {"data", "layers", "generate"},
    {"encoders", "decoders"},
    {"model"},
    {"index"},
    {"metrics"},
    {"training"},
    {"recipe"},
    {"convert"},
    {"api", "plot"},
    {"cli"},
    {"__main__"},
]
RANK = {name: number for number, names in enumerate(LAYERS) for name in names}
FILES = sorted(path for path in ROOT.rglob("*.py") if path.relative_to(ROOT).as_posix() != "__init__.py")


def layer(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """The layers of twofold that a file imports, also inside functions."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("twofold.")} - {"__version__"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_file_imports_only_layers_above_its_own(path: Path) -> None:
    own = layer(path)
    for other in imported(path) - {own}:
        assert RANK[other] < RANK[own], f"{own} must not import {other}"


@pytest.mark.parametrize(
    "path", [path for path in FILES if layer(path) in ("encoders", "decoders")], ids=lambda p: p.stem
)
def test_a_part_does_not_import_another_part(path: Path) -> None:
    assert not imported(path) & {"encoders", "decoders"}


@pytest.mark.parametrize("code", ["import twofold", "import twofold.cli"])
def test_neither_the_package_nor_its_help_imports_torch(code: str) -> None:
    subprocess.run([sys.executable, "-c", f"{code}, sys; assert 'torch' not in sys.modules"], check=True)


def test_every_public_name_can_be_had() -> None:
    assert all(getattr(twofold, name) is not None for name in twofold.__all__)
