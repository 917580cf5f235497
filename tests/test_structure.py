"""The folder is the registry: nothing outside a folder of parts asks which of its files it has. Files stay short."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import twofold
from twofold.config import ROLES, kinds

ROOT = Path(twofold.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
KINDS = {kind for role in ROLES for kind in kinds(role)}
MAY_ASK = {"outputs": {"inputs"}}
"""An output may ask the input that it is joined with, never the reverse."""
LONGEST_FILE, LONGEST_FUNCTION = 300, 40

each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())


def package(path: Path) -> str:
    return path.relative_to(ROOT).parts[0]


def kind_classes(tree: ast.Module) -> dict[str, str]:
    """Names in a file that stand for classes of a kind, and the folder that they come from."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.count(".") == 2:
            _, role, kind = node.module.split(".")
            if role in ROLES and kind in KINDS:
                names |= {alias.asname or alias.name: role for alias in node.names}
    return names


def constants(node: ast.AST) -> Iterator[str]:
    """The texts in an expression or a pattern."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            yield inner.value


def compared(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Each line that compares something called a kind with the name of one, or asks for a class of one."""
    classes = kind_classes(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            if "kind" in ast.unparse(node) and KINDS & set(constants(node)):
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Match):
            if any(KINDS & set(constants(case.pattern)) for case in node.cases):
                yield node.lineno, ast.unparse(node.subject)
            names = [name for case in node.cases for name in ast.walk(case.pattern) if isinstance(name, ast.MatchClass)]
            if any(ast.unparse(name.cls) in classes for name in names):
                yield node.lineno, ast.unparse(node.subject)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"):
            asked = {ast.unparse(name) for name in ast.walk(node.args[1]) if isinstance(name, ast.Name | ast.Attribute)}
            if asked & classes.keys():
                yield node.lineno, ast.unparse(node)


@each_file
def test_nothing_outside_a_folder_of_parts_asks_which_kind_it_has(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    here = {package(path), *MAY_ASK.get(package(path), ())}
    if here & set(ROLES):
        classes = {name for name, role in kind_classes(tree).items() if role in here}
        asked = [line for line in compared(tree) if not any(name in line[1] for name in classes)]
    else:
        asked = list(compared(tree))
    assert not asked, f"ask the part itself: {asked}"


def test_a_comparison_with_a_kind_is_found() -> None:
    for code in (
        'if kind_of(part) == "poly": pass',
        'if part["kind"] in ("label", "tags"): pass',
        'match x:\n    case "mask": pass',
        "from twofold.outputs.mask import Config\nisinstance(x, Config)",
        "from twofold.inputs.image import Images\nmatch x:\n    case Images(): pass",
    ):
        assert list(compared(ast.parse(code))), code
    assert not list(compared(ast.parse('if "text" in row.values: pass')))


@each_file
def test_a_file_fits_in_an_editor_and_a_function_on_a_screen(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= LONGEST_FILE
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < LONGEST_FUNCTION, node.name


def test_what_passes_between_parts_is_not_any() -> None:
    """The joints of a model are typed: its input, its outputs, and what a batch holds."""
    for name in (
        "types/__init__.py",
        "types/modules.py",
        "model/model.py",
        "model/config.py",
        "inputs/__init__.py",
        "outputs/__init__.py",
    ):
        for node in ast.walk(ast.parse((ROOT / name).read_text(encoding="utf-8"))):
            if isinstance(node, ast.AnnAssign):
                assert ast.unparse(node.annotation) not in ("Any", "dict[str, Any]", "Mapping[str, Any]") or (
                    ast.unparse(node.target) in ("input_settings", "training", "embedding")
                ), f"{name}:{node.lineno}"
