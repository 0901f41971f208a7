"""Meters of a host beside its destinations' own counters: times and batch sizes, in plain numbers.

Everything here happens once a block, a batch or an acknowledgement, never once a message; an observation stands for as
many messages as the batch has.  Of small batches, of which a busy host has many, only some are observed and stand for
the others (:class:`Sample`): counters are exact, counts and sums of histograms are then estimates.  Times come from a
:class:`Times`, which is exact for what came last and coarser for what is long ago, so that neither a backlog nor a slow
consumer makes it grow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from raybroker.core.delivery.window import CreditWindow, PrefetchWindow
from raybroker.core.destination import Destination
from raybroker.core.outcome import Outcome
from raybroker.engine.measured_time import MeasuredTime
from raybroker.engine.measuring.destination_meter import ConsumerMeter, DestinationMeter, ProducerMeter
from raybroker.engine.measuring.life_cycle import CONSUMER_CREATED, CONSUMER_DESTROYED, LifeCycle
from raybroker.engine.measuring.limit_log import LimitLog
from raybroker.engine.measuring.samplers import TIMES_MAX, Average, Busiest, Sampling
from raybroker.engine.measuring.thresholds import Thresholds
from raybroker.engine.path.observers import Observers
from raybroker.engine.path.producer_signals import ProducerSignals
from raybroker.engine.sessions.attachments import Attachment
from raybroker.model.blocks.block import Block

TAGS_MANY: Final = 64
"""Entries of a consumer from which on those that are settled are dropped."""
NS: Final = 1e-9


class Meters:
    """All meters of a host. ``timing``: histograms are kept; without, only what costs nothing is counted."""

    def __init__(
        self,
        time: MeasuredTime,
        life: LifeCycle,
        observers: Observers,
        report: Callable[[str], None],
        signals: ProducerSignals,
        *,
        broker: str,
        timing: bool,
    ) -> None:
        self._time = time
        self._now_ns = time.monotonic_ns
        self._broker = broker
        self.life = life
        self.timing = timing
        self.sampling = Sampling()
        self.start_ns, self.start_ms = self._now_ns(), time.now_ms()
        self.destinations: dict[int, DestinationMeter] = {}
        self.routed: dict[str, int] = {}
        """Messages handed over, by the consumer's home broker."""
        self.committed = self.rolled_back = 0
        """Transactions."""
        self.gone: dict[str, dict[str, Any]] = {}
        """Counters and histograms of destinations that were destroyed, by type: totals of a host never shrink."""
        self.thresholds = Thresholds(time.now_ms, observers, report, signals)
        self.limits = LimitLog(time.now_ms, report)

    def meter_of(self, destination: Destination) -> DestinationMeter:
        meter = self.destinations.get(destination.number)
        if meter is None:
            # What is there already has been there since the host started.
            meter = self.destinations[destination.number] = DestinationMeter(self.start_ns, self.sampling)
        return meter

    # ---- in -----------------------------------------------------------------------------------------------------

    def kept(self, destination: Destination, outcome: Outcome, block: Block) -> None:
        """A block was taken, or part of it, by a command for which the time was read just now."""
        if self.life.sink is not None and self.life.wanted(destination):
            self.life.produced(destination, outcome, block)
        ordinal = outcome.accepted
        if not self.timing or ordinal is None:
            return
        meter = self.destinations.get(destination.number) or self.meter_of(destination)
        held = destination.block_index.held.fresh(ordinal)
        sizes = held.sizes if held is not None else block.bodies_bytes if block.count == 1 else block.lengths
        largest = sizes if isinstance(sizes, int) else max(sizes)
        if largest > meter.largest_bytes:
            meter.largest_bytes = largest
        arrivals = meter.arrivals
        if len(arrivals.numbers) >= TIMES_MAX:
            arrivals.drop_below(destination.block_index.held.oldest() or ordinal)
        arrivals.add(ordinal, self._time.read_ns)
        weight = meter.keeps.weigh(block.count)
        if weight:
            meter.send_batch_messages.observe(block.count, weight)
            if held is not None and held.columns.units is not None:
                meter.busiest_units = meter.busiest_units or Busiest()
                meter.busiest_units.add(held.columns.units, weight)

    def sending(self, attachment: Attachment, first_seq: int, count: int) -> None:
        """A block of ``count`` messages arrived that will be confirmed."""
        if self.timing:
            meter = attachment.meter
            if not isinstance(meter, ProducerMeter):
                meter = attachment.meter = ProducerMeter(self.meter_of(attachment.destination))
            weight = meter.destination.sends.weigh(count)
            if weight:
                meter.under_way.append((first_seq, self._now_ns(), weight))

    def stored(self, attachment: Attachment, first_seq: int, count: int) -> None:
        """A block is confirmed: it is durable, and a full destination has room again."""
        meter = attachment.meter
        if not isinstance(meter, ProducerMeter):
            return
        while meter.under_way and meter.under_way[0][0] <= first_seq:
            seq, began_ns, weight = meter.under_way.popleft()
            if seq == first_seq:
                meter.destination.send_to_store_seconds.observe((self._now_ns() - began_ns) * NS, count * weight)

    # ---- out ----------------------------------------------------------------------------------------------------

    def attached(self, attachment: Attachment, home_broker: str) -> None:
        """A consumer has come."""
        destination, remote = self.meter_of(attachment.destination), home_broker not in ("", self._broker)
        attachment.meter = ConsumerMeter(home_broker, attachment.state(), destination, self._now_ns(), remote=remote)
        destination.consumers_total += 1
        destination.consumers_peak = max(destination.consumers_peak, consumers_now(attachment.destination))
        self.routed.setdefault(home_broker, 0)
        self.life.consumer(attachment, CONSUMER_CREATED)
        self.update_average(attachment.destination, self._now_ns())

    def left(self, attachment: Attachment) -> None:
        """A consumer is about to go."""
        if isinstance(attachment.meter, ConsumerMeter):
            self.life.consumer(attachment, CONSUMER_DESTROYED)

    def delivered(self, attachment: Attachment, ordinal: int, tag: int, mask: int, attempt: int) -> None:
        """Messages of a block were handed over."""
        meter, count = attachment.meter, mask.bit_count()
        if attachment.eager and self.life.sink is not None and self.life.wanted(attachment.destination):
            self.life.handed(attachment, ordinal, mask)
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
        weight = destination.deliveries.weigh(count)
        if attachment.eager and not weight:
            return
        now_ns = self._now_ns()
        if not attachment.eager:
            meter.tags.add(tag, now_ns)
        if weight:
            destination.delivery_batch_messages.observe(count, weight)
            if attempt == 1:
                waited_ns = now_ns - destination.arrivals.at(ordinal)
                destination.store_to_delivery_seconds.observe(waited_ns * NS, count * weight)

    def acknowledged(self, attachment: Attachment, ranges: Sequence[tuple[int, int]], txn: int = 0) -> None:
        """The consumer is about to acknowledge deliveries."""
        if self.life.sink is not None and self.life.wanted(attachment.destination):
            self.life.consumed(attachment, ranges, txn)
        meter = attachment.meter
        if not self.timing or not isinstance(meter, ConsumerMeter) or not ranges:
            return
        now_ns, count = self._now_ns(), 0
        for start, end in ranges:
            if end >= start:
                count += end - start + 1
        if count <= 0:
            return
        weight = meter.acks.weigh(count)
        if weight:
            self._observe_ack(meter, ranges, count, now_ns, weight)
        meter.acked_ns = now_ns

    def _observe_ack(
        self, meter: ConsumerMeter, ranges: Sequence[tuple[int, int]], count: int, now_ns: int, weight: int
    ) -> None:
        tags, destination, consumer, first_ns = meter.tags, meter.destination, meter.consumer, now_ns
        for start, end in ranges:
            if end >= start:
                at_ns = tags.at(start)
                first_ns = min(first_ns, at_ns)
                destination.delivery_to_ack_seconds.observe((now_ns - at_ns) * NS, (end - start + 1) * weight)
        each_ns = (now_ns - max(meter.acked_ns, first_ns)) / count
        destination.service_seconds.observe(each_ns * NS, count * weight)
        if consumer is None:
            return
        window = consumer.window
        if isinstance(window, PrefetchWindow) and window.limit > 0:
            left = max(window.outstanding - count, 0)
            destination.prefetch_occupancy_ratio.observe(left / window.limit, weight)
        if len(tags.numbers) > TAGS_MANY and consumer.unsettled:
            tags.drop_below(consumer.unsettled[0].tag)

    def asked(self, attachment: Attachment, count: int, *, drain: bool = False) -> None:
        """The consumer is about to ask for ``count`` more: the rest of its limit it has still.

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

    def update_average(self, destination: Destination, now_ns: int) -> None:
        """Take the averages of one destination further (table M-D)."""
        averages = self.meter_of(destination).averages
        consumers = [c for queue in destination.queues.values() for c in queue.consumers.by_attachment.values()]
        active = sum(c.active for c in consumers)
        for name, value in (
            ("active", active),
            ("backup", len(consumers) - active),
            ("messages", destination.block_index.messages),
            ("bytes", destination.block_index.bytes_held),
        ):
            if name not in averages:
                averages[name] = Average(now_ns)
            averages[name].set(value, now_ns)

    def update_averages(self, destinations: Iterable[Destination]) -> None:
        """Look at everything that is measured by time; called about once a second."""
        destinations = list(destinations)
        self.sampling.begin_second()
        self.thresholds.tell_due(destinations)
        self.limits.tell_due(destinations)
        now_ns = self._now_ns()
        for destination in destinations:
            if destination.number in self.destinations:
                self.update_average(destination, now_ns)

    def forget_destination(self, destination: Destination) -> None:
        """It is destroyed."""
        self.destinations.pop(destination.number, None)
        self.thresholds.forget_destination(destination)
        self.limits.forget_destination(destination)

    def oldest_age_s(self, destination: Destination) -> float:
        """How long the oldest message is here, since the host started at most."""
        ordinal = destination.block_index.held.oldest()
        if ordinal is None:
            return 0.0
        meter = self.destinations.get(destination.number)
        return (self._now_ns() - (meter.arrivals.at(ordinal) if meter is not None else self.start_ns)) * NS


def consumers_now(destination: Destination) -> int:
    return sum(len(queue.consumers.by_attachment) for queue in destination.queues.values())
