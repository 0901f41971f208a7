"""The consumers of a queue: who is active, who waits as a backup, who is next, and what each one holds.

Active consumers are served in turn, each as far as its window has room: against a backlog the first
takes a full batch before the next gets any; without one, arrivals go round.  Backups get nothing until an active
consumer leaves, then the first registered is promoted.

Besides, it is known which consumers are idle and which hold many messages; what comes of that is in ``sharing``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from raybroker.core.blocks import message_mask as pk
from raybroker.core.blocks.block_entry import BlockEntry
from raybroker.core.command import AttachConsumer
from raybroker.core.delivery.backlog import ANY
from raybroker.core.delivery.byte_window import ByteWindow
from raybroker.core.delivery.checkpoints import Checkpoints
from raybroker.core.delivery.run import Run
from raybroker.core.delivery.window import BatchWindow, DrainWindow, PrefetchWindow, Window, make_window
from raybroker.core.outcome import Deliver, Drained
from raybroker.model.batch import Batch
from raybroker.model.errors import ResourceAllocationError

SHARED_MIN: Final = 4
"""Messages that a consumer holds at least before some of them are taken back for another one."""
SHARED_ALWAYS_MIN: Final = 2
"""The same where ``prefetchRecall`` is Always: one message is in work, and another one waits behind it."""
PASSED_OVER_MS: Final = 10
"""So long one in drain mode that is to have something may take to ask for it before whoever gave it is told."""


class Delivery(NamedTuple):
    """The messages of a run as they were handed out, tagged tag, tag + 1, …; the run's ``attempts`` count this too.

    until_ms  when its acknowledgement is due; 0: it is not
    """

    tag: int
    count: int  # type: ignore[assignment]  # a tuple has a method of this name
    run: Run
    until_ms: int

    def not_seen(self) -> Delivery:
        """Return it as it was before it was handed out: it never reached the application."""
        return self._replace(run=self.run._replace(attempts=self.run.attempts - 1))


def _cut(delivery: Delivery, count: int) -> tuple[Delivery, Delivery]:
    """The first ``count`` messages of a delivery, and the others."""
    tag, messages, (arrival, ordinal, mask, attempts, failures, priority), until_ms = delivery
    first = pk.lowest(mask, count)
    # Whoever acknowledges message by message comes here for each: copying with ``_replace`` takes twice as long.
    head = Run(arrival, ordinal, first, attempts, failures, priority)
    rest = Run(arrival, ordinal, mask & ~first, attempts, failures, priority)
    return Delivery(tag, count, head, until_ms), Delivery(tag + count, messages - count, rest, until_ms)


class Consumer:
    """One attachment. ``unsettled`` is in order of tags.

    asked     the command that it came with; ``limit`` and ``flow`` of it are the rule of its window when it is not in
              drain mode, see make_window
    selector  number of its selector in the delivery queue, or ANY
    owner     its session: the messages of a unit of order are with one session at a time
    serving   it is active, and no consumer is preferred to it; :meth:`Consumers.rank` says so
    armed     in drain mode: it is to be told when there is something for it
    begun     deliveries up to this tag are known to have reached the application
    stalled   it has let a deadline pass, and gets nothing before it is heard of again
    leaving   its node is drained: it gets nothing, and settles what its application has begun
    lends     from so many messages on what it holds and has not begun is for idle consumers as well; 0: it never is
    have      messages that it holds: those of ``unsettled``
    bytes     how many bytes, or how much work, may lie in its buffer; None: any number
    in_order  it got what it holds in the order in which its blocks came
    most      so many it may hold; -1: that is for its window to say
    recall    what it was asked to give back; None: nothing. Until it has answered it gets nothing
    kept      deliveries up to this tag were asked for and not given back: its application has begun them
    """

    __slots__ = (
        "active",
        "armed",
        "asked",
        "attachment",
        "begun",
        "bytes",
        "have",
        "held",
        "in_order",
        "kept",
        "lease_ms",
        "leaving",
        "lends",
        "limit",
        "most",
        "next_tag",
        "no_ack",
        "owner",
        "queued",
        "recall",
        "recalls",
        "selector",
        "sent",
        "serving",
        "stalled",
        "unsettled",
        "window",
    )

    def __init__(self, command: AttachConsumer) -> None:
        self.attachment = command.attachment
        self.asked = command
        self.limit = command.limit
        self.window: Window = _window(command)
        self.owner = command.owner
        self.no_ack = command.no_ack
        self.held = command.held
        self.selector = ANY
        self.lease_ms = command.lease_ms
        self.active = False
        self.serving = False
        self.armed = command.drain and command.batch is None
        self.queued = False
        self.next_tag = 1
        self.begun = 0
        self.stalled = self.leaving = False
        self.sent = 0
        self.unsettled: deque[Delivery] = deque()
        self.recalls = command.recalls and not command.no_ack and command.batch is None
        self.lends = 0
        self.have = 0
        self.bytes = ByteWindow(command.buffer_bytes) if command.buffer_bytes > 0 and command.batch is None else None
        self.in_order = True
        self.most = -1
        self.recall: Recalling | None = None
        self.kept = 0

    def room(self) -> int:
        if not self.serving or self.held or self.stalled or self.leaving or self.recall is not None:
            return 0
        if self.bytes is not None and self.bytes.full:
            return 0
        room = self.window.room()
        return room if self.most < 0 else min(room, max(self.most - self.have, 0))

    def listening(self) -> bool:
        """Whether it would get messages if its window had room."""
        if not self.serving or self.held or self.stalled or self.leaving or self.recall is not None:
            return False
        if self.bytes is not None and self.bytes.full:
            return False
        return self.most < 0 or self.have < self.most

    def handed(self, run: Run, now_ms: int, block: BlockEntry) -> Delivery | None:
        """Count a run as sent to this consumer, or the first of its messages that it has room for in bytes, if any."""
        arrival, ordinal, mask, attempts, failures, priority = run
        if self.bytes is not None:
            mask = self.bytes.fitting(block, mask, ordinal)
            if not mask:
                return None
            self.bytes.sent(self.next_tag, block, mask, ordinal)
        size = mask.bit_count()
        counted = Run(arrival, ordinal, mask, attempts + 1, failures, priority)
        until_ms = now_ms + self.lease_ms if self.lease_ms else 0
        delivery = Delivery(self.next_tag, size, counted, until_ms)
        self.next_tag += size
        self.sent += size
        self.window.sent(size)
        if self.no_ack:
            self.window.settled(size)
        else:
            if not self.unsettled:
                self.in_order = True
            elif self.in_order:
                before = self.unsettled[-1].run
                self.in_order = before.ordinal < ordinal or (before.ordinal == ordinal and before.mask < mask)
            self.unsettled.append(delivery)
            self.have += size
        return delivery

    def count_of(self, ranges: Iterable[tuple[int, int]]) -> int:
        """How many of these tags are unsettled; the ranges do not overlap."""
        total = 0
        for first, last in ranges:
            for item in self.unsettled:
                if item.tag > last:
                    break
                total += max(0, min(item.tag + item.count - 1, last) - max(item.tag, first) + 1)
        return total

    def tagged(self, ranges: Iterable[tuple[int, int]]) -> Iterator[Delivery]:
        """The unsettled deliveries with these tags, which stay."""
        for first, last in ranges:
            for item in self.unsettled:
                if item.tag > last:
                    break
                if item.tag + item.count > first:
                    part = _cut(item, first - item.tag)[1] if item.tag < first else item
                    yield _cut(part, last + 1 - part.tag)[0] if part.tag + part.count - 1 > last else part

    def settle_tags(self, first: int, last: int) -> Iterator[Delivery]:
        """Take the deliveries tagged first … last out of what is unsettled; yields what was found."""
        unsettled = self.unsettled
        kept: list[Delivery] = []
        while unsettled and first <= last:
            item = unsettled[0]
            if item.tag > last:
                break
            unsettled.popleft()
            if item.tag + item.count <= first:
                kept.append(item)
                continue
            if item.tag < first:
                before, item = _cut(item, first - item.tag)
                kept.append(before)
            if item.tag + item.count - 1 > last:
                item, after = _cut(item, last + 1 - item.tag)
                unsettled.appendleft(after)
            self.have -= item.count
            yield item
        unsettled.extendleft(reversed(kept))

    def let_go(self) -> list[Delivery]:
        """Take out all that is unsettled."""
        found = list(self.unsettled)
        self.unsettled.clear()
        self.have = 0
        return found

    def extend(self, ranges: Iterable[tuple[int, int]], now_ms: int) -> None:
        """The time for acknowledging these starts again."""
        for first, last in ranges:
            renewed = [item._replace(until_ms=now_ms + self.lease_ms) for item in self.settle_tags(first, last)]
            at = next((i for i, item in enumerate(self.unsettled) if item.tag > last), len(self.unsettled))
            for offset, item in enumerate(renewed):
                self.unsettled.insert(at + offset, item)
                self.have += item.count

    def overdue(self, now_ms: int) -> list[Delivery]:
        """Take out what should have been acknowledged by now."""
        found = [item for item in self.unsettled if 0 < item.until_ms <= now_ms]
        if found:
            self.unsettled = deque(item for item in self.unsettled if not 0 < item.until_ms <= now_ms)
            self.have -= sum(item.count for item in found)
        return found

    def next_due_ms(self) -> int | None:
        """Return when the first acknowledgement is overdue."""
        return min((item.until_ms for item in self.unsettled if item.until_ms), default=None)


def _window(command: AttachConsumer) -> Window:
    if command.batch is not None:
        return BatchWindow(command.batch)
    return DrainWindow() if command.drain else make_window(command.flow, command.limit)


class Recalling:
    """What a consumer was asked to give back, as tags. ``asker``: the idle consumer that is to have it; None: it is to
    make room, or the consumer's node is drained. ``messages`` of ``nbytes`` in all may come back from
    the consumer, now or when it is asked again."""

    __slots__ = ("asker", "messages", "nbytes", "ranges")

    def __init__(self, ranges: tuple[tuple[int, int], ...], asker: Consumer | None = None) -> None:
        self.ranges = ranges
        self.asker = asker
        self.messages = 0
        self.nbytes = 0


def in_line(consumer: Consumer) -> tuple[int, int]:
    """Who it is, and what it selects: its attachment and the number of its selector."""
    return consumer.attachment, consumer.selector


class Asks(NamedTuple):
    """What a consumer asks for: a batch by ``rule``, of at most that many messages, of those for its selector."""

    rule: Batch
    most: int
    selector: int


class BatchConsumers:
    """Consumers of batches by attachment; whoever had a batch last is the last. ``one_by_one``: batches are of one
    message for now, which goes as to any consumer."""

    __slots__ = ("by_attachment", "one_by_one")

    def __init__(self) -> None:
        self.by_attachment: dict[int, Consumer] = {}
        self.one_by_one = False

    def asking(self) -> Iterator[tuple[Consumer, Asks]]:
        """Those that want a batch and could take one now, in turn."""
        for consumer in list(self.by_attachment.values()):
            window, rule = consumer.window, consumer.asked.batch
            if isinstance(window, BatchWindow) and window.asked and rule is not None and consumer.listening():
                most = rule.max_messages
                if consumer.most >= 0:
                    most = min(most, consumer.most - consumer.have)
                yield consumer, Asks(rule, most, consumer.selector)

    def served(self, consumer: Consumer) -> Drained:
        """It has got its batch: the others come first, and it is told that this was all; void with the last message, if
        it begins anew before that has left."""
        assert isinstance(consumer.window, BatchWindow)
        consumer.window.asked = False
        self.by_attachment[consumer.attachment] = self.by_attachment.pop(consumer.attachment)
        return Drained(consumer.attachment, 0, consumer.next_tag - 1)

    def go_one_by_one(self, one_by_one: bool) -> Iterable[Consumer]:
        """Batches are of one message from now on, or not any more; returns the consumers, if that is new."""
        if self.one_by_one == one_by_one:
            return ()
        self.one_by_one = one_by_one
        for consumer in self.by_attachment.values():
            assert isinstance(consumer.window, BatchWindow)
            consumer.window.one_by_one = one_by_one
        return list(self.by_attachment.values())


class Consumers:
    """All consumers in order of registration, and the active ones with room in order of service."""

    __slots__ = (
        "batches",
        "by_attachment",
        "checkpoints",
        "draining",
        "fence",
        "idle",
        "look_ms",
        "passed_over",
        "passed_until_ms",
        "recalling",
        "rich",
        "turn",
    )

    def __init__(self) -> None:
        self.by_attachment: dict[int, Consumer] = {}
        self.draining: dict[int, Consumer] = {}
        """Those in drain mode."""
        self.batches: BatchConsumers | None = None
        """Those of batches; None: there are none."""
        self.checkpoints = Checkpoints()
        self.fence = 0
        """The last fencing number; 0: none was asked for since the restart."""
        self.turn: deque[Consumer] = deque()
        self.idle: dict[Consumer, int] = {}
        """Those among several that hold nothing and could have more, and maybe some others, since when, milliseconds;
        -1 until it is looked at. Whoever is longest idle is first."""
        self.rich: dict[Consumer, int] = {}
        """Those that hold enough to be shared, and maybe some others, and from when on they may be asked for it; -1 as
        above."""
        self.look_ms = 0
        """Not before this it is looked again who is idle while others hold many messages."""
        self.recalling: dict[Consumer, Recalling] = {}
        """Those that were asked to give messages back, and have not answered."""
        self.passed_over: Consumer | None = None
        """It has given something back for others: in drain mode it is not told before they have had a chance."""
        self.passed_until_ms = 0

    @property
    def active_count(self) -> int:
        return sum(c.active for c in self.by_attachment.values())

    def attach(self, consumer: Consumer, *, active_max: int, backup_max: int, name: str) -> None:
        """Raises ResourceAllocationError when both active and backup places are taken."""
        active = self.active_count
        consumer.active = active_max < 0 or active < active_max
        if not consumer.active and 0 <= backup_max <= len(self.by_attachment) - active:
            raise ResourceAllocationError(
                f"{name} has its {active_max} active and {backup_max} backup consumers; close one, or raise"
                f" maxNumActiveConsumers or maxNumBackupConsumers"
            )
        self.by_attachment[consumer.attachment] = consumer
        if isinstance(consumer.window, DrainWindow):
            self.draining[consumer.attachment] = consumer
        elif isinstance(consumer.window, BatchWindow):
            self.batches = self.batches or BatchConsumers()
            self.batches.by_attachment[consumer.attachment] = consumer
            consumer.window.one_by_one = self.batches.one_by_one

    def detach(self, attachment: int) -> Consumer | None:
        consumer = self.by_attachment.pop(attachment, None)
        self.draining.pop(attachment, None)
        if consumer is not None:
            self.passed_over = None if self.passed_over is consumer else self.passed_over
            for known in (self.idle, self.rich, self.recalling):
                known.pop(consumer, None)
            consumer.active = consumer.serving = False
        if self.batches is not None and self.batches.by_attachment.pop(attachment, None) is not None:
            self.batches = self.batches if self.batches.by_attachment else None
        return consumer

    def begin_fences(self, attachment: int) -> None:
        """A consumer wants fencing numbers. They begin with the number of its attachment, in whose upper bits the life
        of the host is, and so go on to grow after a restart, of which nothing need be written down."""
        self.fence = max(self.fence, attachment)

    def fenced(self, consumer: Consumer, effect: Deliver) -> Deliver:
        """The delivery with the next fencing number, if its consumer wants them."""
        if not consumer.asked.fenced:
            return effect
        self.fence += 1
        return effect._replace(fence=self.fence)

    def rank(self, *, local_first: bool, dispatching: bool = True) -> None:
        """Say who is served: the active ones, without the remote ones while there are others."""
        staying = (c for c in self.by_attachment.values() if c.active and not c.leaving)
        local = local_first and any(not c.asked.remote for c in staying)
        for consumer in self.by_attachment.values():
            consumer.serving = dispatching and consumer.active and not (local and consumer.asked.remote)
            self.offer(consumer)
            if 0 < consumer.lends <= consumer.have:
                self.rich.setdefault(consumer, -1)

    def lend(self, recall: str) -> None:
        """Say whose messages are for idle consumers: the attribute ``prefetchRecall``."""
        for consumer in self.by_attachment.values():
            if recall == "Never" or not consumer.recalls:
                consumer.lends = 0
            elif recall == "Always":
                consumer.lends = SHARED_ALWAYS_MIN
            else:
                consumer.lends = SHARED_MIN if consumer.asked.shares else 0

    def bound(self, most: int) -> None:
        """Say how many messages there are, -1 for any number, of which the older half may be with those who cannot give
        them back."""
        unable = [c for c in self.by_attachment.values() if not c.recalls and not c.no_ack]
        for consumer in unable:
            consumer.most = max(most // 2 // len(unable), 1) if most >= 0 else -1
            self.offer(consumer)

    def drain(self, consumer: Consumer, credit: int) -> None:
        """It goes over to drain mode, or stays in it, and gets that much for this step."""
        if not isinstance(consumer.window, DrainWindow):
            consumer.window = DrainWindow(consumer.window.left())
            self.draining[consumer.attachment] = consumer
        consumer.window.granted(credit)
        consumer.armed = True

    def stand(self, consumer: Consumer) -> None:
        """It leaves drain mode, if it is in it: from now on its own rule holds, with nothing granted."""
        if self.draining.pop(consumer.attachment, None) is None:
            return
        consumer.armed = False
        consumer.window = make_window(consumer.asked.flow, 0 if consumer.asked.flow == "credit" else consumer.limit)
        if isinstance(consumer.window, PrefetchWindow):
            consumer.window.take_over(sum(item.count for item in consumer.unsettled))

    def restart(self, consumer: Consumer, credit: int) -> None:
        """It holds nothing any more and begins anew; in drain mode without credit, in that mode."""
        if credit:
            self.stand(consumer)
        elif consumer.attachment in self.draining:
            consumer.armed = True
            consumer.next_tag += 1  # What it was told before has a smaller tag than what it is told from now on.
        consumer.window.restart(credit)
        if consumer.bytes is not None:
            consumer.bytes.restart()

    def promote(self, active_max: int) -> list[Consumer]:
        """Make backups active while there is a place, first registered first."""
        promoted = []
        vacant = len(self.by_attachment) if active_max < 0 else active_max - self.active_count
        for consumer in self.by_attachment.values():
            if vacant <= 0:
                break
            if not consumer.active:
                consumer.active = True
                promoted.append(consumer)
                vacant -= 1
        return promoted

    def offer(self, consumer: Consumer) -> None:
        """Give a consumer a turn if it has room and waits for none."""
        if not consumer.queued and consumer.room() > 0:
            consumer.queued = True
            self.turn.append(consumer)
        if not consumer.have and len(self.by_attachment) > 1 and not consumer.no_ack:
            self.idle.setdefault(consumer, -1)

    def handed(self, consumer: Consumer) -> None:
        """One of several has got something."""
        self.idle.pop(consumer, None)
        if 0 < consumer.lends <= consumer.have:
            self.rich.setdefault(consumer, -1)

    def put_last(self, consumer: Consumer, first: Consumer, since_ms: int) -> None:
        """``consumer`` comes after all others, and ``first`` before them; in drain mode for ``PASSED_OVER_MS``."""
        for one in (consumer, first):
            if one.queued:
                self.turn.remove(one)
                one.queued = False
        if first.attachment in self.by_attachment and first.room() > 0:
            first.queued = True
            self.turn.appendleft(first)
        self.offer(consumer)
        self.passed_over, self.passed_until_ms = consumer, since_ms + PASSED_OVER_MS

    def is_passed_over(self, consumer: Consumer, now_ms: int) -> bool:
        """Whether it is not told yet what waits."""
        return consumer is self.passed_over and now_ms < self.passed_until_ms

    def hungry(self) -> bool:
        """Whether there is one that has nothing, of what it acknowledges, and would take something."""
        return any(
            consumer.armed
            or consumer.window.room() > 0
            or (isinstance(consumer.window, BatchWindow) and consumer.window.asked)
            for consumer in self.by_attachment.values()
            if not consumer.have and not consumer.no_ack and consumer.listening()
        )

    def next_with_room(self) -> tuple[Consumer, int] | None:
        """The consumer whose turn it is, and its room; it keeps its turn until it has none, or the turn
        is rotated."""
        turn = self.turn
        while turn:
            room = turn[0].room()
            if room > 0:
                return turn[0], room
            turn.popleft().queued = False
        return None
