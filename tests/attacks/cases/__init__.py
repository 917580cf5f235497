"""Hostile inputs as data, by what they attack."""

from __future__ import annotations

from tests.attacks.cases.images import IMAGES
from tests.attacks.cases.indexes import INDEXES
from tests.attacks.cases.models import MODELS
from tests.attacks.cases.recipes import RECIPES
from tests.attacks.cases.rows import ROWS
from tests.attacks.inputs import Case

GROUPS: dict[str, list[Case]] = {**RECIPES, **ROWS, **IMAGES, **MODELS, **INDEXES}
