"""A queue that is used gets copies, loses a node, gets another copy in its place, and has one copy again."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

import raybroker as rb
from raybroker.errors import BrokerError, ConfigError, ConnectionLostError, RequestTimeoutError
from tests.cluster import rays
from tests.cluster.nodes import Nodes, running_nodes
from tests.contracts.handles import until

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]
CLUSTER = "living"
QUEUE = "orders"
PATIENT: dict[str, Any] = {"raybroker.reconnect.timeout_ms": 90_000}
BACKLOG = 20_000
SETTLED_S = 120


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with running_nodes(4) as found:
        yield found


@pytest.fixture(scope="module")
def cluster(nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    store = tmp_path_factory.mktemp("store")
    started = rb.start(CLUSTER, brokers=4, config={**rays.small_store(store), "raybroker.replicas.replace_after": 0})
    yield started
    with contextlib.suppress(ConnectionLostError):  # Of the node that is lost.
        started.stop()


class Load:
    """A producer whose sends are confirmed one after the other, and a consumer, until the block ends; each through
    another broker."""

    def __init__(self, first: int) -> None:
        self.confirmed = first
        self.longest_s = 0.0
        """The longest that one send took."""
        self.seen: list[tuple[int, bool]] = []
        """Body, and whether the message may have come before."""
        self.failures: list[Exception] = []
        self._ends = threading.Event()
        self._drained = threading.Event()
        self._threads = [threading.Thread(target=self._guard, args=(work,)) for work in (self._send, self._take)]

    def _guard(self, work: Any) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - the test tells what a thread of it has met
            self.failures.append(error)

    def _send(self) -> None:
        with rb.connect(cluster=CLUSTER, broker="b1", **PATIENT) as connection:
            producer = connection.session().producer(QUEUE)
            while not self._ends.is_set():
                began = time.monotonic()
                producer.send(self.confirmed)
                self.longest_s = max(self.longest_s, time.monotonic() - began)
                self.confirmed += 1

    def _take(self) -> None:
        with rb.connect(cluster=CLUSTER, broker="b2", **PATIENT) as connection:
            consumer = connection.session().consumer(QUEUE)
            while not self._drained.is_set():
                message = consumer.receive(timeout=0.5)
                if message is not None:
                    self.seen.append((message.body, message.redelivered))

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._drained.set()
        for thread in self._threads:
            thread.join(120)

    def end(self) -> None:
        self._ends.set()
        self._threads[0].join(120)
        until(lambda: self.failures or len({body for body, _ in self.seen}) >= self.confirmed, "all has come", 120)
        self._drained.set()
        self._threads[1].join(60)

    def check(self) -> None:
        """Nothing that was confirmed is lost, nothing comes twice without a flag, and the order stays."""
        assert self.failures == []
        bodies = Counter(body for body, _ in self.seen)
        assert set(bodies) == set(range(self.confirmed))
        flagged = Counter(body for body, again in self.seen if again)
        assert {body: count for body, count in bodies.items() if count - 1 > flagged[body]} == {}
        first = list(dict.fromkeys(body for body, _ in self.seen))
        late = [body for before, body in pairwise(first) if body < before]
        assert late == [], "what was sent first comes first"


def patiently(ask: Callable[[], object]) -> None:
    """A busy machine makes processes for longer than a client waits for an answer."""

    def is_done() -> bool:
        try:
            ask()
        except (ConnectionLostError, RequestTimeoutError):
            return False
        return True

    until(is_done, "it is begun", SETTLED_S)


def test_a_queue_gets_copies_while_it_is_used_and_loses_nothing(nodes: Nodes, cluster: Any) -> None:
    with rb.connect(cluster=CLUSTER, broker="b3", **PATIENT) as connection:
        admin = connection.admin()
        patiently(lambda: admin.create_destination("queue", QUEUE, if_exists="keep", useDMQ=False))

        def row() -> dict[str, Any]:
            found: dict[str, Any] = admin.query_destination("queue", QUEUE)
            return found

        def settled(count: int) -> Any:
            with contextlib.suppress(BrokerError):
                shown = row()
                found = shown.get("replication", {})
                voters = [one for one in found.get("copies", ()) if one["voter"] and one["connected"]]
                is_done = len(voters) == count and not found["changing"] and "moving" not in shown
                return found if is_done else None

        with pytest.raises(ConfigError, match=r"5 copies of what broker .* need 5 nodes"):
            admin.update_destination("queue", QUEUE, replicas=5)
        with rb.connect(cluster=CLUSTER, broker="b1", **PATIENT) as first:
            first.session().producer(QUEUE).send_many(range(BACKLOG))
        with Load(BACKLOG) as load:
            time.sleep(1)
            began = time.monotonic()
            patiently(lambda: admin.update_destination("queue", QUEUE, replicas=3))
            found = until(lambda: settled(3), "it has three copies", SETTLED_S)
            print(f"three copies after {time.monotonic() - began:.1f} s; longest send {load.longest_s:.2f} s")
            lost, load.longest_s = found["leader"], 0.0
            nodes.kill(cluster.state(lost)["node"])
            time.sleep(10)
            with rb.connect(cluster=CLUSTER, broker="b3" if lost != "b3" else "b4", **PATIENT) as far:
                admin = far.admin()
                assert admin.replace_replica("queue", QUEUE, lost)["to"] not in {
                    one["broker"] for one in found["copies"]
                }
                found = until(lambda: settled(3), "another broker has the third copy", SETTLED_S)
                assert lost not in {one["broker"] for one in found["copies"]}
                print(f"replaced; longest send {load.longest_s:.2f} s")
                admin.update_destination("queue", QUEUE, replicas=1)
                found = until(lambda: settled(1), "one copy is left", SETTLED_S)
                load.end()
                load.check()
                print(f"{load.confirmed} messages, {sum(again for _, again in load.seen)} flagged")
