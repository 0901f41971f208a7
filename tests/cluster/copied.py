"""A queue with copies at brokers of which each is on a Ray node of its own, under load, while nodes fail.

Producers and consumers are clients of any broker.  At the end everything is drained, the chains of all copies are the
same, and the notes are judged (load.py).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import raybroker as rb
from raybroker.actors import runtime
from raybroker.actors.stores.restore import restore
from raybroker.config import Config
from raybroker.errors import BrokerError, ConfigError, ConnectionLostError
from tests.cluster import rays
from tests.cluster.load import QUEUE, Load, Verdict, count, judge, until
from tests.cluster.nodes import Nodes, running_nodes

CLUSTER = "copied"
MASTER = "b1"
PATIENT: dict[str, Any] = {"raybroker.reconnect.timeout_ms": 90_000}
RECOVERED_S = 90.0
"""Ray makes no actor of a name that one on a lost node had, until it has noticed that; and machines are busy."""


class CopiedRun:
    """``names``: the brokers; ``store``: folder of their stores, in which each has its own."""

    def __init__(self, nodes: Nodes, folder: Path) -> None:
        self.nodes = nodes
        self.store = folder / "store"
        self.names = [f"b{number + 1}" for number in range(len(nodes.ids))]
        self.attributes: dict[str, Any] = {"replicas": len(self.names), "useDMQ": False}
        self.load = Load(CLUSTER, nodes.address, folder / "notes")
        self.load.folder.mkdir(exist_ok=True)
        self.cluster: Any = None

    def folder(self, broker: str) -> Path:
        return self.store / CLUSTER / broker

    # ---- brokers

    def start(self) -> bool:
        """Start the brokers that do not run; False where that cannot be done yet."""
        try:
            self.cluster = rb.start(CLUSTER, brokers=len(self.names), config=rays.small_store(self.store))
        except BrokerError:
            return False
        return True

    def bring_back(self) -> None:
        """Start the brokers of nodes that were lost."""
        until(self.start, "all brokers are back", 2 * RECOVERED_S)

    def lose(self, *brokers: str) -> None:
        """The nodes of these brokers are gone, with their disks, and there are others with empty ones.

        The master's has the record, which any other broker gives and ``restore cls`` puts there.
        """
        (other, *_) = set(self.names) - set(brokers)
        with rb.connect(cluster=CLUSTER, broker=other, **PATIENT) as connection:
            record = connection.admin().backup_record()
        for broker in brokers:
            self.nodes.kill(self.node(broker))
            shutil.rmtree(self.folder(broker))
            self.nodes.add()
        if MASTER in brokers:
            values = {**rays.small_store(self.store), "imq.cluster.brokerlist": ",".join(self.names)}
            restore(record, CLUSTER, Config.from_values({**values, "imq.cluster.masterbroker": MASTER}))

    def node(self, broker: str) -> str:
        return str(self.cluster.state(broker)["node"])

    def copy_process(self, broker: str) -> int:
        """The process that keeps a broker's copy."""
        return int(self.row(broker)["pid"])

    def row(self, broker: str) -> dict[str, Any]:
        """What a broker's copy says of itself; empty while it cannot be asked."""
        try:
            actor = runtime.find_broker(CLUSTER, broker)
            rows = {} if actor is None else runtime.call_blocking(actor.peer, "copies", {}, timeout_s=5.0)
        except BrokerError:
            return {}
        return next(iter(rows.values()), {})

    def leader(self) -> str:
        """The broker that leads, once one does."""

        def one() -> str:
            rows = {name: self.row(name) for name in self.names}
            return next((name for name, row in rows.items() if row and row["role"] == "LEADER" and row["serves"]), "")

        return str(until(one, "a copy leads", RECOVERED_S))

    def whole(self) -> bool:
        """All copies have a vote, and the leader reaches them."""
        row = self.row(self.leader())
        copies = [one for one in row.get("copies", ()) if one["voter"] and one["connected"]]
        return len(copies) == len(row.get("voters", ())) == len(self.names)

    def same(self) -> bool:
        """The logs of all copies are equal."""
        rows = [row for name in self.names if (row := self.row(name))]
        return len(rows) == len(self.names) and len({(row["index"], row["chain"]) for row in rows}) == 1

    # ---- load

    def create(self) -> None:
        """Make the queue. On a busy machine brokers see each other late, and make processes for longer than a client
        waits."""

        def made() -> bool:
            with rb.connect(cluster=CLUSTER, **PATIENT) as connection:
                try:
                    connection.admin().create_destination("queue", QUEUE, if_exists="keep", **self.attributes)
                except (ConfigError, ConnectionLostError):
                    return False
            return True

        until(made, "the queue is made", RECOVERED_S)

    def begin_load(self, workers: int) -> None:
        self.create()
        for _ in range(workers):
            self.load.spawn("consumer")
            self.load.spawn("producer")
        self.load.wait_busy()

    def confirmed(self) -> list[int]:
        """How often each producer was confirmed something."""
        return [count(path, "o") for _, path in self.load.workers["producer"]]

    def goes_on(self, timeout_s: float = RECOVERED_S) -> float:
        """Wait until every producer is confirmed a send that began since now; how long that took, in seconds."""
        since, before = time.monotonic(), self.confirmed()
        until(
            lambda: all(now > 1 + was for now, was in zip(self.confirmed(), before, strict=True)),
            "all producers go on",
            timeout_s,
        )
        return time.monotonic() - since

    def settle(self) -> None:
        """All is as before: the set is complete, and everybody goes on."""
        until(self.whole, "the set of copies is complete", 2 * RECOVERED_S)
        self.load.wait_busy()

    def finish(self) -> Verdict:
        """Drain, compare and judge: nothing may be wrong."""
        with rb.connect(cluster=CLUSTER, **PATIENT) as connection:
            self.load.finish(connection)
        until(self.same, "the chains of all copies are equal", RECOVERED_S)
        verdict = judge(self.load.folder)
        print(verdict, flush=True)
        assert verdict.valid, str(verdict)
        assert verdict.acknowledged > 500
        return verdict

    def close(self) -> None:
        self.load.abandon()
        with contextlib.suppress(ConnectionLostError):  # Of a node that is lost.
            if self.cluster is not None:
                self.cluster.stop()


@contextlib.contextmanager
def running_copied(folder: Path, brokers: int = 3, workers: int = 2) -> Iterator[CopiedRun]:
    """So many brokers, each on its node and with a copy, and so many producers and consumers, while the block runs."""
    with running_nodes(brokers) as nodes:
        run = CopiedRun(nodes, folder)
        try:
            assert run.start()
            run.begin_load(workers)
            yield run
        except AssertionError:
            run.load.show()
            raise
        finally:
            run.close()


@contextlib.contextmanager
def stopped(pids: Sequence[int]) -> Iterator[None]:
    """These processes stand still while the block runs."""
    _send_all(pids, signal.SIGSTOP)
    try:
        yield
    finally:
        _send_all(pids, signal.SIGCONT)


def _send_all(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
