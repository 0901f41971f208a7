"""``admin.why`` over several brokers: what a broker has that is lost is told of, with the time since when."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raybroker.cli.objects import why
from raybroker.errors import InvalidDestinationError
from raybroker.model.listing import Listing
from tests.contracts.cluster_rig import ClusterRig
from tests.contracts.handles import until

BOUND_S = 10.0
"""An answer that a lost broker would delay comes within that."""


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ClusterRig]:
    with ClusterRig(tmp_path) as made:
        yield made


def _lost(rows: Listing) -> list[tuple[str, str]]:
    return [(row["broker"], row["reasons"][0]["code"]) for row in rows if row["state"] == "UNKNOWN"]


def test_what_a_lost_broker_has_waits_there_since_it_was_heard_last(
    rig: ClusterRig, capsys: pytest.CaptureFixture[str]
) -> None:
    name, admin = rig.name(), rig.connect("b1").admin()
    admin.create_destination("queue", name)
    session = rig.connect("b2").session()
    session.producer(name).send("it waits")
    (message,) = (row["id"] for row in admin.browse_messages("queue", name, start=["b2", None])["messages"])
    assert _lost(admin.why("destination", name)) == []
    before_ms = time.time_ns() // 1_000_000
    rig.kill("b2")
    until(lambda: [row["state"] for row in admin.list_brokers()] == ["UP", "DOWN", "UP"])
    asked: list[tuple[str, Any, dict[str, Any]]] = [
        ("destination", name, {}),
        ("message", message, {"destination": name}),
        ("consumer", 99, {}),
        ("transaction", 99, {}),
        ("producer", message, {"destination": name}),
    ]
    for what, thing, more in asked:
        since_s = time.monotonic()
        rows = admin.why(what, thing, **more)
        assert time.monotonic() - since_s < BOUND_S
        assert _lost(rows) == [("b2", "broker_lost")], what
        assert rows.missing == {"b2": "it is down"}
        (reason,) = rows[-1]["reasons"]
        assert before_ms - 1000 < reason["since_ms"] < before_ms + 5000
        assert reason["remedy"] == "start the broker again, with its disk"
    rows = admin.why("message", message, name)
    rows.missing.clear()  # The command would end with the code of a list that is not whole.
    why._show(rows, json=False)
    said = capsys.readouterr().out
    assert f"message {message}, of queue {name}, at broker b2:" in said
    assert "broker_lost: broker b2 is lost (it is down), and what it has of this waits there since 20" in said


def test_a_name_that_nobody_has_is_no_matter_of_a_lost_broker(rig: ClusterRig) -> None:
    name, admin = rig.name(), rig.connect("b1").admin()
    rig.kill("b2")
    until(lambda: [row["state"] for row in admin.list_brokers()] == ["UP", "DOWN", "UP"])
    for what, thing, more in (("destination", name, {}), ("message", "ID:0123456789abcdef-1", {"destination": name})):
        with pytest.raises(InvalidDestinationError, match=name):
            admin.why(what, thing, **more)


def test_what_is_found_elsewhere_is_told_without_the_lost_one(rig: ClusterRig) -> None:
    name, connection = rig.name(), rig.connect("b1")
    admin = connection.admin()
    admin.create_destination("queue", name)
    connection.session().producer(name).send("here")
    message = admin.browse_messages("queue", name)["messages"][0]["id"]
    rig.stop("b3")
    until(lambda: admin.list_destinations().missing == {"b3": "it was stopped"})
    rows = admin.why("message", message, name)
    assert (_lost(rows), [row["broker"] for row in rows], rows.missing) == ([], ["b1"], {"b3": "it was stopped"})
    assert _lost(admin.why("destination", name)) == [("b3", "broker_lost")]
