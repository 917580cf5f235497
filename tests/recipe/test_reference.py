"""docs/settings.md lists every setting, with the docstring that stands in the code."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any, cast, get_args, get_type_hints

import pytest

from twofold.config import Part, kinds, part_config
from twofold.recipe import Recipe
from twofold.recipe.reference import configs, page, settings_of

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def reachable() -> set[type]:
    """Every settings dataclass that can stand in a recipe, counted without the generator."""
    waiting: list[Any] = [Recipe]
    reached: set[type] = set()
    while waiting:
        kind = waiting.pop()
        waiting += get_args(kind)
        if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)) or kind in reached:
            continue
        if issubclass(kind, Part) and "role" in vars(kind):
            waiting += [part_config(kind.role, name) for name in kinds(kind.role)]
        else:
            reached.add(kind)
            hints = get_type_hints(kind)
            waiting += [hints[field.name] for field in dataclasses.fields(kind)]
    return reached


def fields() -> set[tuple[str, str, str]]:
    """File, class and name of every setting that can stand in a recipe."""
    return {
        (f"src/{config.__module__.replace('.', '/')}", config.__name__, field.name)
        for config in reachable()
        for field in dataclasses.fields(cast(Any, config))
    }


def rows(text: str) -> dict[tuple[str, str, str], str]:
    """Description of each setting on the page, by file, class and name."""
    described = {}
    for section in text.split("\n### ")[1:]:
        place = re.search(r"`(\w+)` in `(src/twofold/[\w/]+)\.py`", section)
        assert place, section
        for row in re.findall(r"^\| `(\w+)` \|(.*)\|$", section, re.M):
            path = place[2].removesuffix("/__init__")
            described[path, place[1], row[0]] = re.split(r"(?<!\\)\|", row[1])[-1].strip()
    return described


def test_the_page_is_what_the_generator_writes() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "docs/settings.md is out of date; run `make settings`"


@pytest.mark.parametrize("config", configs(), ids=lambda config: f"{config.__module__}.{config.__name__}")
def test_every_setting_has_a_docstring(config: type) -> None:
    assert [setting.name for setting in settings_of(config) if not setting.text] == []


def test_the_page_describes_every_setting() -> None:
    described = rows(PAGE.read_text(encoding="utf-8"))
    assert described.keys() == fields()
    assert len(fields()) == int(re.findall(r"^All (\d+) settings", PAGE.read_text(encoding="utf-8"), re.M)[0])
    assert [place for place, text in described.items() if not text] == []


def test_every_link_on_the_page_leads_to_a_heading() -> None:
    text = PAGE.read_text(encoding="utf-8")
    headings = {title.lower().replace(" ", "-") for title in re.findall(r"^#+ (.+)$", text, re.M)}
    assert set(re.findall(r"\]\(#([\w-]+)\)", text)) <= headings


def test_defaults_that_a_part_brings_are_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert "| `epochs` | a whole number | `10`; `3` with [Output ranking](#output-ranking) |" in text
    assert "| `column` | a text | `source`; `context` with [Output ranking](#output-ranking) |" in text
