"""What a host counts beside its destinations' own counters: times and batch sizes, in plain numbers.

Everything here happens once a block, a batch or an acknowledgement, never once a message; an observation stands for as
many messages as the batch has.  Times come from a :class:`Times`, which is exact for what came last and coarser for
what is long ago, so that neither a backlog nor a slow consumer makes it grow.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Sequence
from heapq import nlargest
from typing import TYPE_CHECKING, Any, Final

from raybroker.core.consumers import Consumer
from raybroker.core.outcome import Outcome, Refused
from raybroker.core.window import CreditWindow, PrefetchWindow
from raybroker.engine.life_cycle import CONSUMER_CREATED, CONSUMER_DESTROYED, LifeCycle
from raybroker.model import histogram as h
from raybroker.model.errors import MessageTooLargeError, QuotaExceededError
from raybroker.model.histogram import Histogram

if TYPE_CHECKING:
    from raybroker.core.destination import Destination
    from raybroker.engine.attachments import Attachment
    from raybroker.engine.host import Host
    from raybroker.model.block import Block

TIMES_MAX: Final = 512
"""Entries of one :class:`Times`."""
TAGS_MANY: Final = 64
"""So many entries of a consumer are looked through before those are dropped that nobody asks for."""
NS: Final = 1e-9
BUSIEST_MAX: Final = 64
BUSIEST_SHOWN: Final = 10
BUSIEST_SMALL: Final = 16
BUSIEST_EVERY: Final = 4


class Times:
    """When ascending numbers were reached, monotonic nanoseconds."""

    __slots__ = ("numbers", "times")

    def __init__(self, start_ns: int) -> None:
        self.numbers = [0]
        self.times = [start_ns]

    def add(self, number: int, at_ns: int) -> None:
        if len(self.numbers) >= TIMES_MAX:
            # The older half loses every second entry: what is long ago need not be known so well.
            half = len(self.numbers) // 2
            self.numbers[1:half] = self.numbers[1:half:2]
            self.times[1:half] = self.times[1:half:2]
        self.numbers.append(number)
        self.times.append(at_ns)

    def at(self, number: int) -> int:
        """When ``number`` was reached; when entries were thinned out, a time a little before."""
        return self.times[max(bisect_right(self.numbers, number) - 1, 0)]

    def forget(self, number: int) -> None:
        """Nobody asks for numbers below any more."""
        gone = bisect_right(self.numbers, number) - 1
        if gone > 0:
            del self.numbers[:gone], self.times[:gone]


class Average:
    """The highest value of something, and its average over the time since it was made."""

    __slots__ = ("area", "peak", "since_ns", "start_ns", "value")

    def __init__(self, now_ns: int) -> None:
        self.start_ns = self.since_ns = now_ns
        self.value = self.peak = self.area = 0

    def set(self, value: int, now_ns: int) -> None:
        self.area += self.value * (now_ns - self.since_ns)
        self.since_ns = now_ns
        self.value = value
        self.peak = max(self.peak, value)

    def average(self, now_ns: int) -> int:
        """Rounded down, as the metrics messages have it."""
        passed = now_ns - self.start_ns
        return (self.area + self.value * (now_ns - self.since_ns)) // passed if passed > 0 else self.value


class Busiest:
    """Who comes most often: at most BUSIEST_MAX names are counted, and a new one takes the place of the rarest with
    its count, so that none that comes often is missed and none is counted too low."""

    __slots__ = ("counts", "turn")

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.turn = 0

    def add(self, names: Sequence[str | None]) -> None:
        """Count names of one block; of large blocks every fourth, four times, and the names that come most in it."""
        weight = 1
        if len(names) > BUSIEST_SMALL:
            self.turn += 1
            if self.turn % BUSIEST_EVERY:
                return
            weight = BUSIEST_EVERY
        for name, count in Counter(names).most_common(BUSIEST_SMALL):
            if name is None:
                continue
            before = self.counts.get(name)
            if before is None and len(self.counts) >= BUSIEST_MAX:
                rarest = min(self.counts, key=self.counts.__getitem__)
                before = self.counts.pop(rarest)
            self.counts[name] = (before or 0) + count * weight

    def top(self) -> dict[str, int]:
        return dict(nlargest(BUSIEST_SHOWN, self.counts.items(), key=lambda item: item[1]))


class DestinationMeter:
    """Of one destination that was used: see the catalogue of metrics for what the histograms count."""

    __slots__ = (
        "arrivals", "averages", "busiest_units", "delivered_local", "delivered_remote", "delivery_batch_messages",
        "delivery_to_ack_seconds", "largest_bytes", "prefetch_occupancy_ratio", "send_batch_messages",
        "send_to_store_seconds", "service_seconds", "store_to_delivery_seconds",
    )  # fmt: skip

    def __init__(self, now_ns: int) -> None:
        self.arrivals = Times(now_ns)
        self.send_to_store_seconds = Histogram(h.SECONDS)
        self.store_to_delivery_seconds = Histogram(h.SECONDS)
        self.delivery_to_ack_seconds = Histogram(h.SECONDS)
        self.service_seconds = Histogram(h.SERVICE_SECONDS)
        self.send_batch_messages = Histogram(h.BATCH)
        self.delivery_batch_messages = Histogram(h.BATCH)
        self.prefetch_occupancy_ratio = Histogram(h.RATIO)
        self.delivered_local = self.delivered_remote = self.largest_bytes = 0
        self.averages: dict[str, Average] = {}
        self.busiest_units: Busiest | None = None


HISTOGRAMS: Final = (
    "send_to_store_seconds", "store_to_delivery_seconds", "delivery_to_ack_seconds", "service_seconds",
    "send_batch_messages", "delivery_batch_messages", "prefetch_occupancy_ratio",
)  # fmt: skip
"""Those of a DestinationMeter, by their keys in the catalogue."""


class ProducerMeter:
    """Blocks of one producer that are on their way to the disk: first sequence number and arrival."""

    __slots__ = ("send_to_store_seconds", "under_way")

    def __init__(self, destination: DestinationMeter) -> None:
        self.under_way: deque[tuple[int, int]] = deque()
        self.send_to_store_seconds = destination.send_to_store_seconds


class ConsumerMeter:
    """``tags``: when deliveries left; ``home``: the consumer's home broker, "" when it did not say."""

    __slots__ = ("acked_ns", "consumer", "destination", "home", "remote", "tags")

    def __init__(
        self, home: str, consumer: Consumer | None, destination: DestinationMeter, now_ns: int, *, remote: bool
    ) -> None:
        self.home = home
        self.consumer = consumer
        self.destination = destination
        self.remote = remote
        self.tags = Times(now_ns)
        self.acked_ns = 0


class Meters:
    """All meters of a host. ``timing``: histograms are kept; without, only what costs nothing is counted."""

    def __init__(self, host: Host, *, timing: bool) -> None:
        self._host = host
        self._now_ns = host.clock.monotonic_ns
        self.life = LifeCycle(host)
        self.timing = timing
        self.start_ns = self._now_ns()
        self.destinations: dict[int, DestinationMeter] = {}
        self.routed: dict[str, int] = {}
        """Messages handed over, by the consumer's home broker."""
        self.committed = self.rolled_back = 0
        """Transactions."""
        self.gone: dict[str, dict[str, Any]] = {}
        """Counters and histograms of destinations that were destroyed, by type: totals of a host never shrink."""

    def of(self, home: Destination) -> DestinationMeter:
        meter = self.destinations.get(home.number)
        if meter is None:
            # What is there already has been there since the host started.
            meter = self.destinations[home.number] = DestinationMeter(self.start_ns)
        return meter

    # ---- in -----------------------------------------------------------------------------------------------------

    def kept(self, home: Destination, outcome: Outcome, block: Block) -> None:
        """A block was taken, or part of it."""
        if self.life.wanted(home):
            self.life.produced(home, outcome, block)
        ordinal = outcome.accepted
        if not self.timing or ordinal is None:
            return
        meter = self.of(home)
        meter.send_batch_messages.observe(block.count)
        held = home.ledger.held.get(ordinal)
        sizes = held.sizes if held is not None else block.bodies_bytes if block.count == 1 else block.lengths
        largest = sizes if isinstance(sizes, int) else max(sizes)
        if largest > meter.largest_bytes:
            meter.largest_bytes = largest
        if held is not None and held.columns.units is not None:
            meter.busiest_units = meter.busiest_units or Busiest()
            meter.busiest_units.add(held.columns.units)
        arrivals = meter.arrivals
        if len(arrivals.numbers) >= TIMES_MAX:
            arrivals.forget(next(iter(home.ledger.held), ordinal))
        arrivals.add(ordinal, self._now_ns())

    def sending(self, attachment: Attachment, first_seq: int) -> None:
        """A block arrived that will be confirmed."""
        if self.timing:
            meter = attachment.meter
            if not isinstance(meter, ProducerMeter):
                meter = attachment.meter = ProducerMeter(self.of(attachment.home))
            meter.under_way.append((first_seq, self._now_ns()))

    def stored(self, attachment: Attachment, first_seq: int, count: int, refused: Sequence[Refused] = ()) -> None:
        """A block is confirmed: it is durable, and a full destination has room again."""
        if refused and self._host.config["imq.destination.logDeadMsgs"]:
            self._log_refused(attachment.home, refused)
        meter = attachment.meter
        if not isinstance(meter, ProducerMeter):
            return
        while meter.under_way and meter.under_way[0][0] <= first_seq:
            seq, began_ns = meter.under_way.popleft()
            if seq == first_seq:
                meter.send_to_store_seconds.observe((self._now_ns() - began_ns) * NS, count)

    def _log_refused(self, home: Destination, refused: Sequence[Refused]) -> None:
        """The destination is full, or does not take so large a message (M-13)."""
        for row in refused:
            if row.code in (QuotaExceededError.code, MessageTooLargeError.code):
                count = row.end - row.start
                self._host.report(f"[B2147] {home.kind} {home.name} did not take {count} messages: {row.text}")

    # ---- out ----------------------------------------------------------------------------------------------------

    def attached(self, attachment: Attachment, home_broker: str) -> None:
        """A consumer has come."""
        destination, remote = self.of(attachment.home), home_broker not in ("", self._host.broker)
        attachment.meter = ConsumerMeter(
            home_broker, consumer_of(attachment), destination, self._now_ns(), remote=remote
        )  # fmt: skip
        self.routed.setdefault(home_broker, 0)
        self.life.consumer(attachment, CONSUMER_CREATED)
        self.look(attachment.home, self._now_ns())

    def left(self, attachment: Attachment) -> None:
        """A consumer is about to go."""
        if isinstance(attachment.meter, ConsumerMeter):
            self.life.consumer(attachment, CONSUMER_DESTROYED)

    def delivered(self, attachment: Attachment, ordinal: int, tag: int, picks: int, attempt: int) -> None:
        """Messages of a block were handed over."""
        meter, count = attachment.meter, picks.bit_count()
        if attachment.eager and self.life.wanted(attachment.home):
            self.life.handed(attachment, ordinal, picks)
        if not isinstance(meter, ConsumerMeter):
            return
        self.routed[meter.home] += count
        destination = meter.destination
        if meter.remote:
            destination.delivered_remote += count
        else:
            destination.delivered_local += count
        if not self.timing:
            return
        now_ns = self._now_ns()
        destination.delivery_batch_messages.observe(count)
        if attempt == 1:
            destination.store_to_delivery_seconds.observe((now_ns - destination.arrivals.at(ordinal)) * NS, count)
        if not attachment.eager:
            meter.tags.add(tag, now_ns)

    def acknowledged(self, attachment: Attachment, ranges: Sequence[tuple[int, int]], txn: int = 0) -> None:
        """The consumer is about to acknowledge deliveries."""
        if self.life.wanted(attachment.home):
            self.life.consumed(attachment, ranges, txn)
        meter = attachment.meter
        if not self.timing or not isinstance(meter, ConsumerMeter) or not ranges:
            return
        now_ns, tags, destination = self._now_ns(), meter.tags, meter.destination
        count, first_ns = 0, now_ns
        for start, end in ranges:
            messages = end - start + 1
            if messages > 0:
                at_ns = tags.at(start)
                first_ns = min(first_ns, at_ns)
                count += messages
                destination.delivery_to_ack_seconds.observe((now_ns - at_ns) * NS, messages)
        if count <= 0:
            return
        destination.service_seconds.observe((now_ns - max(meter.acked_ns, first_ns)) * NS / count, count)
        meter.acked_ns = now_ns
        consumer = meter.consumer
        if consumer is None:
            return
        window = consumer.window
        if isinstance(window, PrefetchWindow) and window.limit > 0:
            left = max(window.outstanding - count, 0)
            destination.prefetch_occupancy_ratio.observe(left / window.limit)
        if len(tags.numbers) > TAGS_MANY and consumer.unsettled:
            tags.forget(consumer.unsettled[0].tag)

    def asked(self, attachment: Attachment, count: int, *, drain: bool = False) -> None:
        """The consumer is about to ask for ``count`` more: the rest of its limit it has still (F-05).

        ``drain``: what it was granted here before is void; what other members have granted counts as what it has.
        """
        meter = attachment.meter
        if not self.timing or count <= 0 or not isinstance(meter, ConsumerMeter):
            return
        consumer = meter.consumer
        if consumer is not None and consumer.limit > 0 and (drain or isinstance(consumer.window, CreditWindow)):
            granted = count if drain else consumer.window.left() + count
            buffered = max(consumer.limit - granted, 0)
            meter.destination.prefetch_occupancy_ratio.observe(buffered / consumer.limit)

    def ended(self, *, commit: bool) -> None:
        """A transaction has ended."""
        if commit:
            self.committed += 1
        else:
            self.rolled_back += 1

    # ---- over time ----------------------------------------------------------------------------------------------

    def look(self, home: Destination, now_ns: int) -> None:
        """Take the averages of one destination further (table M-D)."""
        averages = self.of(home).averages
        consumers = [c for lane in home.lanes.values() for c in lane.consumers.by_attachment.values()]
        active = sum(c.active for c in consumers)
        for name, value in (
            ("active", active), ("backup", len(consumers) - active), ("messages", home.ledger.messages),
            ("bytes", home.ledger.bytes_held),
        ):  # fmt: skip
            if name not in averages:
                averages[name] = Average(now_ns)
            averages[name].set(value, now_ns)

    def tick(self) -> None:
        """About once a second."""
        now_ns = self._now_ns()
        for home in self._host.destinations.values():
            if home.number in self.destinations:
                self.look(home, now_ns)

    def oldest_age_s(self, home: Destination) -> float:
        """How long the oldest message is here, since the host started at most."""
        ordinal = next(iter(home.ledger.held), None)
        if ordinal is None:
            return 0.0
        meter = self.destinations.get(home.number)
        return (self._now_ns() - (meter.arrivals.at(ordinal) if meter is not None else self.start_ns)) * NS


def consumer_of(attachment: Attachment) -> Consumer | None:
    lane = attachment.home.lane_of.get(attachment.number)
    return lane.consumers.by_attachment.get(attachment.number) if lane is not None else None
