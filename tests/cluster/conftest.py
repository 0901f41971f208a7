"""One Ray for each module of cluster tests, of their own, and one broker in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster import rays

rays.folder()  # Before any test of any folder imports Ray.


@pytest.fixture(scope="module")
def own_ray() -> Iterator[str]:
    """The address of a Ray that belongs to this module."""
    with rays.running_ray() as address:
        yield address


@pytest.fixture(scope="module")
def cluster(own_ray: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A broker named "default" with a store of its own."""
    import raybroker as rb

    started = rb.start(config=rays.small_store(tmp_path_factory.mktemp("store")))
    yield started
    started.stop()
