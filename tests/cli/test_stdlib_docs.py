"""The docs of the standard library are read from its source, once for each sentence, and it is never run."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from twofold.cli.stdlib_docs import Documented, pairs, read_folder, standard_library_docs
from twofold.errors import TwofoldError

ELSEWHERE = """
import hashlib, json, sys, sysconfig
from twofold.cli.stdlib_docs import standard_library_docs
sysconfig.get_paths()  # this alone reads how Python was built, which is kept in a module
before = set(sys.modules)
digest = hashlib.sha256(repr(standard_library_docs()).encode()).hexdigest()
print(json.dumps({"digest": digest, "new": sorted(set(sys.modules) - before), "all": sorted(sys.modules)}))
"""
MADE_UP = {
    "broken.py": b"def half(:\n",
    "latin.py": b'def accent():\n    """Write an \xe9 as one byte."""\n',
    "zeros.py": b"\x00",
    "_hidden.py": b'def seen():\n    """Never seen by anyone here."""\n',
    "_pyio.py": b'def opened(path: str) -> int:\n    """Open a path and count it."""\n',
    "tests/inner.py": b'def tried():\n    """Try all of the things."""\n',
    "site-packages/other.py": b'def guest():\n    """Come from some other place."""\n',
    "pack/__init__.py": b'def packed():\n    """Put many things into one."""\n',
    "pack/repeats.py": b'def repeated():\n    """Put many things into ONE"""\n',
    "shapes.py": b'''
raise RuntimeError("this file is read, not run")
from typing import overload
class Outer:
    """Hold the things inside."""
    def __init__(self, size: int = 3, /, *, kind="\\d"):
        """Make room for the things."""
    class Inner:
        """Lie within the other one."""
        def __new__(cls, *parts): ...
        @staticmethod
        def plain(first, second=()):
            """Take what is given first."""
    @property
    def width(self) -> int:
        """How wide it all is."""
    @width.setter
    def width(self, value: int) -> None:
        """Make it so wide at once."""
    @classmethod
    def of(cls, *items, **more):
        """Make one of such items, e.g. of three.  Then stop."""
    def _mine(self):
        """Keep this to oneself please."""
    def __len__(self):
        """Count the things inside it."""
class _Private:
    def method(self):
        """Stay out of everyone's sight."""
@overload
def choose(a: int) -> int:
    """Choose a whole number now."""
@overload
def choose(a: str) -> str: ...
def choose(a):
    """Choose whichever of
    them is best

    and more."""
if True:
    async def later(when: float = 1.0):
        """later(when) -> None

        Wait until it is time. Do nothing."""
try:
    import nothing
except ImportError:
    def keys(box): "keys(box) -> a view of what it holds"
def short(): "Too short."
def endless(%s): "Take one name without end."
def torn(): "Write half a character: \\udc80"
def see(): "See the other function instead."
def old(): "Deprecated, and gone tomorrow morning."
def inner_use(): "A box for internal use only."
def named_thing(): "This is the named thing."
def wide(first, second=(1, 2, 3, 4, 5, 6, 7, 8, 9, 10), *, a_very_long_argument_name_number_one=None, the_other=None,
         another_very_long_argument_name=0, yet_another=None, **rest):
    "Take far too many arguments."
'''
    % (b"a" * 200),
}


@pytest.fixture(scope="module")
def library() -> dict[str, Documented]:
    return {item.name: item for item in standard_library_docs()}


@pytest.fixture
def made_up(tmp_path: Path) -> list[Documented]:
    for name, content in MADE_UP.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    return read_folder(tmp_path)


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("shutil.rmtree", "(path, ignore_errors=False, onerror=None", "Recursively delete a directory tree."),
        ("json.dumps", "(obj, *, skipkeys=False, ensure_ascii=True", "Serialize ``obj`` to a JSON formatted ``str``."),
        ("textwrap.wrap", "(text, width=70, **kwargs)", "Wrap a single paragraph of text, returning a list of wrapped"),
        ("shutil.disk_usage", "(path)", "Return disk usage statistics about the given path"),
        ("datetime.date.today", "()", "Construct a date from time.time()."),
        ("decimal.Decimal.sqrt", "(context=None)", "Return the square root of self."),
    ],
)
def test_well_known_functions_are_found(library: dict[str, Documented], name: str, arguments: str, says: str) -> None:
    assert library[name].signature.startswith(name + arguments)
    assert library[name].says.startswith(says)


def test_the_library_has_thousands_of_sentences_each_said_once(library: dict[str, Documented]) -> None:
    assert len(library) > 3000
    assert len({item.says for item in library.values()}) == len(library)
    assert all(len(item.says.split()) >= 3 and item.says.isprintable() for item in library.values())
    assert all(item.signature.startswith(item.name) for item in library.values())


def test_names_are_public_and_sorted(library: dict[str, Documented]) -> None:
    assert list(library) == sorted(library)
    assert not [name for name in library for part in name.split(".") if part.startswith("_")]


def test_another_process_reads_the_same_and_imports_nothing(library: dict[str, Documented]) -> None:
    done = subprocess.run([sys.executable, "-c", ELSEWHERE], capture_output=True, text=True, check=True)
    there = json.loads(done.stdout)
    assert there["digest"] == hashlib.sha256(repr(list(library.values())).encode()).hexdigest()
    assert there["new"] == []
    assert not {"this", "antigravity", "tkinter"} & set(there["all"])


@pytest.mark.parametrize("name", ["broken.py", "latin.py", "zeros.py"])
def test_a_file_that_is_not_python_is_skipped(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(MADE_UP[name])
    (tmp_path / "whole.py").write_bytes(MADE_UP["_pyio.py"])
    assert [item.name for item in read_folder(tmp_path)] == ["whole.opened"]


def test_what_a_folder_documents_is_told_by_name_call_and_sentence(made_up: list[Documented]) -> None:
    assert [(item.signature, item.says) for item in made_up] == [
        ("io.opened(path)", "Open a path and count it."),
        ("pack.packed()", "Put many things into one."),
        ("shapes.Outer(size=3, /, *, kind='\\\\d')", "Hold the things inside."),
        ("shapes.Outer.Inner(*parts)", "Lie within the other one."),
        ("shapes.Outer.Inner.plain(first, second=())", "Take what is given first."),
        ("shapes.Outer.of(*items, **more)", "Make one of such items, e.g. of three."),
        ("shapes.Outer.width", "How wide it all is."),
        ("shapes.choose(a)", "Choose whichever of them is best"),
        ("shapes.endless(...)", "Take one name without end."),
        ("shapes.keys(box)", "a view of what it holds"),
        ("shapes.later(when=1.0)", "Wait until it is time."),
        (
            "shapes.wide(first, second=..., *, a_very_long_argument_name_number_one=None, the_other=None, "
            "another_very_long_argument_name=0, ...)",
            "Take far too many arguments.",
        ),
    ]


def test_a_pair_is_a_sentence_and_the_name_in_words_with_its_call() -> None:
    documented = [
        Documented("shutil.rmtree", "shutil.rmtree(path, ignore_errors=False, *, dir_fd=None)", "Delete a tree."),
        Documented("http.HTTPServer2.send_it", "http.HTTPServer2.send_it(a=(1, 2), /, *b, **c)", "Send it all now."),
        Documented("io.IOBase.isClosed", "io.IOBase.isClosed", "Whether it is closed."),
        Documented("m.wide", "m.wide(a, b=..., ...)", "Take very many arguments."),
        Documented("m.dots", "m.dots(a=(1, ...), b=...)", "Take what has a long default."),
        Documented("m.all", "m.all(...)", "Take one endless name only."),
    ]
    assert pairs(documented) == [
        {
            "context": ["Delete a tree."],
            "response": "shutil rmtree: shutil.rmtree(path, ignore_errors, dir_fd)",
        },
        {
            "context": ["Send it all now."],
            "response": "http HTTP Server2 send it: http.HTTPServer2.send_it(a, *b, **c)",
        },
        {"context": ["Whether it is closed."], "response": "io IO Base is Closed: io.IOBase.isClosed"},
        {"context": ["Take very many arguments."], "response": "m wide: m.wide(a, b, ...)"},
        {"context": ["Take what has a long default."], "response": "m dots: m.dots(a, b)"},
        {"context": ["Take one endless name only."], "response": "m all: m.all(...)"},
    ]


def test_no_two_responses_of_the_library_are_alike(library: dict[str, Documented]) -> None:
    assert len({str(pair["response"]) for pair in pairs(library.values())}) == len(library)


def test_a_library_without_source_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    with pytest.raises(TwofoldError, match="holds no Python source"):
        standard_library_docs()
