"""A host whose store fails ends its process and comes back; handles that are open outlive that."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from tests.cluster import rays
from tests.contracts.handles import bodies, until

FAILURES = 3
RECOVERED_S = 90
"""A process of Ray takes half a minute to start on a busy machine."""


@pytest.fixture(scope="module")
def failpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where a failpoint is written while the cluster runs."""
    point = tmp_path_factory.mktemp("failpoint") / "point"
    os.environ["RB_FAILPOINT"] = f"@{point}"
    yield point
    del os.environ["RB_FAILPOINT"]


@pytest.fixture(scope="module")
def cluster(failpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with rays.running_ray(), rb.start(config=rays.small_store(tmp_path_factory.mktemp("store"))) as started:
        yield started


@pytest.mark.timeout(400)
def test_open_handles_outlive_a_host_whose_store_fails(cluster: Any, failpoint: Path) -> None:
    """Whoever comes while the process is still there, and has failed, is told to come again."""
    with rb.connect(**{"raybroker.reconnect.timeout_ms": RECOVERED_S * 1000}) as connection:
        connection.admin().create_destination("queue", "orders", hosting="dedicated")
        session = connection.session()
        producer, consumer = session.producer("orders"), session.consumer("orders")
        got: list[Any] = []
        number = 0
        for _ in range(FAILURES):
            producer.send(number)
            failpoint.write_text("b1/h*@store.commit:1:fail")
            waiting = [producer.send_async(number + n) for n in range(1, 20)]
            number += 20
            assert all(future.result(RECOVERED_S) for future in waiting)
            producer.send(number - 1)
            assert not failpoint.exists()
        until(
            lambda: got.extend(bodies(consumer.receive_many(100, timeout=1))) or number - 1 in got,
            timeout_s=RECOVERED_S,
        )
        assert sorted(set(got)) == list(range(number))
