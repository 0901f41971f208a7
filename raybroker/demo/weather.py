"""The second act of the demo: readings of the weather through a topic, to subscribers with and without selectors.

One of the durable subscribers goes away when it has seen a third, and comes back when three quarters are stored, while
publishing goes on; what was published in between is kept for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import pairwise
from typing import Any, Final

import raybroker as rb
from raybroker.demo.check import Check
from raybroker.demo.display import Display
from raybroker.demo.readings import FEEDS, Feed, Gathered, Reading, checksum, expected_of, properties_of, readings
from raybroker.demo.watch import Picture
from raybroker.system.clock import SystemClock

TOPIC: Final = "weather"
TAKE: Final = 500
STEP_S: Final = 0.05
STALL_S: Final = 30.0
"""So long without anything new, and the demo says what is missing."""
LEAVES_AT, GONE_AT, BACK_AT = 1 / 3, 1 / 2, 3 / 4
"""Shares of the readings: seen when the subscriber goes, stored when it must be gone, stored when it comes back."""


class Publisher(threading.Thread):
    """Publishes readings as persistent messages; waits at each gate until it is let through."""

    def __init__(self, connection: Any, found: Sequence[Reading], stops: Sequence[int]) -> None:
        super().__init__(name="publish", daemon=True)
        self.ids: dict[int, str] = {}
        """Message ids of what is known to be stored, by row."""
        self.error: str | None = None
        self._connection = connection
        self._readings = found
        self._stops = (0, *stops, len(found))
        self._gates = [threading.Event() for _ in stops]

    def let_through(self, gate: int) -> None:
        self._gates[gate].set()

    def run(self) -> None:
        try:
            session = self._connection.session()
            producer = session.producer(session.topic(TOPIC), persistent=True)
            for number, (start, end) in enumerate(pairwise(self._stops)):
                if number:
                    self._gates[number - 1].wait()
                part = self._readings[start:end]
                sent = [producer.send_async(reading, properties=properties_of(reading)) for reading in part]
                for reading, future in zip(part, sent, strict=True):
                    self.ids[reading["row"]] = future.result()
            session.close()
        except Exception as error:  # noqa: BLE001 - the checks say it
            self.error = repr(error)

    def close(self) -> None:
        """Let it end, whatever it waits for."""
        for gate in self._gates:
            gate.set()
        self.join()


class Subscriber:
    """One subscriber with a connection of its own, which may be closed and opened again."""

    def __init__(self, cluster: str, feed: Feed, gathered: Gathered) -> None:
        self.feed = feed
        self.gathered = gathered
        self.error: str | None = None
        self._cluster = cluster
        self._closing = threading.Event()
        self._connection: Any = None
        self._thread: threading.Thread | None = None

    @property
    def is_open(self) -> bool:
        return self._thread is not None

    def open(self) -> None:
        self._closing.clear()
        client_id = f"demo-{self.feed.name}" if self.feed.durable else None
        connection = self._connection = rb.connect(cluster=self._cluster, client_id=client_id)
        connection.start()
        session = connection.session(ack="client")
        topic, selector = session.topic(TOPIC), self.feed.selector
        if self.feed.durable:
            consumer = session.durable_consumer(topic, self.feed.name, selector)
        else:
            consumer = session.consumer(topic, selector)
        self._thread = threading.Thread(target=self._receive_all, args=(consumer,), name=self.feed.name, daemon=True)
        self._thread.start()

    def _receive_all(self, consumer: Any) -> None:
        try:
            while not self._closing.is_set():
                messages = consumer.receive_many(TAKE, timeout=STEP_S)
                for message in messages:
                    self.gathered.add(message)
                if messages:
                    messages[-1].acknowledge()
        except Exception as error:  # noqa: BLE001 - the checks say it
            self.error = repr(error)

    def close(self) -> None:
        if self._thread is not None:
            self._closing.set()
            self._thread.join()
            self._thread = None
            self._connection.close()

    def unsubscribe(self) -> None:
        """End the subscription too."""
        self.close()
        if self.feed.durable:
            with rb.connect(cluster=self._cluster, client_id=f"demo-{self.feed.name}") as connection:
                connection.session().unsubscribe(self.feed.name)


class Weather:
    """The act; what it sets up is undone by ``stack``, last first."""

    def __init__(self, rows: int | None, cluster: str, picture: Picture, display: Display, stack: ExitStack) -> None:
        self.picture = picture
        self._display = display
        self._clock = SystemClock()
        self._readings = readings(rows)
        self._kept = self._missed = 0
        self._left = -1
        self._seconds = 0.0
        self._connection = stack.enter_context(rb.connect(cluster=cluster))
        self._admin = self._connection.admin()
        self._admin.create_destination("topic", TOPIC)
        stack.callback(self._admin.destroy_destination, "topic", TOPIC)
        self.subscribers = [Subscriber(cluster, feed, Gathered(expected_of(feed, self._readings))) for feed in FEEDS]
        for subscriber in self.subscribers:
            subscriber.open()
            stack.callback(subscriber.unsubscribe)
        stops = [int(share * len(self._readings)) for share in (GONE_AT, BACK_AT)]
        self.publisher = Publisher(self._connection, self._readings, stops)
        stack.callback(self.publisher.close)
        self._stops = stops

    def perform(self) -> None:
        """Run until everybody has everything, or nothing comes any more."""
        began_ns = self._clock.monotonic_ns()
        self._note(f"publishing {len(self._readings):,} weather readings to {len(self.subscribers)} subscribers")
        self.publisher.start()
        away = [subscriber for subscriber in self.subscribers if subscriber.feed.pauses]
        leaves_at = int(LEAVES_AT * len(self._readings))
        self._wait(lambda: all(len(subscriber.gathered.ids) >= leaves_at for subscriber in away))
        for subscriber in away:
            subscriber.close()
            self._note(f"{subscriber.feed.name} went away with {len(subscriber.gathered.ids):,} readings")
        self.publisher.let_through(0)
        self._wait(lambda: len(self.publisher.ids) >= self._stops[1])
        for subscriber in away:
            self._kept += self._waiting_for(subscriber.feed)
            self._missed += len(self.publisher.ids) - len(subscriber.gathered.ids)
        self._note(f"{self._kept:,} readings are kept for it; it comes back, and publishing goes on")
        self.publisher.let_through(1)
        for subscriber in away:
            subscriber.open()
        self._wait(lambda: all(subscriber.gathered.complete for subscriber in self.subscribers))
        self._wait(self._empty)
        self._seconds = (self._clock.monotonic_ns() - began_ns) / 1e9
        self._note(f"{self._deliveries:,} readings were delivered")

    @property
    def _deliveries(self) -> int:
        return sum(len(subscriber.gathered.ids) for subscriber in self.subscribers)

    def _waiting_for(self, feed: Feed) -> int:
        rows = self._admin.list_subscriptions(TOPIC)
        return sum(int(row["messages"]) for row in rows if row["name"] == feed.name)

    def _empty(self) -> bool:
        self._left = int(self._admin.query_destination("topic", TOPIC)["messages"])
        return not self._left

    def _note(self, text: str) -> None:
        self._display.note(self.picture, text)

    def _wait(self, holds: Callable[[], bool]) -> bool:
        """Wait until it holds; return False when something failed or nothing has moved for STALL_S."""
        moved, since_ns = -1, self._clock.monotonic_ns()
        while not (held := holds()):
            self._step()
            now = len(self.publisher.ids) + self._deliveries
            if now != moved:
                moved, since_ns = now, self._clock.monotonic_ns()
            elif self._failures() or self._clock.monotonic_ns() - since_ns > STALL_S * 1e9:
                break
        self._step()
        return held

    def _step(self) -> None:
        threading.Event().wait(STEP_S)
        self.picture.subscribers = [
            {
                "name": subscriber.feed.name,
                "selector": subscriber.feed.selector,
                "durable": subscriber.feed.durable,
                "open": subscriber.is_open,
                "got": len(subscriber.gathered.ids),
                "of": len(subscriber.gathered.expected),
            }
            for subscriber in self.subscribers
        ]
        self._display.update(self.picture)

    def _failures(self) -> list[str]:
        errors = [self.publisher.error, *(subscriber.error for subscriber in self.subscribers)]
        return [error for error in errors if error]

    # ---- the end -----------------------------------------------------------------------------------------------------

    def checks(self) -> list[Check]:
        """The checks of each subscriber, and of all, with their results."""
        found = [check_of(subscriber.feed, subscriber.gathered, self.publisher.ids) for subscriber in self.subscribers]
        found.append(
            Check(
                "weather kept while away",
                self._kept == self._missed > 0,
                f"{self._kept:,} of {self._missed:,} readings that were published meanwhile",
            )
        )
        found.append(check_of_repeats([subscriber.gathered for subscriber in self.subscribers]))
        found.append(Check("the topic is empty", self._left == 0, f"{self._left:,} messages left"))
        if failures := self._failures():
            found.append(Check("no failure with the weather", False, "; ".join(failures)))
        return found

    def facts(self) -> dict[str, str]:
        """The line of the summary for people."""
        return {
            "weather": f"{len(self._readings):,} readings, {self._deliveries:,} deliveries to"
            f" {len(self.subscribers)} subscribers in {self._seconds:.1f} s, with a pause of one of them"
        }

    def summary(self) -> dict[str, Any]:
        """The summary for programs."""
        return {
            "readings": len(self._readings),
            "seconds": round(self._seconds, 3),
            "kept_while_away": self._kept,
            "subscribers": {
                subscriber.feed.name: {
                    "selector": subscriber.feed.selector,
                    "durable": subscriber.feed.durable,
                    "received": len(subscriber.gathered.ids),
                    "expected": len(subscriber.gathered.expected),
                    "checksum": f"{subscriber.gathered.checksum():08x}",
                    "redelivered": subscriber.gathered.flagged,
                }
                for subscriber in self.subscribers
            },
        }


def check_of(feed: Feed, gathered: Gathered, ids: dict[int, str]) -> Check:
    """Check that a subscriber got what the file says it should, and nothing else; ``ids`` are those of the sends."""
    rows = sorted(gathered.expected)
    should = checksum(ids.get(row, "") for row in rows)
    got = gathered.checksum()
    good = sorted(gathered.ids) == rows and got == should and not gathered.wrong
    found = f"{len(gathered.ids):,} of {len(rows):,} readings, checksum {got:08x}"
    if got != should:
        found += f" and not {should:08x}"
    if gathered.wrong:
        found += f", {len(gathered.wrong):,} wrong, rows {list(gathered.wrong[:5])} …"
    return Check(f"weather for {feed.name}", good, found + (f", where {feed.selector}" if feed.selector else ""))


def check_of_repeats(gathered: Sequence[Gathered]) -> Check:
    """Check that each subscriber got each reading at most once without the redelivered flag."""
    flagged, twice, silent = (
        sum(getattr(one, name) for one in gathered) for name in ("flagged", "duplicates", "unflagged_duplicates")
    )
    text = f"{flagged:,} redelivered, {twice:,} came twice, {silent:,} of them without the flag"
    return Check("weather repeats are flagged", silent == 0, text)
