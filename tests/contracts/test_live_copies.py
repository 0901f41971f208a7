"""A queue that is used gets copies, and more or fewer of them: nothing is lost or doubled, and the order stays."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from raybroker.errors import ConfigError, InvalidDestinationError
from tests.contracts.copies_rig import CopiesRig
from tests.contracts.handles import until

QUEUE = "orders"
BACKLOG = 3000


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[CopiesRig]:
    with CopiesRig(tmp_path, 3) as made:
        yield made


class Load:
    """A producer whose sends are confirmed, and a consumer, each with another home broker, until :meth:`end`."""

    def __init__(self, rig: CopiesRig, sent: int) -> None:
        self.confirmed = sent
        self.seen: list[tuple[int, bool]] = []
        """Body, and whether the message may have come before."""
        self._ends, self._all = threading.Event(), threading.Event()
        self._producer = rig.connect("b1").session().producer(QUEUE)
        self._consumer = rig.connect("b2").session().consumer(QUEUE)
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._send, self._take)]
        for thread in self._threads:
            thread.start()

    def _send(self) -> None:
        while not self._ends.is_set():
            self._producer.send(self.confirmed)
            self.confirmed += 1

    def _take(self) -> None:
        while not self._all.is_set():
            message = self._consumer.receive(timeout=0.2)
            if message is not None:
                self.seen.append((message.body, message.redelivered))

    def end(self) -> None:
        self._ends.set()
        self._threads[0].join(30)
        until(lambda: len({body for body, _ in self.seen}) >= self.confirmed, "all that was sent has come", 30)
        self._all.set()
        self._threads[1].join(30)
        counts = Counter(body for body, _ in self.seen)
        flagged = Counter(body for body, again in self.seen if again)
        assert set(counts) == set(range(self.confirmed)), "nothing that was confirmed is lost"
        assert [body for body, count in counts.items() if count - 1 > flagged[body]] == [], "twice, and not flagged"
        first = list(dict.fromkeys(body for body, _ in self.seen))
        assert [(one, then) for one, then in pairwise(first) if then < one] == [], "the order stays"


def shown(admin: Any) -> dict[str, Any]:
    found: dict[str, Any] = admin.query_destination("queue", QUEUE)
    return found


def has(admin: Any, count: int) -> bool:
    """Whether so many copies have a vote, and nothing is left to be done."""
    try:
        row = shown(admin)
    except InvalidDestinationError:  # Its members have moved, and the log is not opened yet.
        return False
    copies = row.get("replication", {})
    voters = [one for one in copies.get("copies", ()) if one["voter"]]
    return len(voters) == count and not copies["changing"] and "moving" not in row


def test_a_queue_gets_copies_while_it_is_used(rig: CopiesRig) -> None:
    admin = rig.connect("b3").admin()
    admin.create_destination("queue", QUEUE, useDMQ=False, hosting="dedicated")
    with pytest.raises(ConfigError, match="5 copies of what broker b3 stores need 5 nodes"):
        admin.update_destination("queue", QUEUE, replicas=5)
    rig.connect("b1").session().producer(QUEUE).send_many(range(BACKLOG))
    load = Load(rig, BACKLOG)
    until(lambda: len(load.seen) > 100, "the consumer is under way")
    admin.update_destination("queue", QUEUE, replicas=3)
    until(lambda: has(admin, 3), "it has three copies")
    sent = load.confirmed
    until(lambda: load.confirmed > sent + 20, "the producer goes on")
    row = shown(admin)
    assert [member["broker"] for member in row["members"]] == [row["replication"]["leader"]]
    assert row["active_consumers"] == 1, "one place, and one member of the consumer"
    admin.update_destination("queue", QUEUE, minInSync=3)
    until(lambda: shown(admin)["replication"]["min_in_sync"] == 3, "all three have to have a message")
    admin.update_destination("queue", QUEUE, replicas=1, minInSync=0)
    until(lambda: has(admin, 1), "it has one copy")
    load.end()


def test_what_was_taken_once_is_not_taken_again_where_it_has_copies(rig: CopiesRig) -> None:
    admin = rig.connect("b3").admin()
    admin.create_destination("queue", QUEUE, useDMQ=False, hosting="dedicated", duplicateWindowMs=600_000)
    names = [f"id {number}" for number in range(60)]
    session = rig.connect("b1").session()
    producer = session.producer(QUEUE)
    for body, name in enumerate(names):
        producer.send(body, dedup_id=name)
    took = session.consumer(QUEUE)
    for _ in range(30):
        assert took.receive(timeout=10) is not None
    took.close()
    admin.update_destination("queue", QUEUE, replicas=3)
    until(lambda: has(admin, 3), "it has three copies")
    again = rig.connect("b2").session()
    producer = again.producer(QUEUE)
    for body, name in enumerate([*names, "new"], 1000):
        producer.send(body, dedup_id=name)
    taker = again.consumer(QUEUE)
    bodies = [message.body for _ in range(31) if (message := taker.receive(timeout=10)) is not None]
    assert len(set(bodies)) == 31
    assert [body for body in bodies if body >= 1000] == [1060], "of what is sent again only the new one is taken"
    assert taker.receive(timeout=0.5) is None


def test_the_way_out_for_a_queue_in_a_shared_host(rig: CopiesRig) -> None:
    admin = rig.connect("b3").admin()
    admin.create_destination("queue", QUEUE, useDMQ=False, hosting="shared")
    for number, name in enumerate(("b1", "b2", "b3")):
        rig.connect(name).session().producer(QUEUE).send_many([2 * number, 2 * number + 1])
    with pytest.raises(ConfigError, match=r"create a queue with copies, .* pause the consumers of this one, and move"):
        admin.update_destination("queue", QUEUE, replicas=3)
    admin.create_destination("queue", "new", useDMQ=False, replicas=3)
    admin.pause_destination("queue", QUEUE, "consumers")
    assert admin.move_messages("queue", QUEUE, target="new") == 6
    taker = rig.connect("b1").session().consumer("new")
    assert sorted(message.body for _ in range(6) if (message := taker.receive(timeout=10)) is not None) == list(
        range(6)
    )
