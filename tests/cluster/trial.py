"""A cluster of three brokers on three nodes, and what the failure tests do to it."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster import rays
from tests.cluster.load import until
from tests.cluster.nodes import Nodes

NAMES = ("b1", "b2", "b3")
CLUSTER = "failures"
STEP_S = 150.0
"""How long a failpoint may stay unreached: each change waits up to 10 s for brokers that are slow to carry it out."""


@dataclass
class Figures:
    """Seconds: until the view of a survivor shows a broker as down; until producers of a lost broker send again; until
    a broker whose node was replaced takes clients again."""

    detection: list[float] = field(default_factory=list)
    failover: list[float] = field(default_factory=list)
    returned: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        return "; ".join(
            f"{name} median {statistics.median(found):.2f} s, longest {max(found):.2f} s ({len(found)})"
            for name, found in vars(self).items()
            if found
        )


class Trial:
    """A cluster of three brokers and what is done to it."""

    def __init__(self, nodes: Nodes, store: Path, point: Path, rng: random.Random) -> None:
        import raybroker as rb

        self.nodes = nodes
        self.rng = rng
        self.figures = Figures()
        self._rb = rb
        self._point = point
        self._config = {**rays.small_store(store), "raybroker.host.hung_ms": 2000}
        self.cluster = rb.start(CLUSTER, brokers=len(NAMES), config=self._config)
        self.connection = rb.connect(cluster=CLUSTER, imqAddressList=",".join(NAMES))
        self.connection.start()
        self._changes = 0
        self._there: dict[str, bool] = {}
        """Queues whose creation or removal was answered."""
        self._story: list[str] = []
        """Each change with its time and what was answered."""

    def close(self) -> None:
        self.connection.close()
        self.cluster.stop()

    # ---- looking

    def view(self, broker: str) -> dict[str, str]:
        """Broker → state, as one broker sees it; empty when it cannot be asked."""
        from raybroker.actors import runtime
        from raybroker.errors import BrokerError

        try:
            rows = runtime.call_blocking(self.cluster._broker(broker).brokers, timeout_s=2.0)[2]
        except BrokerError:
            return {}
        return {name: state for name, state, _, _ in rows}

    def pids(self, broker: str) -> dict[str, int]:
        from raybroker.errors import BrokerError

        try:
            return self.cluster.pids(broker)
        except BrokerError:
            return {}

    def whole(self) -> bool:
        """Every broker sees every broker up, and has all its hosts."""
        from raybroker.errors import BrokerError

        try:
            return all(
                self.view(name) == dict.fromkeys(NAMES, "UP")
                and self.pids(name)
                and self.cluster.state(name)["operating"]
                for name in NAMES
            )
        except BrokerError:
            return False

    def wait_whole(self) -> None:
        until(self.whole, "the cluster is whole again")

    def _detect(self, lost: tuple[str, ...], since: float) -> None:
        """Wait until somebody who is left has seen that these are down, or back already."""
        watch = next(name for name in NAMES if name not in lost)

        def seen() -> bool:
            view = self.view(watch)
            return bool(view) and not any(view.get(name) in ("UP", "SUSPECT") for name in lost)

        until(seen, f"{watch} sees that {lost} are down")
        self.figures.detection.append(time.monotonic() - since)

    # ---- SIGKILL

    def kill(self, kind: str) -> float:
        """One kill of a kind, and back to a whole cluster; when it was done."""
        broker = "b1" if kind == "master" else self.rng.choice(NAMES[1:])
        pids = {name: until(lambda name=name: self.pids(name), f"{name} answers") for name in NAMES}
        node = self.cluster.state(broker)["node"]
        time.sleep(self.rng.uniform(0.0, 0.3))
        since = time.monotonic()
        if kind == "node":
            self.nodes.kill(node)
            self._detect((broker,), since)
            self._bring_back(broker)
        elif kind == "paths":
            os.kill(self.paths()["pid"], signal.SIGKILL)
        elif kind == "broker":
            os.kill(pids[broker].pop("broker"), signal.SIGKILL)
            until(lambda: self.pids(broker).get("broker", 0) not in (0, pids[broker].get("broker")), "it restarts")
        else:
            lost = {"two": NAMES[1:], "hosts": (broker,)}.get(kind, (broker,))
            for name in lost:
                for process, pid in pids[name].items():
                    if kind != "hosts" or process != "broker":
                        os.kill(pid, signal.SIGKILL)
            if kind != "hosts":
                self._detect(lost, since)
        self.wait_whole()
        return since

    def paths(self) -> dict[str, Any]:
        """What the path service says of itself."""
        from raybroker.actors import runtime
        from raybroker.errors import BrokerError

        def row() -> Any:
            self.touch_paths()
            actor = runtime.find_actor(runtime.path_name(CLUSTER))
            try:
                return runtime.call_blocking(actor.row, timeout_s=5.0) if actor is not None else None
            except BrokerError:
                return None

        found: dict[str, Any] = until(row, "the path service answers")
        return found

    def touch_paths(self) -> bool:
        """Send a message of a new unit of order by a new producer; False when it was refused."""
        from raybroker.errors import BrokerError

        self._changes += 1
        session = self.connection.session()
        try:
            session.producer("units").send(0, unit_of_order=f"u{self._changes}")
        except BrokerError:
            return False
        finally:
            session.close()
        return True

    def _bring_back(self, broker: str) -> None:
        """Another node, and the broker on it with what it had stored."""
        from raybroker.errors import BrokerError

        self.nodes.add()
        since = time.monotonic()

        def started() -> bool:
            try:
                self._rb.start(CLUSTER, brokers=len(NAMES), config=self._config)
            except BrokerError:
                return False
            return bool(self.pids(broker))

        until(started, f"{broker} is back on another node")
        self.figures.returned.append(time.monotonic() - since)

    # ---- SIGSTOP

    def pause(self, kind: str, seconds: float) -> float:
        """Stop processes for a while, and back to a whole cluster; when it was done."""
        broker = self.rng.choice(NAMES[1:])
        pids, node = self.pids(broker), self.cluster.state(broker)["node"]
        host = self.rng.choice(sorted(name for name in pids if name != "broker"))
        stopped = {
            "host": [pids[host]],
            "broker": [pids["broker"]],
            "raylet": [self.nodes.raylet(node)],
            "node": self.nodes.processes(node),
        }[kind]
        since = time.monotonic()
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            if kind in ("broker", "node"):
                self._detect((broker,), since)
            watch = next(name for name in NAMES if name != broker)
            while time.monotonic() < since + seconds:
                if kind == "raylet":
                    assert self.view(watch)[broker] == "UP", "a broker whose raylet is stopped goes on"
                time.sleep(0.1)
            if kind == "host":
                until(lambda: self.pids(broker).get(host, pids[host]) != pids[host], "a hung host has a successor")
                assert not Path(f"/proc/{pids[host]}").exists() or _is_zombie(pids[host]), "two hosts have one store"
        finally:
            for pid in stopped:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        self.wait_whole()
        return since

    # ---- failpoints

    def step(self, point: str) -> float:
        """Kill whatever reaches a failpoint next, and back to a whole cluster; when it was done."""
        number = self.rng.randint(1, 30) if "store.commit" in point else 1
        fresh = self._point.with_suffix(".new")
        fresh.write_text(f"{point}:{number}:kill")
        since = time.monotonic()
        fresh.rename(self._point)
        if "@host." in point and "/h" in point:
            broker = self.rng.choice(NAMES)
            pids = until(lambda: self.pids(broker), f"{broker} answers")
            os.kill(pids["h1"], signal.SIGKILL)
        while self._point.exists():
            assert time.monotonic() < since + STEP_S, "\n  ".join([f"nothing came to {point}", *self._story[-10:]])
            if point.startswith("paths") or point.endswith("located"):
                self.touch_paths()
            else:
                self.change(destroy=point.endswith("destroy"), dedicated="@host." in point or self.rng.random() < 0.25)
        self.wait_whole()
        return since

    def change(self, destroy: bool, dedicated: bool) -> None:
        """Create or destroy a queue: the next of seven, or one that is there if it has to be destroyed.

        One with a host of its own has a process started at every broker, which takes seconds on a busy machine.
        """
        from raybroker.errors import BrokerError, InvalidDestinationError

        self._changes += 1
        there = [name for name, known in self._there.items() if known]
        name = there[0] if destroy and there else f"queue{self._changes % 7}"
        known = self._there.pop(name, None)
        admin = self.connection.admin()
        what = f"{time.monotonic():.3f} {'destroy' if known else 'create'} {name}"
        try:
            if known:
                admin.destroy_destination("queue", name)
            else:
                admin.create_destination("queue", name, hosting="dedicated" if dedicated else "shared")
        except InvalidDestinationError as error:
            self._there[name] = not known  # The answer to the last attempt was lost.
            self._story.append(f"{what}: {error}")
        except BrokerError as error:
            self._story.append(f"{what}: unknown, {error!r}")
        else:
            self._there[name] = not known
            self._story.append(what)

    def check_changes(self) -> None:
        """Every broker has the queues that were created and not those that were destroyed."""
        from raybroker.actors import runtime

        def differing() -> dict[str, dict[str, bool]]:
            found = {}
            for broker in NAMES:
                args = {"verb": "list_destinations", "args": {"type": "queue"}}
                names = {row["name"] for row in runtime.call_blocking(self.cluster._broker(broker).peer, "admin", args)}
                found[broker] = {name: there for name, there in self._there.items() if (name in names) != there}
            return {broker: names for broker, names in found.items() if names}

        try:
            until(lambda: not differing(), "all brokers have carried out what was answered")
        except AssertionError as error:
            wrong = differing()
            names = {name for some in wrong.values() for name in some}
            story = [line for line in self._story if any(name in line for name in names)]
            raise AssertionError("\n  ".join([f"{error}; answered, but not so there: {wrong}", *story])) from error

    def show(self, queues: list[str]) -> None:
        """After a failure: what the brokers say of the queues, their consumers and open transactions."""
        from raybroker.actors import runtime
        from raybroker.errors import BrokerError

        admin = self.connection.admin()
        try:
            print({name: self.view(name) for name in NAMES})
            for queue in queues:
                row = admin.query_destination("queue", queue)
                counts = ("messages", "waiting", "unacknowledged", "in_transaction", "active_consumers")
                print(queue, {key: row[key] for key in counts}, row["members"])
                for name in NAMES:
                    args = {"verb": "list_consumers", "args": {"destination": queue, "type": "queue"}}
                    for row in runtime.call_blocking(self.cluster._broker(name).peer, "admin", args):
                        print(f"  consumer at {name}: {row}")
            for transaction in admin.list_transactions():
                print("transaction", transaction)
        except BrokerError as error:
            print(f"the brokers cannot be asked: {error!r}", flush=True)


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
