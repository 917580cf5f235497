"""What an evaluation found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Report:
    """Metrics by name, over how many examples, and tables that go with them."""

    metrics: dict[str, float]
    examples: int
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
