"""Trees of a whole repository are millions of objects that stay, and there are no cycles among them to look for."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _no_search_for_cycles() -> Iterator[None]:
    gc.disable()
    yield
    gc.freeze()
    gc.enable()
