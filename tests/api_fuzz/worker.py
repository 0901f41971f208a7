"""A process with a broker: the threads of one round, or the drain at the end of a run."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

from raybroker.client.forwarding.agent import ForwardingAgent
from raybroker.errors import BrokerError
from raybroker.model.forwarding import forwarding
from tests.api_fuzz.plan import FORWARDED, QUEUES, TARGET, THREADS, UNIQUE, plan_of
from tests.api_fuzz.player import Notes, Player
from tests.contracts.handles import LoopbackBroker

DEAD: Final = "mq.sys.dmq"
QUIET_S: Final = 1.0
PATIENCE_S: Final = 60.0
TICK_S: Final = 0.02


class Agent:
    """A forwarding agent between two queues of a broker, in a thread."""

    def __init__(self, broker: LoopbackBroker) -> None:
        self._relay = ForwardingAgent(
            "fuzz", forwarding({"queue": FORWARDED, "to": f"near/{TARGET}", "retryDelayBase": 20, "windowSize": 7}),
            lambda: broker.connect(started=False), lambda: broker.connect(started=False, xa=True),
        )  # fmt: skip
        self._thread = threading.Thread(target=self._relay.run)
        self._thread.start()

    def end(self) -> None:
        self._relay.stop()
        self._thread.join()


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


def opened(folder: Path, store: str, face: str) -> LoopbackBroker:
    properties = {"imq.persist.store": "sql"} if store == "sql" else {}
    return LoopbackBroker(None if store == "memory" else folder / "store", face, **properties)


def play(folder: Path, seed: int, number: int, store: str) -> None:
    """The threads of round ``number``; says "begun" when they run."""
    plan = plan_of(seed, kills=store != "memory")
    broker = opened(folder, store, plan.face)
    admin = broker.connect().admin()
    for name, attributes in plan.queues.items():
        admin.create_destination("queue", name, if_exists="keep", **attributes)
    admin.create_destination("queue", UNIQUE, if_exists="keep", duplicateWindowMs=600_000)
    for name in (FORWARDED, TARGET):
        admin.create_destination("queue", name, if_exists="keep")
    lag = Lag()
    lag.start()

    threads = []
    for thread in range(THREADS):
        notes = Notes(folder / f"notes.{number}.{thread}")
        player = Player(seed * 10 + number, thread, notes, broker.connect, lag.seconds)
        threads.append(threading.Thread(target=player.play))
    print("begun", flush=True)
    for one in threads:
        one.start()
    agent = Agent(broker)
    for one in threads:
        one.join()
    agent.end()
    if store == "memory":
        drain(folder, broker)
    broker.close()


def drain(folder: Path, broker: Any) -> None:
    """Note what each queue holds by its count, and what comes out of it; ``broker``: has ``connect()``."""
    notes = Notes(folder / "notes.drain")
    with broker.connect() as connection:
        admin = connection.admin()
        for row in admin.list_transactions():
            if row["state"] == "PREPARED":
                admin.rollback_transaction(f"{row['host']}:{row['id']}")
        for queue in (*QUEUES, UNIQUE, FORWARDED, TARGET, DEAD):
            settled(admin, queue)
            notes.write("count", queue=queue, messages=admin.query_destination("queue", queue)["messages"])
            with connection.session(ack="client") as session:
                consumer = session.consumer(queue)
                end = time.monotonic() + PATIENCE_S
                while time.monotonic() < end:
                    messages = consumer.receive_many(500, timeout=QUIET_S)
                    if not messages and not admin.query_destination("queue", queue)["messages"]:
                        break
                    if messages:
                        notes.write("left", [message.body["n"] for message in messages], queue=queue)
                        messages[-1].acknowledge()


def emptied(admin: Any, queue: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while admin.query_destination("queue", queue)["messages"] and time.monotonic() < end:
        time.sleep(TICK_S)


def settled(admin: Any, queue: str) -> None:
    """Until nothing is delayed, paused, or held by somebody whose connection has gone."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        try:
            admin.resume_destination("queue", queue)
        except BrokerError:
            pass
        row = admin.query_destination("queue", queue)
        if not row["unacknowledged"] and not row["delayed"]:
            time.sleep(0.1)  # What has expired meanwhile goes.
            return
        time.sleep(TICK_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("play", "drain"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--round", type=int, default=0)
    parser.add_argument("--store", choices=("memory", "file", "sql"), default="file")
    given = parser.parse_args()
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
