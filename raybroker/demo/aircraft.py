"""The act of the aircraft: a queue on several brokers, one of which is killed and comes back (``demo --brokers N``).

Each aircraft is a unit of order: its flights are on one broker, and are handled in order by whichever consumer.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import ExitStack
from typing import Any, Final

import raybroker as rb
from raybroker.demo.check import Check
from raybroker.demo.display import Display
from raybroker.demo.fleet import Dispatcher, FleetLog, FlightHandler, flights
from raybroker.demo.watch import Picture
from raybroker.model.errors import BrokerError
from raybroker.system.clock import SystemClock

QUEUE: Final = "aircraft"
REPORTS: Final = "aircraft.done"
BATCH: Final = 200
FLOW_LIMIT: Final = 1000
STEP_S: Final = 0.1
STALL_S: Final = 60.0
SETTLE_S: Final = 30.0


class Aircraft:
    """The act; what it sets up is undone by ``stack``, last first."""

    def __init__(
        self,
        rows: int | None,
        cluster: str,
        producers: int,
        consumers: int,
        picture: Picture,
        display: Display,
        stack: ExitStack,
    ) -> None:
        from raybroker.actors import cluster as clusters

        self._rows = rows
        self._picture = picture
        self._display = display
        self._clock = SystemClock()
        self._expected = sum(1 for _ in flights(rows))
        self._log = FleetLog()
        self._queue: dict[str, Any] = {}
        self._seconds = 0.0
        self._killed = ""
        self._kill_ns = 0
        self._back_s = -1.0
        self._failures: list[str] = []
        found = clusters.find(cluster)
        assert found is not None
        self._cluster = found
        self._set_up(cluster, producers, consumers, stack)

    def _set_up(self, cluster: str, producers: int, consumers: int, stack: ExitStack) -> None:
        from raybroker.actors import runtime

        brokers = self._cluster.brokers
        connection = stack.enter_context(rb.connect(cluster=cluster, broker=brokers[0]))
        self._admin = connection.admin()
        self._admin.create_destination("queue", QUEUE, consumerFlowLimit=FLOW_LIMIT)
        stack.callback(self._admin.destroy_destination, "queue", QUEUE)
        self._admin.create_destination("queue", REPORTS, hosting="shared")
        stack.callback(self._admin.destroy_destination, "queue", REPORTS)
        self._note(f"the aircraft: queue {QUEUE} on the brokers {', '.join(brokers)}, each aircraft a unit of order")
        self._reports = connection.session(ack="client").consumer(REPORTS)
        handler = rb.listener(queue=QUEUE, batch=BATCH)(FlightHandler(cluster, REPORTS))
        self._pool = rb.deploy(handler, consumers, cluster=cluster)
        stack.callback(self._pool.stop)
        self._producers = [
            runtime.create_actor(
                Dispatcher,
                cluster,
                QUEUE,
                self._rows,
                part,
                producers,
                brokers[part % len(brokers)],
                name=None,
                max_restarts=0,
            )
            for part in range(producers)
        ]
        for actor in self._producers:
            stack.callback(runtime.kill, actor)

    def _note(self, text: str) -> None:
        self._display.note(self._picture, text)

    # ---- the course ------------------------------------------------------------------------------------------------

    def perform(self) -> None:
        """Run until every flight was handled, or nothing comes any more."""
        begun_ns = last_ns = self._clock.monotonic_ns()
        self._tell("start")
        while len(self._log.seen) < self._expected and self._clock.monotonic_ns() - last_ns < STALL_S * 1e9:
            if self._collect():
                last_ns = self._clock.monotonic_ns()
            if not self._killed and len(self._log.seen) >= self._expected // 2:
                self._kill_one()
            self._renew_picture()
        self._seconds = (last_ns - begun_ns) / 1e9
        self._note(f"{len(self._log.seen):,} of {self._expected:,} flights of aircraft were handled")
        until_ns = self._clock.monotonic_ns() + int(SETTLE_S * 1e9)
        while not self._settled() and self._clock.monotonic_ns() < until_ns:
            self._collect()
            self._renew_picture()
        self._failures = [error for found in self._tell("stats") if (error := found["error"])]

    def _tell(self, method: str) -> list[Any]:
        from raybroker.actors import runtime

        return [runtime.call_blocking(getattr(actor, method)) for actor in self._producers]

    def _collect(self) -> bool:
        before = len(self._log.seen)
        messages = self._reports.receive_many(100, timeout=STEP_S)
        for message in messages:
            self._log.add(message.body)
        if messages:
            messages[-1].acknowledge()
        return len(self._log.seen) > before

    def _renew_picture(self) -> None:
        """Renew the picture, and see whether the killed broker is back."""
        try:
            self._queue = self._admin.query_destination("queue", QUEUE)
        except BrokerError:
            return
        members = {row["broker"]: row for row in self._queue["members"]}
        if self._killed and self._back_s < 0 and self._killed in members:
            self._back_s = (self._clock.monotonic_ns() - self._kill_ns) / 1e9
            self._note(f"broker {self._killed} is back after {self._back_s:.1f} s, with what it stores")
        self._picture.subscribers = [
            {
                "name": f"broker {name}",
                "selector": "",
                "durable": True,
                "open": name in members,
                "got": members.get(name, {}).get("messages_out", 0),
                "of": members.get(name, {}).get("messages_in", 0),
            }
            for name in self._cluster.brokers
        ]
        self._display.update(self._picture)

    def _settled(self) -> bool:
        there = {row["broker"] for row in self._queue.get("members", ())} == set(self._cluster.brokers)
        return there and not self._queue["messages"] and self._back_s >= 0

    def _kill_one(self) -> None:
        """End the last broker and its hosts with SIGKILL, as when their machine loses its power."""
        broker = self._killed = self._cluster.brokers[-1]
        pids = self._cluster.pids(broker)
        self._kill_ns = self._clock.monotonic_ns()
        for pid in pids.values():
            os.kill(pid, signal.SIGKILL)
        self._note(f"killed broker {broker} and its {len(pids) - 1} hosts with SIGKILL")
        threading.Event().wait(STEP_S)

    # ---- the end ---------------------------------------------------------------------------------------------------

    def checks(self) -> list[Check]:
        """The checks of this act, each with its result."""
        fleet, wrong, shown = self._log.disorder(self._rows)
        handled = len(self._log.seen)
        found = [
            Check(
                "no flight of an aircraft lost",
                handled == self._expected,
                f"{handled:,} of {self._expected:,} handled by {len(self._log.consumers)} consumers",
            ),
            Check(
                "aircraft in order",
                wrong == 0,
                f"{fleet:,} aircraft, {wrong:,} out of order" + (f": {'; '.join(shown)}" if shown else ""),
            ),
            Check(
                "the killed broker came back",
                self._back_s >= 0,
                f"{self._killed} after {self._back_s:.1f} s" if self._back_s >= 0 else f"{self._killed} did not",
            ),
            Check(
                "nothing left on any broker",
                not self._queue.get("messages", 1),
                f"{self._queue.get('messages', 0):,} messages left",
            ),
        ]
        if self._failures:
            found.append(Check("no failure of a producer", False, "; ".join(self._failures)))
        return found

    def facts(self) -> dict[str, str]:
        """The summary for people."""
        rate = self._expected / max(self._seconds, 1e-9)
        return {
            "aircraft": f"{rate:,.0f} flights/s in order over {len(self._cluster.brokers)} brokers"
            f" ({self._expected:,} in {self._seconds:.1f} s, {self._log.redelivered:,} redelivered)"
        }

    def summary(self) -> dict[str, Any]:
        """The summary for programs."""
        return {
            "flights": self._expected,
            "handled": len(self._log.seen),
            "seconds": round(self._seconds, 3),
            "redelivered": self._log.redelivered,
            "killed": self._killed,
            "back_s": round(self._back_s, 3),
            "brokers": self._cluster.brokers,
        }
