"""``metrics dst|svc|bkr`` shows counts and rates (M-12), ``discover`` writes what Prometheus reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from raybroker.cli import connecting
from raybroker.cli.objects.metrics import BROKER_KINDS, DESTINATION_KINDS
from tests.unit.cli.conftest import Program

ONCE = ("-msp", "1", "-int", "0.05")


@pytest.fixture
def filled(broker: Any) -> Any:
    session = broker.session()
    session.producer("orders").send_many([b"1234"] * 10)
    assert len(session.consumer("orders").receive_many(max=4, timeout=5)) == 4
    return broker


@pytest.mark.parametrize("kind", list(DESTINATION_KINDS))
def test_a_destination_has_each_kind(filled: Any, raybroker: Program, kind: str) -> None:
    (row,) = raybroker.json("metrics", "dst", "-t", "q", "-n", "orders", "-m", kind, *ONCE)
    assert set(row) == {"broker", *DESTINATION_KINDS[kind]}
    if kind == "ttl":
        assert (row["numMsgsIn"], row["msgBytesIn"], row["peakMsgBytes"]) == (10, 40, 4)
    if kind == "con":
        assert (row["numActiveConsumers"], row["numBackupConsumers"]) == (1, 0)


@pytest.mark.parametrize("thing", [("bkr",), ("bkr", "-n", "loopback")])
@pytest.mark.parametrize("kind", list(BROKER_KINDS))
def test_a_broker_has_each_kind(filled: Any, raybroker: Program, thing: tuple[str, ...], kind: str) -> None:
    (row,) = raybroker.json("metrics", *thing, "-m", kind, *ONCE)
    assert set(row) == {"broker", *BROKER_KINDS[kind]}
    if kind == "ttl":
        assert row["numMsgsIn"] == 10
        assert row["pktBytesIn"] > row["msgBytesIn"]
    if kind == "cxn":
        assert row["numConnections"] == 1
        assert row["totalMemory"] > 1_000_000


def test_it_looks_as_often_as_it_is_told(filled: Any, raybroker: Program) -> None:
    lines = raybroker.output("metrics", "dst", "-n", "orders", "-msp", "3", "-int", "0.05").splitlines()
    assert [line.split()[0] for line in lines] == ["BROKER", "loopback"] * 3


def test_rates_are_what_changed(filled: Any, raybroker: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    from raybroker.cli.objects.metrics import _rates

    columns = DESTINATION_KINDS["rts"]
    row = {"broker": "b1", "numMsgsIn": 30, "numMsgsOut": 5, "msgBytesIn": 8, "msgBytesOut": 1}
    before = {"numMsgsIn": 10, "numMsgsOut": 5, "msgBytesIn": 0, "msgBytesOut": 9}
    assert _rates(row, before, 4.0, columns) == {
        "broker": "b1",
        "numMsgsIn": 5.0,
        "numMsgsOut": 0.0,
        "msgBytesIn": 2.0,
        "msgBytesOut": 0.0,
    }


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (("dst", "-n", "nope"), 1, "does not exist"),
        (("dst", "-n", "orders", "-m", "cxn"), 2, "choose one of ttl, rts, con, dsk"),
        (("bkr", "-m", "con"), 2, "choose one of ttl, rts, cxn"),
        (("bkr", "-n", "b9"), 3, "is not running"),
        (("svc", "-n", "mail"), 2, "there are jms, ssljms"),
        (("svc", "-n", "jms"), 1, "has connection services (imq.service.activelist)"),
        (("svc", "-n", "jms", "-m", "con"), 2, "choose one of ttl, rts, cxn"),
        (("cxn", "-n", "nobody"), 1, "there is no connection 'nobody'"),
    ],
)
def test_what_there_is_not_is_refused(
    filled: Any, raybroker: Program, arguments: tuple[str, ...], status: int, text: str
) -> None:
    result = raybroker("metrics", *arguments, *ONCE)
    assert (result.exit_code, text in result.output) == (status, True)


def test_discover_writes_the_endpoints_of_all_brokers(
    raybroker: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows = [
        {"broker": "b2", "metrics_url": "http://h2:9/metrics"},
        {"broker": "b1", "metrics_url": "http://h1:7/metrics"},
        {"broker": "b3", "state": "DOWN"},
    ]
    monkeypatch.setattr(connecting, "brokers", lambda cluster: rows)
    out = tmp_path / "brokers.json"
    raybroker.output("discover", "--out", str(out), "--cluster", "shop")
    assert json.loads(out.read_text()) == [
        {"targets": ["h1:7"], "labels": {"__meta_raybroker_cluster": "shop", "__meta_raybroker_broker": "b1"}},
        {"targets": ["h2:9"], "labels": {"__meta_raybroker_cluster": "shop", "__meta_raybroker_broker": "b2"}},
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["brokers.json"]
