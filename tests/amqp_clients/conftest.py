"""Tests with clients of other languages run one after another: they take both cores, and have limits of time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.amqp_clients.building import MissingError
from tests.amqp_clients.server import Server
from tests.cluster import rays

rays.folder()  # Before any test imports Ray.


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """First of all: the worker reads the groups in this hook too."""
    for item in items:
        if item.get_closest_marker("clients") is not None:
            item.add_marker(pytest.mark.xdist_group("amqp_clients"))


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Where a program is missing, the test is skipped here, and fails in CI."""
    try:
        return (yield)
    except MissingError as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing))
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A raybroker that serves AMQP 1.0."""
    with Server("raybroker", tmp_path_factory.mktemp("amqp") / "broker") as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "broker"
