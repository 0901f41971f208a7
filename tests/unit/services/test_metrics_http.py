"""The endpoint answers what is asked, and says so when it cannot."""

from __future__ import annotations

import gzip
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from raybroker.errors import ConfigError, ConnectionLostError
from raybroker.metrics.exposition import CONTENT_TYPE, Snapshot
from raybroker.model.setting import PortRange
from raybroker.services.metrics_http import Endpoint

TARGETS = [{"targets": ["h:1"], "labels": {"__meta_raybroker_broker": "b1"}}]


class Broker:
    """Answers with as many destinations as a test wants; remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[str | None] = []
        self.failure: Exception | None = None
        self.destinations = 1

    def __call__(self, names: str | None) -> Snapshot:
        self.asked.append(names)
        if self.failure is not None:
            raise self.failure
        rows = [{"name": f"q{i}", "type": "queue", "messages": i} for i in range(self.destinations if names else 0)]
        return Snapshot("c", "b1", {"connections": 2}, {"queue": {"messages": 5}}, rows)


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def base(broker: Broker) -> Iterator[str]:
    endpoint = Endpoint(broker, lambda: TARGETS)
    url = endpoint.start("127.0.0.1", PortRange(0, 0))
    yield url.removesuffix("/metrics")
    endpoint.stop()


def get(url: str, **headers: str) -> tuple[int, bytes, Any]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
            return answer.status, answer.read(), answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read(), error.headers


def test_a_scrape_gets_the_aggregate_tier(base: str, broker: Broker) -> None:
    status, body, headers = get(f"{base}/metrics")
    assert (status, headers["Content-Type"], broker.asked) == (200, CONTENT_TYPE, [None])
    assert b'raybroker_messages{cluster="c",broker="b1",type="queue"} 5\n' in body
    assert b"raybroker_destination_" not in body


@pytest.mark.parametrize(
    ("path", "asked", "tiers"),
    [
        ("/metrics?tier=destination", "*", {"destination"}),
        ("/metrics?tier=all", "*", {"aggregate", "destination"}),
        ("/metrics?tier=aggregate,destination&names=orders.*", "orders.*", {"aggregate", "destination"}),
        ("/metrics/destinations?names=q0", "q0", {"destination"}),
        ("/metrics?tier=aggregate&names=q0", None, {"aggregate"}),
    ],
)
def test_more_is_asked_for(base: str, broker: Broker, path: str, asked: str | None, tiers: set[str]) -> None:
    _, body, _ = get(base + path)
    assert broker.asked == [asked]
    found = {"destination" if line.startswith(b"raybroker_destination_") else "aggregate"
             for line in body.splitlines() if not line.startswith(b"#")}  # fmt: skip
    assert found == tiers


def test_a_large_page_is_compressed_for_those_who_can_read_that(base: str, broker: Broker) -> None:
    broker.destinations = 500
    plain = get(f"{base}/metrics/destinations")
    packed = get(f"{base}/metrics/destinations", **{"Accept-Encoding": "gzip"})
    assert packed[2]["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed[1]) == plain[1]
    assert len(packed[1]) < len(plain[1]) / 5


@pytest.mark.parametrize("error", [ConnectionLostError("gone"), TimeoutError()])
def test_a_broker_that_cannot_answer_fails_the_scrape(base: str, broker: Broker, error: Exception) -> None:
    broker.failure = error
    assert get(f"{base}/metrics")[0] == 503
    assert get(f"{base}/healthy")[0] == 503
    broker.failure = None
    assert get(f"{base}/healthy")[:2] == (200, b"ok\n")


def test_a_tier_that_there_is_not_is_refused(base: str) -> None:
    status, body, _ = get(f"{base}/metrics?tier=everything")
    assert (status, b"there is no tier 'everything'" in body) == (400, True)
    assert get(f"{base}/other")[0] == 404


def test_all_brokers_are_found_through_one(base: str) -> None:
    status, body, headers = get(f"{base}/sd")
    assert (status, headers["Content-Type"], json.loads(body)) == (200, "application/json", TARGETS)


def test_a_port_that_is_taken_is_an_error_that_names_the_setting(base: str, broker: Broker) -> None:
    port = int(base.rpartition(":")[2])
    with pytest.raises(ConfigError, match=r"raybroker\.metrics\.ports"):
        Endpoint(broker, list).start("127.0.0.1", PortRange(port, port))
