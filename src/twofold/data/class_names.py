"""Rows of a `datasets.Dataset`, in which classes (ClassLabel) are given by their names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from twofold.types import Example

Convert = Callable[[Any], Any]


def dataset_rows(dataset: Any) -> Iterator[Example]:
    """Reads rows one by one as Python values, whatever the format of the dataset; a missing class becomes None."""
    plain = dataset.with_format(None)
    features = dataset.features or {}  # a stream may not know its features
    converts = {column: convert for column, feature in features.items() if (convert := _convert(feature))}
    for values in plain:
        yield {column: converts[column](value) if column in converts else value for column, value in values.items()}


def _convert(feature: Any) -> Convert | None:
    """Returns the function that turns the numbers of a feature into names, or None if the feature has no names."""
    names = getattr(feature, "names", None)
    if names is not None:
        # Names that only repeat the numbers, as of the right candidate of a ranking row, say nothing.
        if list(names) == [str(number) for number in range(len(names))]:
            return None
        return lambda number: None if number is None or number < 0 else names[number]
    convert = _convert(feature.feature) if hasattr(feature, "feature") else None
    if convert is None:
        return None
    return lambda values: None if values is None else [convert(value) for value in values]
