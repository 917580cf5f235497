"""Files of the page: small, self-contained, in two languages, and without a way for data to become markup."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import twofold

PAGE = Path(twofold.__file__).parent / "serve" / "page"
FILES = sorted(path for path in PAGE.rglob("*") if path.is_file())
SCRIPTS = [path for path in FILES if path.suffix == ".js"]
LARGEST = 200_000
KEY = re.compile(r'^  "([\w.]+)": ', re.MULTILINE)
COMPUTED = (
    "theme.",
    "language.",
    "tab.",
    "attention.",
    "certificate.legend.",
    "influence.",
    "input.",
    "labels.",
    "write.",
)
"""Beginnings of keys whose ends the page puts together from what the server says."""


def code(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def keys(language: str) -> list[str]:
    return KEY.findall(code(PAGE / "i18n" / f"{language}.js"))


def test_the_page_is_smaller_than_200_kilobytes() -> None:
    assert FILES
    assert sum(path.stat().st_size for path in FILES) < LARGEST


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PAGE).as_posix())
def test_nothing_is_loaded_from_elsewhere(path: Path) -> None:
    places = set(re.findall(r"https?://[^\s\"'`)]+", code(path)))
    assert places <= {"http://www.w3.org/2000/svg"}  # a name, not a place


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.relative_to(PAGE).as_posix())
def test_data_never_becomes_markup_or_code(path: Path) -> None:
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "DOMParser"):
        assert way not in code(path)
    assert code(path).startswith("/** ")


def test_both_languages_say_the_same_things() -> None:
    assert len(keys("en")) == len(set(keys("en"))) > 100
    assert keys("en") == keys("ko")


def test_both_languages_fill_in_the_same_values() -> None:
    said = {}
    for language in ("en", "ko"):
        lines = re.findall(r'^  "([\w.]+)": "(.*)",$', code(PAGE / "i18n" / f"{language}.js"), re.MULTILINE)
        said[language] = {key: set(re.findall(r"\{\w+\}", text)) for key, text in lines}
    assert len(said["en"]) == len(keys("en"))
    assert said["en"] == said["ko"]


def test_every_text_that_is_asked_for_is_there_and_every_text_is_used() -> None:
    everything = "\n".join(code(path) for path in FILES if "i18n" not in path.parts)
    asked = set(re.findall(r"""\b(?:t|maybe)\((?:[^()"]*\? )?"([\w.]+)\"""", everything))
    asked |= set(re.findall(r'data-t="([\w.]+)"', everything))
    assert asked
    assert asked <= set(keys("en"))
    written = set(re.findall(r'"([\w.]+)"', everything))
    unused = [key for key in keys("en") if key not in written and not key.startswith(COMPUTED)]
    assert unused == []


def test_every_module_is_loaded_at_once() -> None:
    """Modules that other modules import are named in the page, so that the browser need not find them one by one."""
    named = set(re.findall(r'(?:src|href)="/page/([\w/.]+\.js)"', code(PAGE / "index.html")))
    assert named == {path.relative_to(PAGE).as_posix() for path in SCRIPTS}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.relative_to(PAGE).as_posix())
def test_a_module_fits_in_an_editor(path: Path) -> None:
    assert code(path).count("\n") <= 300
