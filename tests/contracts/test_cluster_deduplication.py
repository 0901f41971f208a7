"""Deduplication ids hold for a destination over all its members, whichever broker they are sent from (B25)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from raybroker.errors import ConfigError, OrderError
from raybroker.model.hashing import rendezvous
from tests.contracts.cluster_rig import ClusterRig
from tests.contracts.handles import bodies, take, until

pytestmark = pytest.mark.xdist_group("cluster_deduplication")  # One worker makes what they share.

NAMES = ("b1", "b2", "b3")
WINDOW_MS = 60_000


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterRig]:
    """Three brokers, for tests that leave them alone."""
    with ClusterRig(tmp_path_factory.mktemp("rig"), 3) as found:
        yield found


@pytest.fixture
def own(tmp_path: Path) -> Iterator[ClusterRig]:
    """Three brokers of the test's own, whose clients wait a second for one that is lost."""
    with ClusterRig(tmp_path, 3, raybroker__reconnect__timeout_ms=1000) as found:
        yield found


def id_of(broker: str) -> str:
    """An id that is decided there."""
    return next(f"id{n}" for n in itertools.count() if rendezvous(f"\0id:id{n}", NAMES) == broker)


@pytest.mark.parametrize("attributes", [{}, {"distributed": True}])
def test_one_id_is_taken_once_from_all_brokers(rig: ClusterRig, attributes: dict[str, object]) -> None:
    name = rig.name()
    rig.connect("b1").admin().create_destination("queue", name, duplicateWindowMs=WINDOW_MS, **attributes)
    producers = [rig.connect(home).session().producer(name) for home in NAMES]
    for number in range(5):
        for producer in (*producers, producers[0]):
            producer.send(number, dedup_id=f"m{number}")
    assert sum(producer.duplicates for producer in producers) == 15
    row = rig.connect("b2").admin().query_destination("queue", name)
    assert (row["messages"], row["duplicates"]) == (5, 15)


def test_one_id_is_published_once(rig: ClusterRig) -> None:
    name = f"topic:{rig.name()}"
    rig.connect("b1").admin().create_destination("topic", name.partition(":")[2], duplicateWindowMs=WINDOW_MS)
    consumer = rig.connect("b3").session().consumer(name)
    for home in NAMES:
        rig.connect(home).session().producer(name).send("once", dedup_id="7")
    rig.connect("b1").session().producer(name).send("end")
    assert sorted(bodies(take(consumer, 2))) == ["end", "once"]


def test_an_id_goes_with_the_unit_of_its_message(rig: ClusterRig) -> None:
    name = rig.name()
    rig.connect("b1").admin().create_destination("queue", name, duplicateWindowMs=WINDOW_MS)
    for home in NAMES:
        rig.connect(home).session().producer(name).send("x", dedup_id="1", unit_of_order="u")
    rows = rig.connect("b1").admin().query_destination("queue", name)["members"]
    assert {row["broker"]: row["messages"] for row in rows if row["messages"]} == {rendezvous("u", NAMES): 1}


def test_transactions_of_two_brokers_take_an_id_once(rig: ClusterRig) -> None:
    name = rig.name()
    rig.connect("b1").admin().create_destination("queue", name, duplicateWindowMs=WINDOW_MS)
    sessions = [rig.connect(home).session(transacted=True) for home in NAMES]
    for session in sessions:
        session.producer(name).send("x", dedup_id="1")
        session.commit()
    assert rig.connect("b1").admin().query_destination("queue", name)["messages"] == 1


def test_an_id_whose_broker_is_lost_is_not_taken_elsewhere(own: ClusterRig) -> None:
    name, known = own.name(), id_of("b3")
    connection = own.connect("b1", raybroker__reconnect__timeout_ms=1000)
    connection.admin().create_destination("queue", name, duplicateWindowMs=WINDOW_MS)
    producer = connection.session().producer(name)
    producer.send("first", dedup_id=known)
    own.kill("b3")
    with pytest.raises(OrderError, match=r"b3.*deduplication id"):
        producer.send("again", dedup_id=known)
    producer.send("other", dedup_id=id_of("b2"))
    own.start("b3")
    until(lambda: len(connection.admin().query_destination("queue", name)["members"]) == 3)
    producer.send("again", dedup_id=known)
    assert producer.duplicates == 1
    assert connection.admin().query_destination("queue", name)["messages"] == 2


def test_what_cannot_hold_is_refused(rig: ClusterRig) -> None:
    name, admin = rig.name(), rig.connect("b1").admin()
    admin.create_destination("queue", name)
    with pytest.raises(ConfigError, match="duplicateWindowMs"):
        admin.update_destination("queue", name, duplicateWindowMs=WINDOW_MS)
    with pytest.raises(ConfigError, match="PathService"):
        admin.create_destination("queue", rig.name(), duplicateWindowMs=1, unitOfOrderRouting="PathService")
