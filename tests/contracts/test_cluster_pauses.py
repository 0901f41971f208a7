"""Pauses over the brokers of a cluster: kept in the record, over restarts and absences (D-26)."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raybroker.errors import DestinationPausedError, InvalidDestinationError, MasterUnavailableError
from tests.contracts.cluster_rig import ClusterRig
from tests.contracts.handles import until


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ClusterRig]:
    with ClusterRig(tmp_path) as made:
        yield made


def states(admin: Any, name: str) -> dict[str, str]:
    """Broker → state of its member."""
    return {row["broker"]: row["state"] for row in admin.query_destination("queue", name)["members"]}


def back(rig: ClusterRig, admin: Any, name: str) -> dict[str, str]:
    """The states once all brokers are there."""
    return until(lambda: found if len(found := states(admin, name)) == len(rig.brokers) else None)


def test_a_broker_that_restarts_is_paused_as_before(rig: ClusterRig) -> None:
    name, admin = rig.name(), rig.connect("b1").admin()
    admin.create_destination("queue", name)
    admin.pause_destination("queue", name, "producers")
    rig.kill("b2")
    rig.start("b2")
    assert back(rig, admin, name) == dict.fromkeys(("b1", "b2", "b3"), "PRODUCERS_PAUSED")
    with pytest.raises(DestinationPausedError):
        rig.connect("b2").session().producer(name).send("no")


def test_a_broker_that_was_down_takes_the_pause_when_it_comes(rig: ClusterRig) -> None:
    name, admin = rig.name(), rig.connect("b1").admin()
    admin.create_destination("queue", name)
    rig.kill("b3")
    until(lambda: [row["state"] for row in admin.list_brokers()] == ["UP", "UP", "DOWN"])
    admin.pause_destination("queue", name)
    rig.start("b3")
    assert back(rig, admin, name) == dict.fromkeys(("b1", "b2", "b3"), "PAUSED")
    rig.kill("b3")
    until(lambda: [row["state"] for row in admin.list_brokers()] == ["UP", "UP", "DOWN"])
    admin.resume_destination("queue", name, "consumers")
    rig.start("b3")
    assert back(rig, admin, name) == dict.fromkeys(("b1", "b2", "b3"), "PRODUCERS_PAUSED")


def test_a_broker_that_joins_pauses_what_it_is_to_pause_from_its_start(rig: ClusterRig) -> None:
    """W-126: destinations of the record that it has not had, and none that are made later."""
    flag = {"raybroker.system.consumptionPausedAtStartup": True}
    first, second, later = (rig.name() for _ in range(3))
    admin = rig.connect("b1").admin()
    admin.create_destination("queue", first)
    rig.kill("b3")
    shutil.rmtree(rig.directory / "b3")
    before, rig.config = rig.config, rig.config.with_values(flag, origin="test")
    admin.create_destination("queue", second)
    rig.start("b3")
    for name in (first, second):
        until(lambda name=name: states(admin, name).get("b3") == "CONSUMERS_PAUSED")
    assert states(admin, first)["b1"] == "RUNNING"
    assert rig.brokers["b1"].cluster.clustering.member.agreed.pauses == {}
    admin.create_destination("queue", later)
    assert states(admin, later) == dict.fromkeys(rig.brokers, "RUNNING")
    admin.resume_destination("queue", second)
    assert states(admin, second) == dict.fromkeys(rig.brokers, "RUNNING")
    rig.config = before
    rig.kill("b3")
    rig.start("b3")
    running = dict.fromkeys(rig.brokers, "RUNNING")
    for name in (first, second, later):  # As soon as the broker that is back has carried out the record.
        until(lambda name=name: states(admin, name) == running, "no administrator has paused it")


def test_an_auto_created_queue_is_paused_on_brokers_that_get_it_later(rig: ClusterRig) -> None:
    name, admin = rig.name(), rig.connect("b1").admin()
    rig.connect("b1").session().producer(name).send("first")
    assert admin.pause_destination(which="producers") >= 1
    with pytest.raises(DestinationPausedError):
        rig.connect("b2").session().producer(name).send("no")
    assert admin.resume_destination("queue", name) == 1
    rig.connect("b2").session().producer(name).send("second")


def test_the_state_is_mixed_where_members_differ(rig: ClusterRig) -> None:
    name, admin = rig.name(), rig.connect("b2").admin()
    admin.create_destination("queue", name)
    rig.io.run(rig.brokers["b3"].local.admin("pause_destination", {"type": "queue", "name": name}))
    row = admin.query_destination("queue", name)
    assert row["state"] == "MIXED"
    assert states(admin, name) == {"b2": "RUNNING", "b1": "RUNNING", "b3": "PAUSED"}


def test_a_pause_that_has_ended_is_not_made_again(rig: ClusterRig) -> None:
    name, admin = rig.name(), rig.connect("b1").admin()
    admin.create_destination("queue", name)
    rig.kill("b3")
    until(lambda: [row["state"] for row in admin.list_brokers()] == ["UP", "UP", "DOWN"])
    admin.pause_destination("queue", name, until_ms=int(time.time() * 1000) + 300)
    until(lambda: set(states(admin, name).values()) == {"RUNNING"})
    rig.start("b3")
    until(lambda: states(admin, name) == dict.fromkeys(("b1", "b2", "b3"), "RUNNING"))


def test_what_attributes_pause_at_each_start_is_paused_then_and_can_be_resumed(rig: ClusterRig) -> None:  # W-123
    name, admin = rig.name(), rig.connect("b1").admin()
    admin.create_destination("queue", name, productionPausedAtStartup=True)
    rig.kill("b2")
    rig.start("b2")
    found = back(rig, admin, name)
    assert (found["b1"], found["b2"]) == ("RUNNING", "PRODUCERS_PAUSED")
    # Brokers that this one does not see for a moment miss it, since it is in no record.
    until(lambda: admin.resume_destination("queue", name) and set(states(admin, name).values()) == {"RUNNING"})


def test_a_destination_made_again_is_not_paused(rig: ClusterRig) -> None:
    name, admin = rig.name(), rig.connect("b1").admin()
    for _ in range(2):
        admin.create_destination("queue", name)
        assert set(states(admin, name).values()) == {"RUNNING"}
        admin.pause_destination("queue", name)
        admin.destroy_destination("queue", name)
    with pytest.raises(InvalidDestinationError):
        admin.resume_destination("queue", name)


def test_without_the_master_a_pause_is_refused(rig: ClusterRig) -> None:
    name, admin = rig.name(), rig.connect("b2").admin()
    admin.create_destination("queue", name)
    rig.kill("b1")
    until(lambda: [row["state"] for row in admin.list_brokers()] == ["DOWN", "UP", "UP"])
    until(lambda: not rig.brokers["b2"].cluster.clustering.member.is_master)
    with pytest.raises(MasterUnavailableError):
        admin.pause_destination("queue", name)
    assert set(states(admin, name).values()) == {"RUNNING"}
