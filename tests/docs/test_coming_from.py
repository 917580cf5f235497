"""docs/coming-from.md shows lines of other libraries and ours beside them, for everything that it promises."""

from __future__ import annotations

import re

from tests.docs.blocks import ROOT, blocks_of

PAGE = ROOT / "docs" / "coming-from.md"
LEAST = {"sentence-transformers": 10, "transformers": 10, "JoeyNMT": 5, "segmentation_models.pytorch": 5}


def test_everything_is_shown_in_their_lines_and_in_ours() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    places = [number for number, line in enumerate(lines, start=1) if line.startswith("### ")]
    counts = dict.fromkeys(LEAST, 0)
    for start, end in zip(places, [*places[1:], len(lines)], strict=True):
        library = next(line for line in reversed(lines[:start]) if re.match("## ", line)).removeprefix("## ")
        blocks = [block for block in blocks_of(PAGE) if start < block.line < end]
        assert {block.title for block in blocks} == {library, ""}, lines[start - 1]
        counts[library] += 1
    assert all(counts[library] >= least for library, least in LEAST.items())
