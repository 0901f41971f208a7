"""The state of a twin: one entry per message and delivery queue, no runs, no masks, nothing incremental that could be
wrong."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Any, Protocol

from raybroker.core import command as cmd
from raybroker.core.subscription import Subscription
from raybroker.model.settings.settings import DestinationAttributes
from tests.simulation.messages import matches
from tests.simulation.ondisk import Message
from tests.simulation.windows import TwinDrain, TwinPrefetch, make_twin_window

__all__ = ["Gates", "Holder", "Item", "Staged", "TwinDrain", "TwinDeliveryQueue", "TwinView", "owed"]


class Item:
    """A message of a delivery queue. ``attempts``: how often it was handed out; ``place``: order of arrival."""

    __slots__ = ("attempts", "behind", "failures", "message", "place", "since_ms", "state")

    def __init__(self, message: Message, place: int, attempts: int = 0, failures: int = 0) -> None:
        self.message = message
        self.place = place
        self.attempts = attempts
        self.failures = failures
        self.since_ms = 0
        """When it came, as far as consumers of batches want to know."""
        self.state: bytes | None = None
        """What its last checkpoint says."""
        self.behind = False
        """It is stale, and goes behind all others."""


class Holder:
    """A consumer: tag → key of what it has not settled."""

    def __init__(self, command: cmd.AttachConsumer) -> None:
        self.rule = command.flow, command.limit
        self.window: Any = TwinDrain(0) if command.drain else make_twin_window(*self.rule)
        self.batch = command.batch
        self.labels = set(command.labels)
        self.ended: list[Any] = []
        """What it is to be told of batches of which everything has left in this step."""
        self.armed = command.drain
        self.owner: str | int = command.owner or command.attachment
        self.remote = command.remote
        self.outranked = False
        """Another consumer is preferred to it (D-19), or too few have come yet (B20)."""
        self.no_ack = command.no_ack
        self.held = command.held
        self.selector = command.selector
        self.lease_ms = command.lease_ms
        self.active = False
        self.stalled = self.leaving = False
        self.begun = 0
        self.next_tag = 1
        self.unsettled: dict[int, int] = {}
        self.until: dict[int, int] = {}
        self.recalls = command.recalls and not command.no_ack and command.batch is None
        self.shares = command.shares and self.recalls
        self.asked: set[int] | None = None
        """Tags of what it was asked to give back, as long as it has not answered; and how many may come from it."""
        self.going = self.going_next = 0
        self.to_make_room = False
        self.kept = 0
        self.most = -1
        """So many messages it may hold, since it cannot give any back."""

    def room(self) -> int:
        if not self.listening():
            return 0
        room = self.window.room()
        return room if self.most < 0 else min(room, self.most - len(self.unsettled))

    def listening(self) -> bool:
        able = self.asked is None and (self.most < 0 or len(self.unsettled) < self.most)
        return able and self.active and not (self.held or self.stalled or self.leaving or self.outranked)

    def recallable(self) -> dict[int, int]:
        """Tag → key of what its application may not have begun."""
        known = max(self.kept, self.begun)
        return {tag: key for tag, key in self.unsettled.items() if tag > known} if self.recalls else {}

    def stand(self) -> None:
        """Leave drain mode."""
        if isinstance(self.window, TwinDrain):
            flow, limit = self.rule
            self.armed = False
            self.window = make_twin_window(flow, 0 if flow == "credit" else limit)
            if isinstance(self.window, TwinPrefetch):
                self.window.take_over(len(self.unsettled))

    def wants(self, item: Item) -> bool:
        message = item.message
        return self.selector is None or matches(self.selector, message.made, message.priority, item.attempts)


CAUSES = ("oom", "lost", "preempted", "timeout", "poison")
"""Counted apart from failures of the application, each in 8 bits above the 32 of those."""


def cause_unit(cause: str) -> int:
    """What one failure adds to the count."""
    return 1 if cause == "error" else 1 << 32 + 8 * CAUSES.index(cause)


def _counts(failures: int) -> dict[str, int]:
    own = failures & 0xFFFF_FFFF
    return {"error": own, **{c: failures >> 32 + 8 * i & 0xFF for i, c in enumerate(CAUSES)}}


def all_failures(failures: int) -> int:
    return sum(_counts(failures).values())


def too_often(attributes: DestinationAttributes, failures: int) -> bool:
    """Whether it has failed by one cause more often than that may be."""
    own = attributes.redeliveryLimit
    limits = {"error": own, "oom": 3, "lost": own, "preempted": -1, "timeout": own, "poison": 0}
    for part in filter(None, attributes.redeliveryLimitByCause.split(", ")):
        cause, _, number = part.partition("=")
        limits[cause] = int(number)
    return any(0 <= limits[cause] < count for cause, count in _counts(failures).items())


Waiting = tuple[int, int, int]
"""(9 - priority, place, key): in the order of handing out."""


class TwinDeliveryQueue:
    """Where each of ``items`` is: waiting, resting (key → due, number), hidden, with a holder, staged or dying."""

    def __init__(self, number: int, subscription: Subscription | None) -> None:
        self.number = number
        self.subscription = subscription
        self.durable = subscription is None or subscription.durable
        self.items: dict[int, Item] = {}
        self.units: dict[str, list[int]] = {}
        """Unit of order → its keys, ascending."""
        self.waiting: list[Waiting] = []
        self.delayed: dict[int, tuple[int, int]] = {}
        self.hidden: set[int] = set()
        self.dying: dict[int, str] = {}
        self.holders: dict[int, Holder] = {}
        self.gathered = False
        self.gathers_since = 0
        """Enough consumers have come, or it took too long (B20); and when the first one came."""
        self.next_place = 1
        self.next_delay = 1

    def gather(self, wanted: int, delay_ms: int, now: int) -> None:
        if not self.holders:
            self.gathered, self.gathers_since = False, 0
            return
        self.gathers_since = self.gathers_since or now
        enough = len(self.holders) >= wanted or 0 <= delay_ms <= now - self.gathers_since
        self.gathered = self.gathered or enough

    def row(self, key: int) -> Waiting:
        item = self.items[key]
        return 9 - item.message.priority + 10 * item.behind, item.place, key

    def put(self, key: int, *, hidden: bool) -> None:
        """It becomes available at its place."""
        if hidden:
            self.hidden.add(key)
        else:
            insort(self.waiting, self.row(key))

    def rest(self, key: int, due: int) -> None:
        self.delayed[key] = due, self.next_delay
        self.next_delay += 1

    def is_waiting(self, key: int) -> bool:
        row = self.row(key)
        at = bisect_left(self.waiting, row)
        return at < len(self.waiting) and self.waiting[at] == row

    def take_out(self, key: int) -> bool:
        """It waits, rests or is hidden no longer; False when it was not."""
        if self.delayed.pop(key, None) is not None:
            return True
        if key in self.hidden:
            self.hidden.discard(key)
            return True
        row = self.row(key)
        at = bisect_left(self.waiting, row)
        if at < len(self.waiting) and self.waiting[at] == row:
            del self.waiting[at]
            return True
        return False

    def wants(self, message: Message, origin: tuple[str, str]) -> bool:
        own = self.subscription
        if own is None:
            return True
        if own.no_local and own.origin and own.origin in origin:
            return False
        return matches(own.selector, message.made, message.priority, 0)


class Staged:
    """What a transaction does here. ``blocks``: key → message; ``acks``: (delivery queue, key) in order; ``states``:
    (delivery queue, key) → checkpoint."""

    def __init__(self) -> None:
        self.blocks: dict[int, Message] = {}
        self.origins: dict[int, tuple[str, str]] = {}
        self.acks: list[tuple[int, int]] = []
        self.states: dict[tuple[int, int], bytes] = {}
        self.claims: dict[int, tuple[int, ...]] = {}
        self.prepared = False


class Gates:
    """What producers were told (D-10)."""

    def __init__(self) -> None:
        self.slow = False
        self.told: dict[int, str] = {}


class TwinView(Protocol):
    """The parts of a twin that rules of units and of credit look at; see :class:`tests.simulation.twin.Twin`."""

    queues: dict[int, TwinDeliveryQueue]
    queue_of: dict[int, TwinDeliveryQueue]
    staged: dict[int, Staged]
    paused: bool
    overdue: Any
    returned: Any
    unsorted: Any
    passed_over: dict[int, tuple[int, int]]
    now: int
    destination: Any
    stored: Any
    told: Any
    unseen: Any
    delta: Any

    def give_back(self, *args: Any) -> Any: ...


def owed(twin: TwinView, message: Message, origin: tuple[str, str]) -> tuple[int, ...]:
    """Which delivery queues get it."""
    return tuple(number for number, queue in twin.queues.items() if queue.wants(message, origin))
