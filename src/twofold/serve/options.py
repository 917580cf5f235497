"""Options of generation in a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twofold.config import structure, unstructure
from twofold.generate.search import GenerateOptions
from twofold.model import Model
from twofold.serve.errors import too_many
from twofold.serve.service import Service


def options_of(service: Service, model: Model, given: Mapping[str, Any]) -> GenerateOptions:
    """Options of generation: those saved with the model, changed by the given ones."""
    saved: GenerateOptions = model.config.generate
    changes = dict(given)
    if changes.get("sample") and "beam" not in changes:
        changes |= {"beam": 1, "n_best": 1}
    if isinstance(changes.get("beam"), int) and "n_best" not in changes:
        changes["n_best"] = max(1, min(saved.n_best, changes["beam"]))
    options = structure({**unstructure(saved), **changes}, GenerateOptions, "options")
    if options.beam > service.settings.limits.beam:
        raise too_many("hypotheses", options.beam, service.settings.limits.beam, "options.beam")
    return options
