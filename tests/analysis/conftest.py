"""One Spark for all tests that need one: it takes seconds to start, and gigabytes to have twice."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest


def missing(what: str) -> NoReturn:
    """Skip on a laptop; where everything is checked nothing may be missing."""
    if os.environ.get("CI"):
        pytest.fail(f"{what} is not installed, and the checks need it")
    pytest.skip(f"{what} is not installed")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with Spark are marked so and run in one worker, one after another.  Before marks choose among the tests."""
    for item in items:
        if item.nodeid.startswith("tests/analysis/") and "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.xdist_group("spark"))
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session", autouse=True)
def _cache_of_tests() -> Iterator[None]:
    """Commands that tests start keep class archives there, not in the home of who runs the tests."""
    with (
        tempfile.TemporaryDirectory(prefix="rbt-cache-", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("XDG_CACHE_HOME", folder)
        yield


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A Spark session on two cores with our sources."""
    pytest.importorskip("pyspark", reason="pyspark is not installed") if not os.environ.get("CI") else None
    from raybroker.analysis.spark import session
    from raybroker.model.errors import ConfigError

    try:
        with session.spark("local[2]", memory="1g", archive=False) as made:
            yield made
    except ConfigError as error:
        missing(str(error))
