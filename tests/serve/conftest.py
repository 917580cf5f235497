"""One server with small models of every kind, shared by all tests of routes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.serve.serving import Served, serving
from tests.serve.small_set import SmallSet, small_set
from twofold.data.tokenizer import TextTokenizer


@pytest.fixture(scope="session")
def models(tokenizer: TextTokenizer, tmp_path_factory: pytest.TempPathFactory) -> SmallSet:
    return small_set(tokenizer, tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def served(models: SmallSet) -> Iterator[Served]:
    with serving(*(f"{name}={folder}" for name, folder in models.folders.items())) as server:
        yield server
