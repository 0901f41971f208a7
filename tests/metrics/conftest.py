"""One Ray for the tests of this folder that need one, of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import rays

rays.folder()  # Before any test of any folder imports Ray.


@pytest.fixture(scope="module")
def own_ray() -> Iterator[str]:
    """The address of a Ray that belongs to this module."""
    with rays.running_ray() as address:
        yield address
