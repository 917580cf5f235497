"""Reads what the Python standard library says about itself: a sentence for each function, found in its source."""

from __future__ import annotations

import ast
import inspect
import os
import re
import sysconfig
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from twofold.errors import TwofoldError

Pair = dict[str, str | list[str]]
LONGEST_ARGUMENTS = 120
LONGEST_DEFAULT = 24
_CUT = "..."
_LEFT_OUT = {"test", "tests", "idle_test", "idlelib", "lib2to3", "turtledemo", "ensurepip", "encodings"}
_SHOWN_AS = {
    "_collections_abc": "collections.abc",
    "_py_warnings": "warnings",
    "_pydatetime": "datetime",
    "_pydecimal": "decimal",
    "_pyio": "io",
    "_threading_local": "threading",
    "concurrent.futures._base": "concurrent.futures",
    "pathlib._local": "pathlib",
    "tomllib._parser": "tomllib",
    "zipfile._path": "zipfile",
    "zoneinfo._zoneinfo": "zoneinfo",
}
"""Private files, in one version of Python or another, of what everyone imports by the public name."""
_NOT_THERE = {
    "concurrent.futures.Error",
    "tomllib.Flags",
    "tomllib.make_safe_parse_float",
    "tomllib.suffixed_err",
    "zipfile.FastLookup",
    "zipfile.InitializedState",
}
"""What the files above keep to themselves, without an underscore to tell."""
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
    """A function, class, method or property, how it is called, and the sentence that says what it does."""

    name: str
    signature: str
    says: str


@dataclass(frozen=True)
class Reading:
    """What a folder of Python source documents, and how many of its files could not be read as Python."""

    documented: list[Documented]
    skipped: int


def standard_library_docs() -> list[Documented]:
    """All that the source of the running Python's own library documents; none of it is imported."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    documented = read_folder(folder).documented
    if not documented:
        raise TwofoldError(
            f"{folder}: holds no Python source with docstrings; install Python with its library's source"
        )
    return documented


def pairs(documented: Iterable[Documented]) -> list[Pair]:
    """A sentence as the context, and as the response what it describes, in names alone.

    `json dumps: json.dumps(obj, skipkeys, ...)`: first the name in words, since a sentence model reads `base HTTP
    server` but not `BaseHTTPServer`, and since what stands first is never cut; then the call by its full name, so that
    no two responses are alike and a hit can be pasted. Defaults are left out: `None` and `False` are in all of them.
    """
    return [{"context": [item.says], "response": _readable(item)} for item in documented]


def read_folder(folder: Path) -> Reading:
    """What the Python files under a folder document, sorted by name; of a sentence said twice, the first."""
    found: dict[str, Documented] = {}
    skipped = 0
    for path, module in _modules(folder):
        tree = _parsed(path)
        skipped += tree is None
        for item in _in_body(tree.body, module) if tree else ():
            found.setdefault(item.name, item)
    said: dict[str, Documented] = {}
    for item in sorted(found.values(), key=lambda item: item.name):
        said.setdefault(item.says.casefold().rstrip(".!"), item)
    return Reading(list(said.values()), skipped)


def _modules(folder: Path) -> Iterator[tuple[Path, str]]:
    """The files of public modules, and the names they are imported by."""
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


def _parsed(path: Path) -> ast.Module | None:
    try:
        source = path.read_bytes().decode().removeprefix("\ufeff")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the library's own old escapes are not the caller's business
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _public(name: str) -> bool:
    return not any(part.startswith("_") for part in name.split("."))


def _in_body(body: Sequence[ast.stmt], inside: str, of_class: bool = False) -> Iterator[Documented]:
    """The documented things among the statements of a module or a class, also under `if` and `try`."""
    for node in body:
        if isinstance(node, ast.If):
            yield from _in_body([*node.body, *node.orelse], inside, of_class)
        elif isinstance(node, ast.Try):
            handlers = [statement for handler in node.handlers for statement in handler.body]
            yield from _in_body([*node.body, *handlers, *node.orelse, *node.finalbody], inside, of_class)
        elif isinstance(node, _Function | ast.ClassDef) and _public(node.name):
            name = f"{inside}.{node.name}"
            if name in _NOT_THERE:
                continue
            signature = _class_signature(node) if isinstance(node, ast.ClassDef) else _signature(node, of_class)
            says = _first_sentence(node)
            if signature is not None and says and not _says_nothing(says, name):
                yield Documented(name, name + signature, says)
            if isinstance(node, ast.ClassDef):
                yield from _in_body(node.body, name, of_class=True)


def _class_signature(node: ast.ClassDef) -> str:
    """The arguments a class is made with, where its own body tells."""
    makers = {item.name: item for item in node.body if isinstance(item, _Function)}
    maker = makers.get("__init__") or makers.get("__new__")
    return f"({_arguments(maker.args, drop_first=True)})" if maker else ""


def _signature(node: _Function, of_class: bool) -> str | None:
    """The arguments in brackets, nothing for a property, and None for what only adds to a thing defined elsewhere."""
    decorators = {_last_name(decorator) for decorator in node.decorator_list}
    if decorators & _NOT_THE_THING:
        return None
    if decorators & _PROPERTIES:
        return ""
    return f"({_arguments(node.args, drop_first=of_class and 'staticmethod' not in decorators)})"


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _arguments(args: ast.arguments, drop_first: bool) -> str:
    """The arguments as written, without annotations and without self; of very many, the last become `...`."""
    positional = [*args.posonlyargs, *args.args]
    defaults = [None] * (len(positional) - len(args.defaults)) + args.defaults
    shown = [_argument(*each) for each in zip(positional, defaults, strict=True)]
    if args.posonlyargs:
        shown.insert(len(args.posonlyargs), "/")
    if positional and (drop_first or positional[0].arg == "self"):
        shown = shown[2:] if shown[1:2] == ["/"] else shown[1:]
    if args.vararg or args.kwonlyargs:
        shown.append(f"*{args.vararg.arg}" if args.vararg else "*")
    shown += [_argument(*each) for each in zip(args.kwonlyargs, args.kw_defaults, strict=True)]
    if args.kwarg:
        shown.append(f"**{args.kwarg.arg}")
    if len(", ".join(shown)) > LONGEST_ARGUMENTS:
        while shown and (shown[-1] == "*" or len(", ".join([*shown, _CUT])) > LONGEST_ARGUMENTS):
            shown.pop()
        shown.append(_CUT)
    return ", ".join(shown)


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    value = ast.unparse(default) if default else ""
    return f"{argument.arg}={value if len(value) <= LONGEST_DEFAULT else _CUT}" if default else argument.arg


def _first_sentence(node: _Function | ast.ClassDef) -> str:
    """The first sentence of a docstring on one line, after any line that only repeats the call."""
    text = inspect.cleandoc(ast.get_docstring(node, clean=False) or "").removeprefix("+").lstrip()
    while call := _CALL.match(text):
        # `keys() -> a view of the keys` says it all; where more follows, that is the sentence.
        text = text[call.end() :] or call["gives"] or ""
    paragraph = " ".join(_ASIDE.split(text, maxsplit=1)[0].split())
    end = _END.search(paragraph)
    return paragraph[: end.end()] if end else paragraph


def _says_nothing(says: str, name: str) -> bool:
    """Whether a sentence is a stub, no plain text, under three words, or holds no word beyond the name itself."""
    own = name.rpartition(".")[2]
    known = {own.lower(), *own.lower().split("_"), *(word.lower() for word in _WORD.findall(own))}
    words = {word.lower() for word in _WORD.findall(says)}
    if len(says.split()) < 3 or not says.isprintable() or _STUB.match(says):
        return True
    return words <= known | _SAYS_NOTHING


def _readable(item: Documented) -> str:
    words = " ".join(_WORD.findall(item.name))
    arguments = item.signature[len(item.name) + 1 : -1]
    if item.signature == item.name:
        return f"{words}: {item.name}"
    cut = [_CUT] if arguments == _CUT or arguments.endswith(f", {_CUT}") else []
    kept = arguments.removesuffix(_CUT).removesuffix(", ") if cut else arguments
    parsed = ast.parse(f"def f({kept}): ...").body[0]
    assert isinstance(parsed, ast.FunctionDef)
    args = parsed.args
    names = [argument.arg for argument in (*args.posonlyargs, *args.args)]
    names += [f"*{args.vararg.arg}"] if args.vararg else []
    names += [argument.arg for argument in args.kwonlyargs]
    names += [f"**{args.kwarg.arg}"] if args.kwarg else []
    return f"{words}: {item.name}({', '.join(names + cut)})"
