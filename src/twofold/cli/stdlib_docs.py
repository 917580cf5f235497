"""Reads the documentation of the Python standard library from its source: a sentence for each function."""

from __future__ import annotations

import ast
import inspect
import os
import re
import sysconfig
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from twofold.errors import TwofoldError

Pair = dict[str, str | list[str]]
LONGEST_ARGUMENTS = 120
LONGEST_DEFAULT = 24
_CUT = "..."
_LEFT_OUT = {"test", "tests", "idle_test", "idlelib", "lib2to3", "turtledemo", "ensurepip", "encodings"}
_SHOWN_AS = {"_collections_abc": "collections.abc", "_threading_local": "threading", "_py_warnings": "warnings"}
_SHOWN_AS |= {"_pydatetime": "datetime", "_pydecimal": "decimal", "_pyio": "io", "pathlib._local": "pathlib"}
_SHOWN_AS |= {"concurrent.futures._base": "concurrent.futures", "tomllib._parser": "tomllib"}
_SHOWN_AS |= {"zipfile._path": "zipfile", "zoneinfo._zoneinfo": "zoneinfo"}
"""Private files of public modules, in some versions of Python."""
_NOT_THERE = {"concurrent.futures.Error", "tomllib.Flags", "tomllib.make_safe_parse_float", "tomllib.suffixed_err"}
_NOT_THERE |= {"zipfile.FastLookup", "zipfile.InitializedState"}
"""Private names in these files that do not begin with an underscore."""
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_PROPERTIES = {"property", "cached_property", "DynamicClassAttribute"}
_NOT_THE_THING = {"overload", "setter", "deleter"}
_STUB = re.compile(
    r"(see(?! if| whether)|internal|private|deprecated|obsolete|todo|xxx|do not use|not implemented)\b|>>>"
    r"|.*\b(is deprecated|(for|private) internal use|internal (helper|use|function|method|class))\b",
    re.IGNORECASE,
)
_CALL = re.compile(
    r"(?:[^\n=]+ = )?[\w.<>]+\((?:[^()]|\([^()]*\))*\)"  # [(typ, [data]) =] name(arguments)
    r"(?:\s*->\s*(?P<gives>.*?)(?:\.\s|\n|$)|[.:]?\s*(?:\n|$)|\s+--\s)\s*"
)
_ASIDE = re.compile(r"\n\s*(?:\n|>>>|[*-] |(?:Arg|Argument|Parameter|Return|Raise|Example|Usage|Note)s?:)")
_END = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\beg)(?<!\bie)(?<!\bvs)(?<!\betc)[.!?]['\")]*(?=\s)|\betc\.(?=\s+[A-Z])")
_WORD = re.compile(r"[A-Z]+(?![a-z])\d*|[A-Z]?[a-z]+\d*|[^\W\d_]+|\d+")
_SAYS_NOTHING = set(re.findall(r"\w+", "a an the of for to in is and this class function method object type module"))


@dataclass(frozen=True)
class Documented:
    """Function, class, method or property with its signature and the first sentence of its docstring."""

    name: str
    signature: str
    says: str


def standard_library_docs() -> list[Documented]:
    """Reads the documented functions and classes of the running Python's standard library, without importing any."""
    folder, remedy = Path(sysconfig.get_paths()["stdlib"]), "install Python with its library's source"
    documented = read_folder(folder)
    if not documented:
        raise TwofoldError(f"{folder}: holds no Python source with docstrings; {remedy}")
    return documented


def pairs(documented: Iterable[Documented]) -> list[Pair]:
    """Pairs of a sentence (context) and the name and call that it describes (response).

    `json dumps: json.dumps(obj, skipkeys, ...)`: first the name in words, since a sentence model reads `base HTTP
    server` but not `BaseHTTPServer`, and since what stands first is never cut; then the call by its full name, so that
    no two responses are alike and a hit can be pasted. Defaults are left out: `None` and `False` are in all of them.
    """
    return [{"context": [item.says], "response": _readable(item)} for item in documented]


def read_folder(folder: Path) -> list[Documented]:
    """Reads the documented functions and classes of a folder, sorted by name; a repeated sentence counts once."""
    named: dict[str, Documented] = {}
    for path, module in _modules(folder):
        for item in _in_body(_statements(path), module):
            named.setdefault(item.name, item)
    said: dict[str, Documented] = {}
    for _, item in sorted(named.items()):
        said.setdefault(item.says.casefold().rstrip(".!"), item)
    return list(said.values())


def _modules(folder: Path) -> Iterator[tuple[Path, str]]:
    """Files of public modules with their import names."""
    for here, folders, files in os.walk(folder):
        package = Path(here).relative_to(folder).parts
        # Names that cannot be imported, such as site-packages and config-3.11, are not of the library.
        folders[:] = sorted(name for name in folders if name.isidentifier() and name not in _LEFT_OUT)
        for file in sorted(files):
            stem, ending = os.path.splitext(file)
            if ending != ".py" or not stem.isidentifier():
                continue
            name = ".".join(package if stem == "__init__" else (*package, stem))
            name = _SHOWN_AS.get(name, name)
            if name and _public(name):
                yield Path(here, file), name


def _statements(path: Path) -> list[ast.stmt]:
    """Reads those of a module; none from a file that is not valid Python."""
    try:
        source = path.read_bytes().decode().removeprefix("\ufeff")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the library's own old escapes are not the caller's business
            return ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _public(name: str) -> bool:
    return not any(part.startswith("_") for part in name.split("."))


def _in_body(body: Iterable[ast.AST], inside: str, of_class: bool = False) -> Iterator[Documented]:
    """Yields documented definitions of a module or class body, also under `if` and `try`."""
    for node in body:
        if isinstance(node, ast.If | ast.Try | ast.ExceptHandler):
            branches = [getattr(node, name, []) for name in ("body", "handlers", "orelse", "finalbody")]
            yield from _in_body(chain(*branches), inside, of_class)
        elif isinstance(node, _Function | ast.ClassDef) and _public(node.name):
            name = f"{inside}.{node.name}"
            if name in _NOT_THERE:
                continue
            signature, says = _signature(node, of_class), _first_sentence(node)
            if signature is not None and says and not _says_nothing(says, name):
                yield Documented(name, name + signature, says)
            if isinstance(node, ast.ClassDef):
                yield from _in_body(node.body, name, of_class=True)


def _signature(node: _Function | ast.ClassDef, of_class: bool) -> str | None:
    """Arguments in brackets; empty for a property, None for a definition that only extends another one."""
    if isinstance(node, ast.ClassDef):  # the arguments it is made with, where its own body tells
        makers = {item.name: item for item in node.body if isinstance(item, _Function)}
        maker = makers.get("__init__") or makers.get("__new__")
        return f"({_arguments(maker.args, drop_first=True)})" if maker else ""
    # `@width.setter` is a setter, `@functools.lru_cache(3)` an lru_cache.
    decorators = {ast.unparse(item).partition("(")[0].rpartition(".")[2] for item in node.decorator_list}
    if decorators & _NOT_THE_THING:
        return None
    if decorators & _PROPERTIES:
        return ""
    return f"({_arguments(node.args, drop_first=of_class and 'staticmethod' not in decorators)})"


def _arguments(args: ast.arguments, drop_first: bool) -> str:
    """Arguments as written, without annotations and without self; a long list ends in `...`."""
    parameters = _parameters(args)
    if (args.posonlyargs or args.args) and (drop_first or parameters[0][0] == "self"):
        del parameters[: 2 if parameters[1:2] == [("/", None)] else 1]
    shown = []
    for name, default in parameters:
        value = f"={ast.unparse(default)}" if default else ""
        shown.append(name + (value if len(value) <= LONGEST_DEFAULT + 1 else f"={_CUT}"))
    if len(", ".join(shown)) > LONGEST_ARGUMENTS:
        while shown and (shown[-1] == "*" or len(", ".join([*shown, _CUT])) > LONGEST_ARGUMENTS):
            shown.pop()
        shown.append(_CUT)
    return ", ".join(shown)


def _parameters(args: ast.arguments) -> list[tuple[str, ast.expr | None]]:
    """Yields the parameters of a definition, `/` and `*` included, each with its default."""
    positional = [argument.arg for argument in (*args.posonlyargs, *args.args)]
    defaults = [None] * (len(positional) - len(args.defaults)) + args.defaults
    parameters: list[tuple[str, ast.expr | None]] = list(zip(positional, defaults, strict=True))
    if args.posonlyargs:
        parameters.insert(len(args.posonlyargs), ("/", None))
    if args.vararg or args.kwonlyargs:
        parameters.append((f"*{args.vararg.arg}" if args.vararg else "*", None))
    parameters += zip((argument.arg for argument in args.kwonlyargs), args.kw_defaults, strict=True)
    return [*parameters, (f"**{args.kwarg.arg}", None)] if args.kwarg else parameters


def _first_sentence(node: _Function | ast.ClassDef) -> str:
    """First sentence of a docstring on one line, without a repeated call before it."""
    text = inspect.cleandoc(ast.get_docstring(node, clean=False) or "").removeprefix("+").lstrip()
    while call := _CALL.match(text):
        # `keys() -> a view of the keys` says it all; where more follows, that is the sentence.
        text = text[call.end() :] or call["gives"] or ""
    paragraph = " ".join(_ASIDE.split(text, maxsplit=1)[0].split())
    end = _END.search(paragraph)
    return paragraph[: end.end()] if end else paragraph


def _says_nothing(says: str, name: str) -> bool:
    """Returns True for a sentence that is a stub, not plain text, under three words, or only repeats the name."""
    if len(says.split()) < 3 or not says.isprintable() or _STUB.match(says):
        return True
    last = name.rpartition(".")[2]
    known = {word.lower() for word in (last, *last.split("_"), *_WORD.findall(last))}
    return {word.lower() for word in _WORD.findall(says)} <= known | _SAYS_NOTHING


def _readable(item: Documented) -> str:
    words = " ".join(_WORD.findall(item.name))
    if item.signature == item.name:
        return f"{words}: {item.name}"
    arguments, cut = re.subn(r"(^|, )\.\.\.$", "", item.signature[len(item.name) + 1 : -1])
    parsed = ast.parse(f"def f({arguments}): ...").body[0]
    assert isinstance(parsed, ast.FunctionDef)
    names = [name for name, _ in _parameters(parsed.args) if name not in ("/", "*")]
    return f"{words}: {item.name}({', '.join(names + [_CUT] * cut)})"
