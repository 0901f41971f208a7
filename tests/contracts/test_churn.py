"""What comes and goes leaves nothing: objects are counted before and after, in the client and in the brokers."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker.cluster.member_state import COMPRESS_MIN, HISTORY_RATIO
from tests.contracts.cluster_rig import ClusterRig
from tests.contracts.handles import WAIT_S

ROUNDS = 30
LEFT_MAX = ROUNDS // 2
"""So many more objects of one type may be there after a further ROUNDS rounds: what is under way at that moment. What
each round leaves is at least twice as many."""
IN_LOGS = frozenset({
    "raybroker.model.record.Entry", "raybroker.cluster.change_record.Entry", "raybroker.cluster.change_record.Change",
    "raybroker.cluster.member_messages.Decision",
})  # fmt: skip
"""They stay until the log that they are in is shortened, or as many have come as are kept."""


def round_of(connection: Any, number: int) -> None:
    """Temporary destinations, queues and topics made, used and destroyed, with sessions of their own."""
    admin = connection.admin()
    with connection.session() as session:
        for temporary in (session.temporary_queue(), session.temporary_topic()):
            with session.consumer(temporary) as consumer, session.producer(temporary) as producer:
                producer.send("reply")
                assert consumer.receive(WAIT_S) is not None
            temporary.delete()
    for kind in ("queue", "topic"):
        admin.create_destination(kind, f"{kind}{number}")
        with connection.session() as session:
            home = getattr(session, kind)(f"{kind}{number}")
            with session.consumer(home) as consumer, session.producer(home) as producer:
                producer.send("job")
                assert consumer.receive(WAIT_S) is not None
        admin.destroy_destination(kind, f"{kind}{number}")


def grown(work: Callable[[int], None]) -> dict[str, int]:
    """Type → how many more there are after the second of two equal parts of the work, of our types and of functions,
    which callbacks are."""

    def counted() -> Counter[str]:
        gc.collect()
        names = (f"{type(found).__module__}.{type(found).__qualname__}" for found in gc.get_objects())
        return Counter(name for name in names if name.startswith("raybroker.") or name == "builtins.function")

    for number in range(ROUNDS):
        work(number)
    before = counted()
    for number in range(ROUNDS, 2 * ROUNDS):
        work(number)
    more = counted() - before
    return {name: count for name, count in more.items() if count > LEFT_MAX and name not in IN_LOGS}


def test_destinations_that_come_and_go_leave_nothing() -> None:
    with rb.loopback() as connection:
        assert grown(lambda number: round_of(connection, number)) == {}


@pytest.mark.timeout(120)
def test_destinations_of_a_cluster_that_come_and_go_leave_nothing_and_the_record_stays_short(tmp_path: Path) -> None:
    with ClusterRig(tmp_path, 2) as rig:
        connections = [rig.connect("b1"), rig.connect("b2")]
        assert grown(lambda number: round_of(connections[number % 2], number)) == {}
        admin = connections[0].admin()
        for number in range(COMPRESS_MIN // 2):
            admin.create_destination("queue", "again")
            admin.destroy_destination("queue", "again")
            if number % 50 == 0:
                for broker in rig.brokers.values():
                    context = broker.cluster.clustering.member
                    assert len(context.record.entries) <= COMPRESS_MIN + HISTORY_RATIO * 10
        assert all(rig.brokers[name].cluster.clustering.member.record.base_number > 0 for name in ("b1", "b2"))
