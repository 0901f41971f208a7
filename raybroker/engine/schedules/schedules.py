"""Messages that are sent again and again, by the calendar or the clock.

A schedule belongs to one destination and lives on its host.  At each occurrence the host sends the message there anew:
with an id of its own, the time of the firing, and properties that name the schedule, count the firings, and tell the
occurrence.  The message and the note that the schedule has come so far are one batch of the store: after a crash
both are there or neither, so every occurrence is fired once.

    missed       occurrences that passed while the host was down, or that the destination did not take (full, paused),
                 are made up for by one firing, for the latest of them; with catch_up by one each
    repeat       counts firings; after the last one the schedule is over
    clock        an occurrence is fired once even when the clock is put back: the calendar's next one is later than the
                 last that was fired; an interval begins anew

The body stays in the store between firings.  A message that cannot be read back, or a time zone that the machine does
not know any more, halts its schedule and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, Final

from raybroker.core import command as cmd
from raybroker.core.destination import Destination
from raybroker.engine.destinations.destination_registry import DestinationRegistry
from raybroker.engine.measured_time import MeasuredTime
from raybroker.engine.memory.block_cache import BlockCache
from raybroker.engine.memory.memory_protection import MemoryProtection
from raybroker.engine.path.executor import Done, Executor, unawaited
from raybroker.engine.path.overrides import overridden
from raybroker.engine.path.own_sends import OwnSends
from raybroker.engine.path.wakeups import AGAIN_MS, Wakeups
from raybroker.engine.schedules import schedule_log
from raybroker.engine.schedules.schedule_log import ScheduleLog, ScheduleRow
from raybroker.model.blocks.block import Block
from raybroker.model.blocks.record import LogEntry
from raybroker.model.bounds import SCHEDULED_BYTES_MAX
from raybroker.model.errors import (
    BrokerError,
    ConfigError,
    InvalidDestinationError,
    MessageTooLargeError,
    ResourceAllocationError,
    StoreDamagedError,
    StoreError,
)

if TYPE_CHECKING:
    from raybroker.engine.schedules.recurrence import Recurrence

SCHEDULE_ID: Final = "JMS_RB_SCHEDULE_ID"
SEQUENCE: Final = "JMS_RB_SCHEDULE_SEQUENCE"
"""Which firing of the schedule it is, from 1 on."""
OCCURRENCE: Final = "JMS_RB_SCHEDULE_TIME"
"""The occurrence that it stands for, milliseconds since 1970."""

CATCH_UP_MAX: Final = 100
"""Missed occurrences of one schedule that are made up for in one go; others are served in between."""
REPORT_MS: Final = 10_000
"""Missed occurrences are written to the log when the first of them is older than this."""


def _rule_of(row: ScheduleRow) -> Recurrence:
    """Return when the messages of a schedule are due; raises ConfigError."""
    from raybroker.engine.schedules.recurrence import recurrence  # Few hosts have schedules.

    return recurrence(row.expression, row.zone)


class Schedules:
    """``log``: what a checkpoint has to know."""

    def __init__(
        self,
        executor: Executor,
        registry: DestinationRegistry,
        cache: BlockCache,
        own: OwnSends,
        wakeups: Wakeups,
        time: MeasuredTime,
        report: Callable[[str], None],
        memory: MemoryProtection,
    ) -> None:
        self._executor = executor
        self._registry = registry
        self._cache = cache
        self._own = own
        self._wakeups = wakeups
        self._time = time
        self._report = report
        self._memory = memory
        self.log = ScheduleLog()
        self._when: dict[int, Recurrence] = {}
        self._due: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []
        """(when, number), also of rows whose time has changed since: ``_due`` is what counts."""
        self._waiting: dict[int, str] = {}
        """Why a message was not taken."""
        self._halted: dict[int, BrokerError] = {}
        """Why a schedule does not go on."""
        self._now_ms = 0

    # ---- made and ended --------------------------------------------------------------------------------------------

    def add(self, destination: Destination, row: ScheduleRow, block: Block, done: Done) -> None:
        """A new schedule; ``done`` when it is durable. One with that id is left as it is: somebody asks again.

        Raises ConfigError, MessageTooLargeError, ResourceAllocationError, or InvalidDestinationError for a temporary
        destination, which would not outlive the broker as its schedule does.
        """
        if self._by_id(row.id) is not None or row.id in self.log.ended:
            self._executor.append([], done)
            return
        if self._registry.definition(destination).owner is not None:
            raise InvalidDestinationError(f"{destination.name} is temporary: a schedule would outlive it")
        self._check(destination, row, block)
        rule = _rule_of(row)
        if rule.after(row.last_ms) is None:
            raise ConfigError(f"schedule {row.expression!r} never comes")
        most = destination.attributes.maxNumSchedules
        if 0 <= most <= self.count(destination):
            raise ResourceAllocationError(
                f"{destination.kind} {destination.name} has its maxNumSchedules={most} schedules;"
                " destroy some or raise the limit"
            )
        if not self._executor.has_room(block.nbytes):
            raise ResourceAllocationError("the store's disk is full; consume messages or free space")
        row.number, row.destination = self.log.next_number, destination.number
        self.log.next_number += 1
        self.log.rows[row.number] = row
        self._cache.put(0, row.number, block, stored=True)
        self._plan(row, rule)

        def durable() -> None:
            if row.number in self.log.rows:
                self._cache.demote(0, row.number)
            done()

        self._executor.append([schedule_log.made(row, block.view)], durable)

    def _check(self, destination: Destination, row: ScheduleRow, block: Block) -> None:
        """Whether the message could be sent; raises what is wrong with it."""
        if block.nbytes > SCHEDULED_BYTES_MAX:
            raise MessageTooLargeError(
                f"a message of {block.nbytes} bytes; that of a schedule has at most {SCHEDULED_BYTES_MAX}"
            )
        if too_large := destination.admission.too_large(block.lengths[0], block.header_lengths()[0]):
            raise MessageTooLargeError(too_large)
        self._message(row, block, 1, row.created_ms)

    def destroy(self, id_: str, done: Done) -> None:
        """End a schedule; what it has sent stays. Raises InvalidDestinationError when there is none of that id."""
        row = self._by_id(id_)
        if row is None:
            raise InvalidDestinationError(f"there is no schedule {id_!r}; list_schedules shows those there are")
        self._drop(row, done)
        destination = self._registry.by_number(row.destination)
        if destination is not None:
            self._executor.perform(destination, cmd.Tick())

    def _drop(self, row: ScheduleRow, done: Done) -> None:
        self._end_schedule(row)

        def durable() -> None:
            self.freed([row.number])
            done()

        self._executor.append([schedule_log.ended(row)], durable)

    def without(self, destination: Destination) -> tuple[list[LogEntry], list[int]]:
        """A destination is destroyed: its schedules are over. Returns what is to be written with its end, and what
        :meth:`freed` gets when that is durable."""
        rows = [row for row in self.log.rows.values() if row.destination == destination.number]
        for row in rows:
            self._end_schedule(row)
        return [schedule_log.ended(row) for row in rows], [row.number for row in rows]

    def freed(self, blocks: list[int]) -> None:
        """It is durable that these blocks are dead."""
        self._cache.retire(0, blocks, stored=True)

    def _end_schedule(self, row: ScheduleRow) -> None:
        number = row.number
        del self.log.rows[number]
        self.log.remember(row.id)
        for known in (self._when, self._due, self._waiting, self._halted):
            known.pop(number, None)
        self._keep(row)

    def _by_id(self, id_: str) -> ScheduleRow | None:
        return next((row for row in self.log.rows.values() if row.id == id_), None)

    # ---- firing ----------------------------------------------------------------------------------------------------

    def fire_due(self) -> None:
        """Fire what is due."""
        now_ms = self._time.wall_ms()
        if now_ms < self._now_ms:
            self._plan_anew()
        self._now_ms = now_ms
        due: list[int] = []
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, number = heappop(self._heap)
            if self._due.get(number) == at_ms:
                due.append(number)
        for number in due:
            if number in self.log.rows:
                self._fire_all(self.log.rows[number], now_ms)
        if self._heap:
            self._wakeups.wake(0, self._time.measured(self._heap[0][0]))

    def _plan(self, row: ScheduleRow, rule: Recurrence) -> None:
        self._when[row.number] = rule
        at_ms = rule.after(row.last_ms)
        if at_ms is not None:
            if rule.every_ms:  # The clock may have been put back.
                at_ms = min(at_ms, self._time.wall_ms() + rule.every_ms)
            self._wait_until(row, at_ms)
        self._keep(row)

    def _plan_anew(self) -> None:
        self._heap.clear()
        for row in self.log.rows.values():
            if row.number not in self._halted:
                self._plan(row, self._when[row.number])

    def _wait_until(self, row: ScheduleRow, at_ms: int) -> None:
        self._due[row.number] = at_ms
        heappush(self._heap, (at_ms, row.number))
        if len(self._heap) > 2 * len(self._due) + 16:
            self._heap = [(when, number) for number, when in self._due.items()]
            heapify(self._heap)
        self._wakeups.wake(0, self._time.measured(at_ms))

    def _fire_all(self, row: ScheduleRow, now_ms: int) -> None:
        """The occurrences of one schedule that have passed."""
        rule = self._when[row.number]
        for _ in range(CATCH_UP_MAX):
            first_ms = rule.after(row.last_ms)
            if first_ms is None or (first_ms > now_ms and not rule.every_ms):
                break
            first_ms = min(first_ms, now_ms)
            at_ms = first_ms if row.catch_up else rule.latest(row.last_ms, now_ms) or first_ms
            if at_ms > first_ms and now_ms - first_ms >= REPORT_MS:
                self._report(
                    f"schedule {row.id} ({row.expression}): occurrences since {first_ms} ms were missed;"
                    " one message stands for all of them, since it was made without catch_up"
                )
            if not self._fire(row, at_ms, now_ms, rule):
                return
            if row.number not in self.log.rows or (rule.after(row.last_ms) or now_ms + 1) > now_ms:
                break
        else:
            self._wait_until(row, now_ms)  # The rest after the others had their turn.
            return
        if row.number in self.log.rows:
            self._plan(row, rule)

    def _fire(self, row: ScheduleRow, at_ms: int, now_ms: int, rule: Recurrence) -> bool:
        """Send the message once; False when it was not taken, and waits, or cannot be read back."""
        destination = self._registry.by_number(row.destination)
        assert destination is not None, "a schedule goes with its destination"
        try:
            template = self._cache.get(0, row.number)
        except StoreDamagedError as error:
            self._halt(row, error)
            return False
        except StoreError as error:
            self._executor.fail(error)
            return False
        block = overridden(destination.attributes, self._message(row, template, at_ms, now_ms), now_ms)
        why = self._not_taken(destination, block)
        if why:
            if row.number not in self._waiting:
                self._report(f"schedule {row.id}: {destination.kind} {destination.name} {why}; it is tried again")
            self._waiting[row.number] = why
            self._wait_until(row, now_ms + AGAIN_MS)
            return False
        self._waiting.pop(row.number, None)
        row.fired, row.last_ms = row.fired + 1, at_ms
        over = row.fired == row.repeat or rule.after(at_ms) is None
        if over:  # Before anything is written: a checkpoint that follows at once has to know.
            self._end_schedule(row)
        note = schedule_log.ended(row) if over else schedule_log.fired(row)
        self._executor.perform_all(
            [self._own.step(destination, block, moved=False)],
            (note,),
            lambda: self.freed([row.number]) if over else None,
        )
        return True

    def _halt(self, row: ScheduleRow, error: BrokerError) -> None:
        self._halted[row.number] = error
        self._due.pop(row.number, None)
        self._keep(row)
        self._report(f"schedule {row.id} is halted: {error}")

    def _keep(self, row: ScheduleRow) -> None:
        """Its destination is not idle as long as it has schedules."""
        destination = self._registry.by_number(row.destination)
        if destination is not None:
            destination.kept = self.log.needs(row.destination)

    def _message(self, row: ScheduleRow, template: Block, at_ms: int, now_ms: int) -> Block:
        properties = {SCHEDULE_ID: row.id, SEQUENCE: row.fired + 1, OCCURRENCE: at_ms}
        return self._own.occurrence(template, properties, now_ms=now_ms, ttl_ms=row.ttl_ms, delay_ms=row.delay_ms)

    def _not_taken(self, destination: Destination, block: Block) -> str:
        if destination.number in self._registry.halted:
            return "is halted"
        if not self._executor.has_room(block.nbytes):
            return "has no room on the disk"
        if self._memory.barred:
            return "has no memory left"
        if destination.admission.slow or not destination.admission.would_take(block.lengths):
            return "does not take it now"
        return ""

    # ---- restart and administration --------------------------------------------------------------------------------

    def restore(self, log: ScheduleLog) -> None:
        """Take over the schedules of the log, after the destinations are restored. Raises StoreDamagedError."""
        log.check_complete()
        self.log = log
        self._cache.retire(0, log.dead, stored=True)
        log.dead.clear()
        for row in [r for r in log.rows.values() if self._registry.by_number(r.destination) is None]:
            self._report(f"schedule {row.id} ({row.expression}) is dropped: its destination is not there")
            self._drop(row, unawaited)
        for row in log.rows.values():
            try:
                self._plan(row, _rule_of(row))
            except ConfigError as error:  # The time zones of this machine are others.
                self._halt(row, error)

    def count(self, destination: Destination) -> int:
        """Schedules that send there."""
        return sum(row.destination == destination.number for row in self.log.rows.values())

    def schedule_rows(self, kind: str | None = None, name: str | None = None) -> list[dict[str, Any]]:
        """What administrators see, of one destination or of all."""
        found = []
        for row in self.log.rows.values():
            destination = self._registry.by_number(row.destination)
            if destination is not None and kind in (None, destination.kind) and name in (None, destination.name):
                found.append(self._row(row, destination))
        return found

    def _row(self, row: ScheduleRow, destination: Destination) -> dict[str, Any]:
        halted, waiting = self._halted.get(row.number), self._waiting.get(row.number)
        return {
            "id": row.id,
            "type": destination.kind,
            "destination": destination.name,
            "schedule": row.expression,
            "timezone": row.zone,
            "repeat": row.repeat or None,
            "catch_up": row.catch_up,
            "ttl_ms": row.ttl_ms,
            "delivery_delay_ms": row.delay_ms,
            "fired": row.fired,
            "last_ms": row.last_ms if row.fired else None,
            "next_ms": None if halted else self._when[row.number].after(row.last_ms),
            "created_ms": row.created_ms,
            "state": "HALTED" if halted else "WAITING" if waiting else "ACTIVE",
            "reason": str(halted or waiting or ""),
        }
