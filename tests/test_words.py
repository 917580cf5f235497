"""Docstrings begin with a verb or a noun, and local names are nouns, in every file of the package."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import twofold

SOURCE = Path(twofold.__file__).parent
BEGINNINGS = re.compile(r"(Of|Whether|What|Where|That|How|Who|When|Which|Why|If|The same)\b")
PRONOUNS = {"one", "own", "found"}
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)
each_file = pytest.mark.parametrize(
    "path", sorted(SOURCE.rglob("*.py")), ids=lambda path: path.relative_to(SOURCE).as_posix()
)


def docstrings(tree: ast.AST) -> Iterator[str]:
    """Docstrings of a module, its classes, functions and attributes."""
    for node in ast.walk(tree):
        for statement in getattr(node, "body", []) if not isinstance(node, ast.Lambda | ast.IfExp) else []:
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield text.strip()


def names(tree: ast.AST) -> Iterator[str]:
    """Names that a module gives to arguments, variables, attributes and functions, without one-line comprehensions."""
    short = [node for node in ast.walk(tree) if isinstance(node, COMPREHENSIONS) and node.lineno == node.end_lineno]
    inside = {id(inner) for node in short for inner in ast.walk(node)}
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) if id(node) not in inside:
                yield name
            case ast.Attribute(attr=name, ctx=ast.Store()) | ast.FunctionDef(name=name):
                yield name
            case ast.arg(arg=name) if id(node) not in inside:
                yield name


@each_file
def test_docstrings_begin_with_a_verb_or_a_noun(path: Path) -> None:
    texts = docstrings(ast.parse(path.read_text(encoding="utf-8")))
    assert [text.splitlines()[0] for text in texts if BEGINNINGS.match(text)] == []


@each_file
def test_no_name_is_a_pronoun(path: Path) -> None:
    assert PRONOUNS.isdisjoint(names(ast.parse(path.read_text(encoding="utf-8"))))
