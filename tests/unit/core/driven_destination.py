"""A destination with a clock, names for what it is asked, and everything that it has recorded."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from raybroker.core import command as cmd
from raybroker.core.blocks import message_mask as pk
from raybroker.core.blocks.block_entry import Columns
from raybroker.core.delivery.delivery_queue import DeliveryQueue
from raybroker.core.destination import Destination
from raybroker.core.durable.recovery import KINDS, DestinationRecovery
from raybroker.core.durable.snapshot import snapshot
from raybroker.core.invariants import check
from raybroker.core.outcome import Acked, DeadLetter, Deliver, Gate, Outcome, Refused, SendAnswered
from raybroker.core.subscription import Subscription
from raybroker.model.blocks.record import BLOCK, LogEntry
from raybroker.model.settings.settings import DestinationAttributes

NOW = 1_000_000
"""When the clock of a destination begins, milliseconds."""


class Rows:
    """The content of a block: properties of each message, its headers, and its deduplication ids."""

    def __init__(
        self,
        rows: Sequence[Mapping[str, Any]],
        headers: Mapping[str, Any] | None = None,
        ids: Sequence[str | None] | None = None,
    ) -> None:
        self.ids = ids
        self.rows = rows
        self.headers = headers or {}

    def properties(self, index: int) -> Mapping[str, Any]:
        return self.rows[index]

    def column(self, name: str, rows: Sequence[int]) -> list[Any]:
        return [self.rows[row].get(name) for row in rows]

    def header(self, index: int, name: str) -> Any:
        return self.headers.get(name)

    def may_have(self, trace: bytes) -> bool:
        return True

    def dedup_ids(self) -> Sequence[str | None] | None:
        return self.ids


def columns(
    count: int,
    *,
    priority: int = 4,
    priorities: Sequence[int] | None = None,
    ttl: Any = 0,
    delay: Any = 0,
    now_ms: int = NOW,
    units: Sequence[str | None] | None = None,
) -> Columns:
    """``ttl`` and ``delay`` are milliseconds, one number or one for each message; 0 is none."""

    def times(value: Any) -> array[int] | None:
        rows = [value] * count if isinstance(value, int) else list(value)
        return array("Q", [now_ms + row if row else 0 for row in rows]) if any(rows) else None

    named = tuple(units) if units is not None and any(units) else None
    return Columns(priority, bytes(priorities) if priorities is not None else None, times(ttl), times(delay), named)


def of(out: Outcome, kind: type) -> list[Any]:
    """The effects of one kind, those that go at once first."""
    return [effect for effect in (*out.immediate, *out.after_durable) if isinstance(effect, kind)]


def handed(out: Outcome, attachment: int | None = None) -> list[tuple[int, int, int]]:
    """(block, index, attempt) of what was handed out, in order."""
    return [
        (item.ordinal, index, item.attempt)
        for item in of(out, Deliver)
        if attachment in (None, item.attachment)
        for index in pk.indexes(item.mask)
    ]


def first_indexes(out: Outcome, attachment: int | None = None) -> list[tuple[int, int]]:
    return [row[:2] for row in handed(out, attachment)]


def refusals(out: Outcome) -> list[Refused]:
    (sent,) = of(out, SendAnswered)
    found: tuple[Refused, ...] = sent.refused
    return list(found)


class DrivenDestination:
    """``log`` is every record; ``decided`` how transactions ended since the last snapshot."""

    def __init__(self, kind: str = "queue", *, reap_ms: int | None = None, **attributes: Any) -> None:
        self.now_ms = NOW
        self.log: list[LogEntry] = []
        self.contents: dict[int, Any] = {}
        self.seqs: dict[int, int] = {}
        self.decided: dict[int, bool] = {}
        self._next = 100
        self.use(KINDS[kind](1, "d", DestinationAttributes(**attributes), reap_ms=reap_ms))
        self.core.current.now_ms = self.now_ms

    def use(self, core: Destination) -> None:
        self.core = core
        core.current.read_headers = self.contents.get

    @property
    def queue(self) -> DeliveryQueue:
        (queue,) = self.core.queues.values()
        return queue

    def do(self, command: cmd.Command) -> Outcome:
        out = self.core.step(command, now_ms=self.now_ms)
        check(self.core)
        self.log += out.records
        if isinstance(command, cmd.Decide):
            self.decided[command.txn] = command.commit
        return out

    def tick(self, ms: int = 0) -> Outcome:
        self.now_ms += ms
        return self.do(cmd.Tick())

    def number(self) -> int:
        self._next += 1
        return self._next

    def producer(self, producer: int = 7) -> int:
        number = self.number()
        self.do(cmd.AttachProducer(number, producer))
        return number

    def send(
        self,
        attachment: int,
        sizes: Sequence[int] = (4,),
        *,
        producer: int = 7,
        first: int | None = None,
        persistent: bool = True,
        properties: Sequence[Mapping[str, Any]] | None = None,
        **more: Any,
    ) -> Outcome:
        """A block; ``properties`` makes its content, ``more`` goes into the command."""
        if first is None:
            first = self.seqs.get(producer, 1)
            self.seqs[producer] = first + len(sizes)
        content = Rows(properties) if properties is not None else None
        command = cmd.Send(attachment, producer, first, list(sizes), persistent, 1, content=content, **more)
        out = self.do(command)
        if out.accepted is not None:
            self.contents[out.accepted] = content or Rows([{}] * len(sizes))
            self.contents[out.accepted].ids = more.get("dedup_ids")
        return out

    def consumer(self, limit: int = -1, flow: str = "credit", *, no_ack: bool = False, **more: Any) -> int:
        return self.open(limit, flow, no_ack=no_ack, **more)[0]

    def open(
        self, limit: int = -1, flow: str = "credit", *, no_ack: bool = False, held: bool = False, **more: Any
    ) -> tuple[int, Outcome]:
        number = self.number()
        more.setdefault("recalls", True)
        return number, self.do(cmd.AttachConsumer(number, flow, limit, no_ack, held, **more))

    def subscriber(self, limit: int = -1, flow: str = "credit", **subscription: Any) -> int:
        return self.consumer(limit, flow, subscription=Subscription(**subscription))

    def ack(self, attachment: int, first: int, last: int | None = None) -> Outcome:
        return self.do(cmd.Acknowledge(attachment, [(first, first if last is None else last)], 1))

    def settle(self, attachment: int, outcome: str, tag: int = 1, **more: Any) -> Outcome:
        return self.do(cmd.Settle(attachment, [(tag, tag)], 1, outcome, **more))

    def crash(self, *, checkpoint: bool = False) -> DrivenDestination:
        """What is left of it after a restart, from the log or from a snapshot and the blocks it needs."""
        state = snapshot(self.core) if checkpoint else None
        held = self.core.block_index.held
        log = [e for e in self.log if e.kind == BLOCK and e.ordinal in held] if checkpoint else self.log
        again = DrivenDestination(self.core.kind)
        again.__dict__ |= {k: v for k, v in self.__dict__.items() if k != "core"}
        again.log = list(log)
        decided = {} if checkpoint else self.decided
        again.use(rebuilt(self.core, state, log, decided, self.now_ms))
        check(again.core)
        return again


def rebuilt(
    old: Destination, state: bytes | None, entries: Sequence[LogEntry], decided: dict[int, bool], now_ms: int
) -> Destination:
    """A destination from a snapshot and entries."""
    recovery = DestinationRecovery(old.number)
    if state is not None:
        recovery.load(state)
    for entry in entries:
        recovery.apply(entry)
    return recovery.finish(old.name, old.attributes, kind=old.kind, reap_ms=old.reap_ms, now_ms=now_ms, decided=decided)


def acked(out: Outcome) -> list[int]:
    """Unknown messages of each acknowledgement that was confirmed."""
    return [effect.unknown for effect in of(out, Acked)]


def burials(out: Outcome) -> list[tuple[str, int, int]]:
    """(reason, block, messages) of what has died."""
    return [(effect.reason, effect.ordinal, effect.mask) for effect in of(out, DeadLetter)]


def gates(out: Outcome) -> list[tuple[int, str]]:
    return [(effect.attachment, effect.state) for effect in of(out, Gate)]


def delivered(count: int = 1, **attributes: object) -> tuple[DrivenDestination, int]:
    """A queue whose one consumer has that many messages."""
    destination = DrivenDestination(**attributes)
    consumer = destination.consumer(100, "prefetch")
    destination.send(destination.producer(), [1] * count)
    return destination, consumer
