"""Hostile inputs through the command line: one clear line each, and nothing lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attacks.cases import GROUPS
from tests.attacks.cases.memory import MEMORY, TAKEN
from tests.attacks.cases.stage import build_stage
from tests.attacks.inputs import GOOD, Case, attack, measured, nothing
from twofold.data.tokenizer import TextTokenizer

NO_LIMIT = 1 << 40
ABOVE = 1_500_000
"""KiB that a hostile input may take above one that is none: some lines of 16 MB, or an image of 64 MiB, decoded."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, tokenizer: TextTokenizer) -> Path:
    return build_stage(tmp_path_factory.mktemp("attacked") / "stage", tokenizer)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("group", GROUPS)
def test_hostile_inputs_end_with_one_clear_line_and_lose_nothing(tmp_path: Path, stage: Path, group: str) -> None:
    outcomes = attack(GROUPS[group], tmp_path, stage)
    faults = [outcome for outcome in outcomes if outcome not in GOOD]
    assert not faults, "\n".join(faults)


def test_there_are_nine_hundred_of_them() -> None:
    names = [case.name for cases in GROUPS.values() for case in cases]
    assert len(names) == len(set(names)) >= 900


@pytest.mark.bench
def test_inputs_that_ask_for_gigabytes_get_none(tmp_path: Path, stage: Path) -> None:
    sizes: dict[str, int] = {}
    plain = Case("plain", nothing, ("predict", "STAGE/text", "one"), "", 0)
    attack([plain], tmp_path / "plain", stage, measured(NO_LIMIT, sizes))
    outcomes = attack(MEMORY, tmp_path / "hostile", stage, measured(sizes["plain"] + ABOVE, sizes))
    assert not outcomes.keys() - GOOD, "\n".join(outcomes.keys() - GOOD)


def test_every_quick_case_that_is_measured_is_there() -> None:
    assert {case.name for case in MEMORY} >= TAKEN
