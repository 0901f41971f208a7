"""A process with a broker: the threads of one round, or the drain at the end of a run."""

from __future__ import annotations

import argparse
import logging
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

from raybroker.client.forwarding.agent import ForwardingAgent
from raybroker.errors import BrokerError
from raybroker.model.definitions.forwarding import forwarding
from raybroker.model.naming.names import DEAD_MESSAGE_QUEUE
from raybroker.system.clock import SystemClock
from tests.api_fuzz import stomp_player
from tests.api_fuzz.beside import BusyPlayer, Refused, subscribed
from tests.api_fuzz.drain import PATIENCE_S, TICK_S, drain
from tests.api_fuzz.plan import FORWARDED, TARGET, THREADS, UNIQUE, Plan, plan_of
from tests.api_fuzz.player import Notes
from tests.api_fuzz.watch import Watch
from tests.contracts.cluster_rig import ClusterRig
from tests.contracts.handles import LoopbackBroker

OUTAGE_S: Final = 4.0
"""How much longer a call may take while a broker is gone."""


class Agent:
    """A forwarding agent between two queues of a broker, in a thread; ``broker``: has ``connect()``."""

    def __init__(self, broker: Any) -> None:
        self._relay = ForwardingAgent(
            "fuzz",
            forwarding({"queue": FORWARDED, "to": f"near/{TARGET}", "retryDelayBase": 20, "windowSize": 7}),
            lambda: broker.connect(started=False),
            lambda: broker.connect(started=False, xa=True),
        )
        self._thread = threading.Thread(target=self._relay.run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._relay.stop()
        self._thread.join()


class Steps(threading.Thread):
    """The machine's clock, which all of this process reads, is an hour ahead now and then, and right at the end."""

    AHEAD_MS: Final = 3_600_000

    def __init__(self, draw: random.Random) -> None:
        super().__init__(daemon=True)
        self._draw = draw
        self._over = threading.Event()
        self._ahead_ms = 0

    def run(self) -> None:
        now_ms = SystemClock.now_ms
        setattr(SystemClock, "now_ms", lambda clock: now_ms(clock) + self._ahead_ms)  # noqa: B010 - mypy refuses to assign
        while not self._over.wait(self._draw.uniform(0.02, 0.5)):
            self._ahead_ms = self.AHEAD_MS - self._ahead_ms
        self._ahead_ms = 0

    def end(self) -> None:
        self._over.set()
        self.join()


class Lag(threading.Thread):
    """How late this machine lets a thread come back, at the most in the last seconds."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._worst: list[tuple[float, float]] = []

    def run(self) -> None:
        while True:
            began = time.monotonic()
            time.sleep(TICK_S)
            now = time.monotonic()
            self._worst = [row for row in self._worst if row[0] > now - 15] + [(now, now - began - TICK_S)]

    def seconds(self) -> float:
        return max((late for _, late in self._worst), default=0.0)


def opened(folder: Path, store: str, face: str, *, stomp: bool = False) -> LoopbackBroker:
    """``store``: memory, file, sql (a file of SQLite), or the address of a PostgreSQL. ``stomp``: it serves that."""
    properties: dict[str, Any] = {} if store in ("memory", "file") else {"imq.persist.store": "sql"}
    if "://" in store:
        properties |= on_server(folder, store)
    if stomp:
        properties |= stomp_player.properties(folder / "security")
    return LoopbackBroker(None if store == "memory" else folder / "store", face, None, **properties)


def on_server(folder: Path, url: str) -> dict[str, Any]:
    """Properties of a broker whose tables there are its own, by the name of its folder."""
    return {
        "imq.persist.store": "sql",
        "imq.persist.jdbc.dbVendor": "postgresql",
        "imq.persist.jdbc.postgresql.opendburl": url,
        "imq.brokerid": "".join(filter(str.isalnum, folder.name)),
    }


class Expected(logging.Filter):
    """Not what a listener of the fuzzer raises itself: what is printed with a traceback is a fault."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.exc_info is None or not isinstance(record.exc_info[1], (Refused, BrokerError))


def play(folder: Path, seed: int, number: int, store: str) -> None:
    """The threads of round ``number``; says "begun" when they run."""
    plan = plan_of(seed, kills=store != "memory")
    broker = opened(folder, store, plan.face, stomp=plan.stomp)
    admin = broker.connect().admin()
    made(admin, plan)
    lag = Lag()
    lag.start()

    threads = []
    for thread in range(THREADS):
        notes = Notes(folder / f"notes.{number}.{thread}")
        player = BusyPlayer(seed * 10 + number, thread, notes, broker.connect, lag.seconds, steps=plan.steps)
        threads.append(threading.Thread(target=player.play))
    if plan.stomp:
        notes = Notes(folder / f"notes.{number}.{THREADS}")
        port = next(row["port"] for row in admin.list_services() if row["service"] == "stomp")
        speaker = stomp_player.StompPlayer(seed * 10 + number, THREADS, notes, port, lag.seconds)
        threads.append(threading.Thread(target=speaker.play))
    print("begun", flush=True)
    steps = Steps(random.Random(seed))
    if plan.steps:
        steps.start()
    for one in threads:
        one.start()
    agent = Agent(broker)
    for one in threads:
        one.join()
    agent.end()
    if plan.steps:
        steps.end()
    if store == "memory":
        drain(folder, broker)
    broker.close()


def emptied(admin: Any, queue: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while admin.query_destination("queue", queue)["messages"] and time.monotonic() < end:
        time.sleep(TICK_S)


class Clients:
    """Connections to a cluster, which come back soon after a broker does."""

    def __init__(self, rig: ClusterRig) -> None:
        self._rig = rig

    def connect(self, **options: Any) -> Any:
        return self._rig.connect(imqReconnectInterval=50, imqReconnectAttempts=-1, **options)


def play_in_cluster(folder: Path, seed: int) -> None:
    """All of a seed in this process: the clients outlive the brokers, which are killed and started again."""
    plan, draw, lag = plan_of(seed, kills=True), random.Random(seed), Lag()
    lag.start()
    with ClusterRig(folder / "rig", draw.choice((1, 3))) as rig:
        clients = Clients(rig)
        made(clients.connect().admin(), plan)
        threads = []
        for thread in range(THREADS):
            notes = Notes(folder / f"notes.0.{thread}")
            player = BusyPlayer(seed, thread, notes, clients.connect, lambda: lag.seconds() + OUTAGE_S / 4)
            threads.append(threading.Thread(target=player.play))
        agent = Agent(clients)
        for one in threads:
            one.start()
        killed = Notes(folder / "notes.killed")
        for planned in plan.rounds[:-1]:
            time.sleep(planned.kill_after_s or 0.1)
            name = draw.choice(rig.plan.names)
            rig.kill(name)
            killed.write("killed", others=len(rig.plan.names) > 1)
            time.sleep(draw.choice((0.0, 0.1, 0.5)))
            rig.start(name)
        rig.wait_until_open()
        for one in threads:
            one.join()
        with clients.connect() as connection:
            emptied(connection.admin(), FORWARDED)
        agent.end()
        drain(folder, clients)


def made(admin: Any, plan: Plan) -> None:
    """The destinations of a seed."""
    for name, attributes in plan.queues.items():
        admin.create_destination("queue", name, if_exists="keep", **attributes)
    admin.create_destination("queue", UNIQUE, if_exists="keep", duplicateWindowMs=600_000)
    for name in (FORWARDED, TARGET):
        admin.create_destination("queue", name, if_exists="keep")
    # A full queue of dead messages lets the oldest go, and nobody notes which.
    admin.update_destination("queue", DEAD_MESSAGE_QUEUE, maxNumMsgs=-1, maxTotalMsgBytes="-1")
    subscribed(admin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("play", "drain", "cluster"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--round", type=int, default=0)
    parser.add_argument("--store", default="file")
    parser.add_argument("--limit", type=float, required=True, help="seconds after which it has hung")
    given = parser.parse_args()
    Watch(given.limit).start()
    logging.getLogger("raybroker.listener").addFilter(Expected())
    if given.what == "cluster":
        play_in_cluster(given.folder, given.seed)
        return
    if given.what == "play":
        play(given.folder, given.seed, given.round, given.store)
        return
    with opened(given.folder, given.store, "blocking") as broker:
        agent = Agent(broker)  # What an earlier one left between the two queues is settled by itself alone.
        with broker.connect() as connection:
            emptied(connection.admin(), FORWARDED)
        agent.end()
        drain(given.folder, broker)


if __name__ == "__main__":
    sys.exit(main())
