"""The course of the demo: queue, consumers, producers, a kill, the end of the data, the weather, checks, summary."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console

import raybroker as rb
from raybroker.demo import data
from raybroker.demo.aircraft import Aircraft
from raybroker.demo.analysing import REPORT, analysed, recording
from raybroker.demo.check import Check, Tally, compare, sums_of_file
from raybroker.demo.consumers import Reporter
from raybroker.demo.display import Display
from raybroker.demo.producers import Replayer
from raybroker.demo.stage import stage
from raybroker.demo.watch import Picture, Watcher
from raybroker.demo.weather import Weather
from raybroker.system.clock import SystemClock

QUEUE: Final = "flights"
REPORTS: Final = "flights.done"
BATCH: Final = 200
FLOW_LIMIT: Final = 1000
GATE: Final = 0.6
"""Share of the rows after which producers wait until the consumer has been killed, which happens at half."""
STEP_S: Final = 0.1
LOOKS_IN_HAND: Final = 4
"""So many looks in a row, a step apart, find messages in hand before a consumer that was stopped is killed."""
IN_HAND_S: Final = 15.0
"""How long that is looked for; then it is killed with empty hands."""
STALL_S: Final = 60.0
"""So long without a new row, and the demo says what is missing."""
SETTLE_S: Final = 30.0
PERCENTS: Final = (50.0, 95.0, 99.0, 100.0)


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """The options of ``raybroker demo``. ``rows`` None: all; ``store`` None: temporary; ``json``: summary file;
    ``report``: where the analysis of the brokers' metrics goes, None for the folder of temporary files.

    With several ``brokers`` there is a third act, in which one of them is killed.
    """

    rows: int | None = None
    producers: int = 2
    consumers: int = 3
    kill: bool = True
    store: Path | None = None
    json: Path | None = None
    cluster: str = "default"
    brokers: int = 1
    report: Path | None = None


def run_demo(plan: DemoPlan, *, join: bool, console: Console | None = None) -> bool:
    """Carry the demo out; True when every check holds. ``join``: use the Ray that the environment names."""
    rows = data.count(plan.rows)
    data.flights_file()
    picture = Picture(rows)
    display = Display(console or Console(highlight=False))
    display.say(f"raybroker demo: {rows:,} departures of 2013, {plan.producers} producers, {plan.consumers} consumers")
    place = stage(
        plan.cluster,
        join=join,
        store=plan.store,
        brokers=plan.brokers,
        note=lambda text: display.note(picture, text),
    )
    with place, ExitStack() as stack:
        play = Play(plan, picture, display, stack)
        acts: list[Any] = [play]
        lake = stack.enter_context(recording(plan.cluster))
        try:
            play.perform()
            acts.append(Weather(plan.rows, plan.cluster, picture, display, stack))
            acts[-1].perform()
            if plan.brokers > 1:
                acts.append(Aircraft(plan.rows, plan.cluster, plan.producers, plan.consumers, picture, display, stack))
                acts[-1].perform()
        finally:
            display.end_progress(picture)
        checks = [check for act in acts for check in act.checks()]
        facts = {name: text for act in acts for name, text in act.facts().items()}
    facts |= analysed(lake, plan.report or Path(tempfile.gettempdir()) / REPORT, picture, display)
    display.summary(facts, checks)
    good = all(check.good for check in checks)
    display.say("all checks hold" if good else "SOME CHECKS FAILED")
    if plan.json is not None:
        summary = play.summary(checks)
        for name, act in zip(("weather", "aircraft"), acts[1:], strict=False):
            summary[name] = act.summary()
        plan.json.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    return good


class DemoCollector(threading.Thread):
    """Takes the reports off their queue and adds them to the tally."""

    def __init__(self, connection: Any, tally: Tally) -> None:
        super().__init__(name="collect", daemon=True)
        self.tally = tally
        self.last_ns = 0
        """Time of the last new row."""
        self.error: str | None = None
        self._session = connection.session(ack="client")
        self._consumer = self._session.consumer(REPORTS)
        self._closing = threading.Event()

    def run(self) -> None:
        clock = SystemClock()
        try:
            while not self._closing.is_set():
                messages = self._consumer.receive_many(100, timeout=STEP_S)
                before = self.tally.distinct
                for message in messages:
                    self.tally.add(message.id, message.body)
                if self.tally.distinct > before:
                    self.last_ns = clock.monotonic_ns()
                if messages:
                    messages[-1].acknowledge()
        except Exception as error:  # noqa: BLE001 - the checks say it
            self.error = repr(error)

    def close(self) -> None:
        self._closing.set()
        self.join()
        self._session.close()


class Play:
    """One performance; what it sets up is undone by ``stack``, last first."""

    def __init__(self, plan: DemoPlan, picture: Picture, display: Display, stack: ExitStack) -> None:
        self.plan = plan
        self.picture = picture
        self.tally = Tally(picture.rows)
        self._display = display
        self._stack = stack
        self._clock = SystemClock()
        self._killed: int | None = None
        self._restarted = False
        self._looks_in_hand = 0
        self._failures: list[str] = []
        self._queue: dict[str, Any] = {}
        self._begun_ns = 0
        self._set_up()

    def _set_up(self) -> None:
        plan, stack = self.plan, self._stack
        self._connection = stack.enter_context(rb.connect(cluster=plan.cluster))
        self._admin = self._connection.admin()
        self._admin.create_destination("queue", QUEUE, consumerFlowLimit=FLOW_LIMIT)
        stack.callback(self._admin.destroy_destination, "queue", QUEUE)
        self._admin.create_destination("queue", REPORTS, hosting="shared")
        stack.callback(self._admin.destroy_destination, "queue", REPORTS)
        self._note(f"created the queues {QUEUE} and {REPORTS}; starting producers and consumers")
        self._collector = DemoCollector(self._connection, self.tally)
        self._collector.start()
        stack.callback(self._collector.close)
        self._producers = self._start_producers()
        listener = rb.listener(queue=QUEUE, batch=BATCH)(Reporter(plan.cluster, REPORTS))
        self._pool = rb.deploy(listener, plan.consumers, cluster=plan.cluster)
        stack.callback(self._pool.stop)
        self._watcher = Watcher(
            self.picture, lambda: dict(self._admin.query_destination("queue", QUEUE)), self._pool.stats
        )
        stack.callback(self._watcher.close)

    def _start_producers(self) -> list[Any]:
        from raybroker.actors import runtime

        plan, rows = self.plan, self.picture.rows
        gate = int(GATE * rows / plan.producers) if plan.kill else None
        made = [
            runtime.create_actor(
                Replayer, plan.cluster, QUEUE, plan.rows, part, plan.producers, gate, name=None, max_restarts=0
            )
            for part in range(plan.producers)
        ]
        for actor in made:
            self._stack.callback(runtime.kill, actor)
        return made

    def _note(self, text: str) -> None:
        self._display.note(self.picture, text)

    # ---- the course --------------------------------------------------------------------------------------------------

    def perform(self) -> None:
        """Run until every row was reported, or nothing comes any more."""
        self._tell("start")
        self._begun_ns = self._collector.last_ns = self._clock.monotonic_ns()
        self._note("producers run")
        self._display.begin_progress(self.picture)
        half = self.picture.rows // 2
        while self.tally.distinct < self.picture.rows and not self._stalled():
            self._step()
            if self.plan.kill and self._killed is None and self.tally.distinct >= half:
                self._kill_one()
        self._note(f"{self.tally.distinct:,} of {self.picture.rows:,} rows are there")
        self._wait(self._settled)
        if self._killed is not None:
            self._restarted = self._wait(self._all_there)
        self._failures += [error for found in self._tell("stats") if (error := found["error"])]
        self._step()

    def _tell(self, method: str) -> list[Any]:
        from raybroker.actors import runtime

        return [runtime.call_blocking(getattr(actor, method)) for actor in self._producers]

    def _step(self) -> None:
        threading.Event().wait(STEP_S)
        self.picture.distinct, self.picture.redelivered = self.tally.distinct, self.tally.flagged
        self._display.update(self.picture)

    def _wait(self, holds: Callable[[], bool], most_s: float = SETTLE_S) -> bool:
        until_ns = self._clock.monotonic_ns() + int(most_s * 1e9)
        while not (held := holds()) and self._clock.monotonic_ns() < until_ns:
            self._step()
        return held

    def _stalled(self) -> bool:
        since_ns = max(self._collector.last_ns, self._begun_ns)
        return self._collector.error is not None or self._clock.monotonic_ns() - since_ns > STALL_S * 1e9

    def _settled(self) -> bool:
        """All acknowledged, and what was reported is tallied."""
        self._queue = dict(self._admin.query_destination("queue", QUEUE))
        return not self._queue["messages"] and not self._admin.query_destination("queue", REPORTS)["messages"]

    def _all_there(self) -> bool:
        pids = [consumer.get("pid") for consumer in self.picture.consumers]
        return None not in pids and self._killed not in pids

    # ---- the kill ----------------------------------------------------------------------------------------------------

    def _kill_one(self) -> None:
        """End the busiest consumer with SIGKILL while it holds messages.

        It is stopped first and the producers are let go on, so that also in a short demo some are in its hands.
        """
        self._wait(lambda: any("pid" in consumer for consumer in self.picture.consumers))
        there = [(found.get("buffered", -1), index) for index, found in enumerate(self.picture.consumers)]
        index = max(there)[1]
        pid = self._killed = self.picture.consumers[index]["pid"]
        local = _is_consumer(pid)
        if local:
            os.kill(pid, signal.SIGSTOP)
        self._tell("go_on")
        self._looks_in_hand = 0
        self._wait(self._in_hand, most_s=IN_HAND_S)
        if local:
            os.kill(pid, signal.SIGKILL)
        else:
            from raybroker.actors import runtime

            runtime.kill(self._pool.actors[index], restart=True)
        self._note(f"killed consumer {index + 1} (process {pid}) with SIGKILL; its messages go to the others")

    def _in_hand(self) -> bool:
        """The stopped consumer has messages that it has not acknowledged, look after look: what it had acknowledged
        before may still be on its way."""
        own = {
            number
            for connection in self._admin.list_connections()
            if str(connection["pid"]) == str(self._killed)
            for number in connection["consumer_ids"]
        }
        rows = self._admin.list_consumers(destination=QUEUE)
        held = any(row["unacknowledged"] for row in rows if row["id"] in own)
        self._looks_in_hand = self._looks_in_hand + 1 if held else 0
        return self._looks_in_hand >= LOOKS_IN_HAND

    # ---- the end -----------------------------------------------------------------------------------------------------

    def checks(self) -> list[Check]:
        """The checks, each with its result; reads the file once more."""
        found = compare(self.tally, sums_of_file(self.plan.rows), self._queue["messages_in"], self._queue["messages"])
        if self.plan.kill:
            found.append(Check("the killed consumer came back", self._restarted, f"process {self._killed} was killed"))
        failures = [*self._failures, *([self._collector.error] if self._collector.error else [])]
        if failures:
            found.append(Check("no failure", False, "; ".join(failures)))
        return found

    @property
    def _seconds(self) -> float:
        return max(self._collector.last_ns - self._begun_ns, 1) / 1e9

    def facts(self) -> dict[str, str]:
        """The summary for people."""
        megabytes = self._queue["bytes_in"] / 1e6
        waits = self.tally.percentiles_ms(PERCENTS)
        return {
            "throughput": f"{self.tally.distinct / self._seconds:,.0f} messages/s from file to tally"
            f" ({self.tally.distinct:,} in {self._seconds:.1f} s, {megabytes:,.0f} MB stored and synced)",
            "latency": "  ".join(f"{'max' if name == 'p100' else name} {wait:,} ms" for name, wait in waits.items())
            + "  from packing to the consumer, waiting in the queue included",
            "redelivered": f"{self.tally.flagged:,} messages, of which {self.tally.duplicates:,} had been processed",
        }

    def summary(self, checks: list[Check]) -> dict[str, Any]:
        """The summary for programs."""
        return {
            "ok": all(check.good for check in checks),
            "rows": self.picture.rows,
            "distinct": self.tally.distinct,
            "seconds": round(self._seconds, 3),
            "messages_per_second": round(self.tally.distinct / self._seconds, 1),
            "bytes_stored": self._queue["bytes_in"],
            "latency_ms": self.tally.percentiles_ms(PERCENTS),
            "redelivered": self.tally.flagged,
            "duplicates": self.tally.duplicates,
            "unflagged_duplicates": self.tally.unflagged_duplicates,
            "killed": self._killed,
            "carriers": {name: carrier.departures for name, carrier in sorted(self.tally.carriers.items())},
            "checks": [{"name": check.name, "good": check.good, "found": check.found} for check in checks],
        }


def _is_consumer(pid: int) -> bool:
    """True for a consumer's process on this machine."""
    try:
        return b"ConsumerActor" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
