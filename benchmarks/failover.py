"""How long a client waits for its next confirmed send when the node of a queue's leader is lost.

    python -m benchmarks.failover --kills 8
    python -m benchmarks.failover --kills 3 --messages 1000000

One Ray of a head and three nodes on this machine, a broker on each, and one queue with three copies.  Again and again
everything on the leader's node is ended with SIGKILL; a client whose home broker is another one sends.  Then there is
another node, its broker comes back there with its disk and its copy is brought up to date, and two changes of leader
are as far apart as they have to be; so one kill takes one to two minutes.

The parts are seen from outside, by asking the copies and their brokers again and again, and are as exact as that
(LOOK_S, and more on a busy machine):

    silent     until a copy says that it hears its leader no more
    elected    from then until a copy leads
    started    from then until its host has read what is stored, and listens
    served     from then until its broker says so to clients
    confirmed  from then until the send of the client, which has waited since the kill, is confirmed

``--messages N``: so many of 1 KiB are stored, and never consumed.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from tests.cluster import rays
from tests.cluster.nodes import Nodes, running_nodes

CLUSTER: Final = "failover"
QUEUE: Final = "orders"
NAMES: Final = ("b1", "b2", "b3")
ATTRIBUTES: Final[dict[str, Any]] = {"replicas": 3, "useDMQ": False, "maxNumMsgs": -1, "maxTotalMsgBytes": -1}
PATIENT: Final[dict[str, Any]] = {"raybroker.reconnect.timeout_ms": 120_000}
BODY: Final = 1024
BLOCK: Final = 1000
WARM_SENDS: Final = 20
LOOK_S: Final = 0.02
ANSWER_S: Final = 2.0
BACK_S: Final = 600.0
"""How long a broker may take to be back, and its copy to be complete: Ray keeps the names of lost actors for a minute,
and a busy machine makes processes for as long."""
APART_S: Final = 31.0
"""From one kill to the next at least: see raybroker.cluster.replicas.copy_takeover.APART_MS."""
GOALS_S: Final = {50: 2.0, 99: 6.0}
PARTS: Final = ("silent", "elected", "started", "served", "confirmed")


class Watch:
    """Asks the copies of the brokers that are left, and those brokers, until the client is confirmed its send.

    ``seen``: seconds since the kill at which each part was over.
    """

    def __init__(self, log: str, brokers: list[str]) -> None:
        from raybroker.actors import runtime
        from raybroker.actors.hosts.copy_maker import host_of

        self.seen: dict[str, float] = {}
        self._log = log
        self._actors = {name: runtime.find_broker(CLUSTER, name) for name in brokers}
        self._copies = {name: runtime.find_actor(runtime.host_name(CLUSTER, name, host_of(log))) for name in brokers}
        self._began = 0.0
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(name,), daemon=True) for name in brokers]

    def begin(self) -> None:
        """The node is being killed now."""
        self._began = time.monotonic()
        for thread in self._threads:
            thread.start()

    def note(self, part: str) -> None:
        self.seen.setdefault(part, time.monotonic() - self._began)

    def end(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _run(self, broker: str) -> None:
        import ray

        while not self._over.wait(LOOK_S):
            with suppress(ray.exceptions.RayError):
                row = ray.get(self._copies[broker].copy_row.remote(), timeout=ANSWER_S)
                if not row["led"] or row["role"] == "LEADER":
                    self.note("silent")
                if row["role"] != "LEADER":
                    continue
                self.note("elected")
                if row["serves"]:
                    self.note("started")
                    rows = ray.get(self._actors[broker].peer.remote("copies", {}), timeout=ANSWER_S)
                    if rows.get(self._log, {}).get("served"):
                        self.note("served")

    def parts(self) -> dict[str, float]:
        """Seconds of each part; one that was not seen is in the next one."""
        found, before = {}, 0.0
        for part in PARTS:
            until = max(before, self.seen.get(part, before))
            found[part], before = until - before, until
        return found


class Failover:
    """The cluster."""

    def __init__(self, nodes: Nodes, store: Path) -> None:
        import raybroker as rb

        self._rb = rb
        self._nodes = nodes
        self._config = {**rays.small_store(store), "raybroker.store.segment_bytes": "64m"}
        self._seen: object = None
        self._cluster = rb.start(CLUSTER, brokers=len(NAMES), config=self._config)
        with rb.connect(cluster=CLUSTER, broker="b1", **PATIENT) as connection:
            self._until(lambda: self._made(connection), "the queue is made")

    def _made(self, connection: Any) -> bool:
        try:
            connection.admin().create_destination("queue", QUEUE, if_exists="keep", **ATTRIBUTES)
        except self._rb.errors.ConnectionLostError:
            return False
        return True

    def _until(self, true: Callable[[], bool], what: str) -> None:
        end_s = time.monotonic() + BACK_S
        while not true():
            assert time.monotonic() < end_s, f"not within {BACK_S:.0f} s: {what}; last seen: {self._seen}"
            time.sleep(0.25)

    def fill(self, messages: int) -> None:
        """Store so many messages of 1 KiB, in blocks of one as sends without waiting make them."""
        with self._rb.connect(cluster=CLUSTER, broker="b1", **PATIENT) as connection:
            producer = connection.session().producer(QUEUE)
            body = os.urandom(BODY)
            for start in range(0, messages, BLOCK):
                producer.send_many([body] * min(BLOCK, messages - start))

    def _replication(self, connection: Any) -> dict[str, Any]:
        found: dict[str, Any] = connection.admin().query_destination("queue", QUEUE)["replication"]
        return found

    def _is_whole(self, connection: Any) -> bool:
        try:
            self._seen = found = self._replication(connection)
        except self._rb.errors.BrokerError as error:
            self._seen = error
            return False
        copies = found.get("copies", ())
        return sorted(one["broker"] for one in copies if one["voter"] and not one["behind"]) == list(NAMES)

    def _is_back(self) -> bool:
        try:
            self._rb.start(CLUSTER, brokers=len(NAMES), config=self._config)
        except self._rb.errors.BrokerError as error:
            self._seen = error
            return False
        return True

    def kill(self) -> tuple[float, dict[str, float]]:
        """Lose the leader's node; the seconds until the next confirmed send, and its parts."""
        with self._rb.connect(cluster=CLUSTER, imqAddressList=",".join(NAMES), **PATIENT) as connection:
            found = self._replication(connection)
            lost = str(found["leader"])
        others = [name for name in NAMES if name != lost]
        with self._rb.connect(cluster=CLUSTER, broker=others[0], **PATIENT) as connection:
            producer = connection.session().producer(QUEUE)
            for number in range(WARM_SENDS):
                producer.send(number)
            watch = Watch(str(found["log"]), others)
            node = self._cluster.state(lost)["node"]
            watch.begin()
            self._nodes.kill(node)
            producer.send("next")
            watch.note("confirmed")
            watch.end()
            print(f"{watch.seen['confirmed']:.2f} s, then broker {lost} comes back", flush=True)
            since = time.monotonic()
            self._nodes.add()
            self._until(self._is_back, f"broker {lost} is back")
            self._until(lambda: self._is_whole(connection), "all copies are complete")
        time.sleep(max(0.0, since + APART_S - time.monotonic()))
        return watch.seen["confirmed"], watch.parts()

    def stop(self) -> None:
        with suppress(self._rb.errors.ConnectionLostError):  # Of nodes that are lost.
            self._cluster.stop()


def share(times: list[float], percent: int) -> float:
    """The least of these that at least ``percent`` of all are not above."""
    return sorted(times)[max(0, math.ceil(len(times) * percent / 100) - 1)]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.failover", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--kills", type=int, default=8)
    parser.add_argument("--messages", type=int, default=0, help="stored before, of 1 KiB")
    options = parser.parse_args(arguments)
    rays.folder()
    times: list[float] = []
    parts: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as scratch, running_nodes(len(NAMES)) as nodes:
        failover = Failover(nodes, Path(scratch) / "store")
        failover.fill(options.messages)
        for number in range(1, options.kills + 1):
            took, found = failover.kill()
            times.append(took)
            parts.append(found)
            shown = ", ".join(f"{part} {found[part]:.2f}" for part in PARTS)
            print(f"{number}: {took:.2f} s ({shown}), load {os.getloadavg()[0]:.1f}", flush=True)
        failover.stop()
    for part in PARTS:
        of_part = [found[part] for found in parts]
        print(f"{part:10} median {statistics.median(of_part):.2f} s, longest {max(of_part):.2f} s")
    missed = False
    for percent, goal_s in GOALS_S.items():
        took = share(times, percent)
        missed = missed or took > goal_s
        print(f"p{percent} {took:.2f} s, goal {goal_s:g} s" + ("" if took <= goal_s else ": missed"))
    return int(missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
