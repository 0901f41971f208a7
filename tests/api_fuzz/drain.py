"""The end of a run: what each queue and subscription holds by its count, and what comes out of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import raybroker as rb
from raybroker.errors import BrokerError
from raybroker.model.naming.names import DEAD_MESSAGE_QUEUE
from tests.api_fuzz.plan import FORWARDED, PASSING, QUEUES, SUBSCRIPTIONS, TARGET, TOPIC, UNIQUE, copies
from tests.api_fuzz.player import Notes, number_of

QUIET_S: Final = 1.0
LOOK_S: Final = 0.1
"""So long what holds nothing by its count is looked at."""
PATIENCE_S: Final = 60.0
TICK_S: Final = 0.02


def drain(folder: Path, broker: Any) -> None:
    """Note it all, and take it; ``broker``: has ``connect()``."""
    notes = Notes(folder / "notes.drain")
    with broker.connect() as connection:
        admin = connection.admin()
        for row in admin.list_transactions():
            if row["state"] == "PREPARED":
                admin.rollback_transaction(f"{row['host']}:{row['id']}")
        _subscriptions(notes, connection)
        there = {row["name"] for row in admin.list_destinations("queue")}
        for queue in (*QUEUES, UNIQUE, FORWARDED, TARGET, PASSING, DEAD_MESSAGE_QUEUE):
            if queue in there:
                _queue(notes, connection, queue)


def _queue(notes: Notes, connection: Any, queue: str) -> None:
    def held() -> int:
        found: int = admin.query_destination("queue", queue)["messages"]
        return found

    admin = connection.admin()
    _settled(admin, queue)
    notes.write("count", queue=queue, messages=held())
    with connection.session(ack="client") as session:
        for messages in _all(session.consumer(queue), held):
            notes.write("left", [number_of(message) for message in messages], queue=queue)


def _subscriptions(notes: Notes, connection: Any) -> None:
    def held() -> int:
        rows = connection.admin().list_subscriptions(TOPIC)
        found: int = sum(row["messages"] for row in rows if row["name"] == name)
        return found

    for row in connection.admin().list_subscriptions(TOPIC):
        name = row["name"]
        notes.write("count", queue=f"{TOPIC}/{name}", messages=held())
        with connection.session(ack="client") as session:
            for messages in _all(session.shared_durable_consumer(rb.Topic(TOPIC), name), held):
                numbers = copies([number_of(message) for message in messages], SUBSCRIPTIONS.index(name))
                notes.write("left", numbers, queue=f"{TOPIC}/{name}")


def _all(consumer: Any, held: Callable[[], int]) -> Iterator[list[Any]]:
    """What comes until nothing is held, block by block; each is acknowledged when the next one is asked for."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        messages = consumer.receive_many(500, timeout=QUIET_S if held() else LOOK_S)
        if messages:
            yield messages
            messages[-1].acknowledge()
        elif not held():
            return


def _settled(admin: Any, queue: str) -> None:
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
