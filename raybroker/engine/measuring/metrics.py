"""Metrics of a host and its destinations as rows of plain values.

A row is key → value, by the keys of the catalogue of metrics; a value is a number, a mapping of a label's value to a
number, or the row of a histogram.  Labels with two or more names do not occur.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from raybroker.core.counters import LASTING
from raybroker.core.delivery.consumers import Consumer
from raybroker.core.delivery.delivery_queue import DeliveryQueue
from raybroker.core.delivery.window import UNLIMITED
from raybroker.core.destination import Destination
from raybroker.core.staleness.version_pending import VersionPending
from raybroker.engine.destinations.destination_registry import DestinationRegistry
from raybroker.engine.measured_time import MeasuredTime
from raybroker.engine.measuring.counter_baselines import CounterBaselines
from raybroker.engine.measuring.destination_meter import HISTOGRAMS, DestinationMeter
from raybroker.engine.measuring.meters import NS, Meters
from raybroker.engine.measuring.samplers import Sampling
from raybroker.engine.memory.block_cache import BlockCache
from raybroker.engine.memory.block_compression import BlockCompression
from raybroker.engine.path.committer import ThreadCommitter
from raybroker.engine.ports import Committer, Store
from raybroker.engine.schedules.schedules import Schedules
from raybroker.engine.transactions.transaction_state import TransactionState
from raybroker.engine.transactions.transactions import Transaction
from raybroker.model import histogram as h
from raybroker.model.causes import CAUSES
from raybroker.model.definitions import pauses
from raybroker.model.naming.names import is_metrics_topic
from raybroker.model.settings.setting_thresholds import OF

Value = Any
Row = dict[str, Value]

MAXIMA: Final = frozenset({"oldest_message_age_seconds", "quota_used_ratio"})
"""The largest of the destinations stands for all of them; everything else is added up."""
KINDS: Final = ("queue", "topic")
MS: Final = h.PARTS // 1000
"""Times are counted in nanoseconds, as the sums of histograms are."""
GAUGES: Final = (
    "messages",
    "message_bytes",
    "waiting_messages",
    "unacknowledged_messages",
    "delayed_messages",
    "pending_messages",
    "oldest_message_age_seconds",
    "producers",
    "consumers",
    "idle_consumers",
    "full_consumers",
    "subscriptions",
    "schedules",
    "ordered_units",
    "consumer_limit_messages",
    "consumer_credit_messages",
    "quota_used_ratio",
    "flow_controlled",
    "over_threshold",
    "slowed_producers",
    "paused",
    "halted",
    "starving",
)
COUNTERS: Final = {
    "messages_in_total": "messages_in",
    "messages_out_total": "messages_out",
    "message_in_bytes_total": "bytes_in",
    "message_out_bytes_total": "bytes_out",
    "redelivered_messages_total": "redelivered",
    "moved_in_messages_total": "moved_in",
    "refused_messages_total": "refused",
    "expired_messages_total": "expired",
    "dead_messages_total": "dead",
    "duplicate_messages_total": "duplicates",
    "recalled_messages_total": "recalled",
    "batches_total": "batches",
    "batched_messages_total": "batched",
    "due_batches_total": "batches_due",
}
_BESIDE: Final = ("flow_control_episodes_total", "flow_control_seconds_total", "batch_wait_seconds_total")
_OF_VERSIONS: Final = ("stale_messages_total", "starvation_seconds_total")
"""Of queues with bounded staleness."""
LASTING_KEYS: Final = {key: name for key, name in COUNTERS.items() if name in LASTING}


class Sum:
    """Rows of destinations, added up by type. ``start``: those of what was destroyed."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {kind: _zero() for kind in KINDS}
        self._histograms: dict[tuple[str, str], list[h.Row]] = {}

    def add(self, kind: str, row: Row) -> None:
        total = self.rows[kind]
        for key, value in row.items():
            if isinstance(value, dict):
                before = total[key]
                for label, number in value.items():
                    before[label] = before.get(label, 0) + number
            elif isinstance(value, tuple):
                self._histograms.setdefault((kind, key), []).append(value)
            elif key in MAXIMA:
                total[key] = max(total[key], value)
            else:
                total[key] += value

    def done(self) -> dict[str, Row]:
        """Type → row."""
        for (kind, key), rows in self._histograms.items():
            self.rows[kind][key] = h.merge((self.rows[kind][key], *rows))
        self._histograms.clear()
        return self.rows


def _zero() -> Row:
    row: Row = dict.fromkeys((*COUNTERS, *_BESIDE, *_OF_VERSIONS, *GAUGES), 0)
    row["delivered_messages_total"] = {"local": 0, "remote": 0}
    row["failed_deliveries_total"] = dict.fromkeys(CAUSES, 0)
    row["threshold_seconds_total"], row["over_threshold"] = dict.fromkeys(OF, 0), dict.fromkeys(OF, 0)
    row["paused"] = pauses.figures(())
    row["consumers"] = {"active": 0, "backup": 0}
    empty = DestinationMeter(0, Sampling())
    for key in HISTOGRAMS:
        row[key] = getattr(empty, key).as_row()
    return row


class Lasting:
    """Totals of destinations since they were made, added up by type: as they are stored, see ``core.counters``."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {kind: dict.fromkeys(LASTING_KEYS, 0) for kind in KINDS}

    def add(self, destinations: Iterable[Destination]) -> None:
        for destination in destinations:
            row, lasting = self.rows[destination.kind], destination.counters.lasting()
            for key, name in LASTING_KEYS.items():
                row[key] += lasting[name]


class MetricRows:
    """The rows of the destinations of a host."""

    def __init__(
        self,
        time: MeasuredTime,
        registry: DestinationRegistry,
        schedules: Schedules,
        meters: Meters,
        baselines: CounterBaselines,
    ) -> None:
        self._time = time
        self._registry = registry
        self._schedules = schedules
        self._meters = meters
        self._baselines = baselines
        self.recovered = Lasting()
        """What the host had counted before it started."""

    def totals(self, destination: Destination) -> Row:
        """What only grows, since the host started."""
        counters = destination.counters
        row: Row = {key: counters.since_start(name) for key, name in COUNTERS.items()}
        slow_ms = counters.slow.ms + (self._time.now_ms() - counters.slow.since_ms if destination.admission.slow else 0)
        row["flow_control_seconds_total"] = slow_ms * MS
        row["flow_control_episodes_total"] = counters.slow.episodes
        row["batch_wait_seconds_total"] = counters.since_start("batch_wait_ms") * MS
        row["threshold_seconds_total"] = {
            of: ms * MS for of, ms in self._meters.thresholds.total_ms(destination).items()
        }
        row.update(dict.fromkeys(_OF_VERSIONS, 0))
        for plain in _versioned(destination):
            row["stale_messages_total"] += plain.stale
            row["starvation_seconds_total"] += plain.starvation.in_all_ms(self._time.now_ms()) * MS
        if counters.failed:
            row["failed_deliveries_total"] = dict.fromkeys(CAUSES, 0) | counters.failed
        meter = self._meters.destinations.get(destination.number)
        if meter is not None:
            row["delivered_messages_total"] = {"local": meter.delivered_local, "remote": meter.delivered_remote}
            for key in HISTOGRAMS:
                histogram: h.Histogram = getattr(meter, key)
                if histogram.total or histogram.counts[0]:
                    row[key] = histogram.as_row()
        return row

    def started(self) -> None:
        """The host has recovered its destinations."""
        self.recovered = self.lasting(())
        self.recovered.add(self._registry.destinations.values())

    def lasting(self, destinations: Iterable[Destination]) -> Lasting:
        """What these destinations and the dormant ones have counted in all their time."""
        found = Lasting()
        found.add([destination for _, destination in self._registry.dormant.values()])
        found.add(destinations)
        return found

    def gauges(self, destination: Destination) -> Row:
        """How it stands."""
        block_index = destination.block_index
        row: Row = {
            "messages": block_index.messages,
            "message_bytes": block_index.bytes_held,
            "pending_messages": sum(staged.messages + staged.acknowledged for staged in destination.staged.values()),
            "oldest_message_age_seconds": self._meters.oldest_age_s(destination),
            "producers": len(destination.producers.attached),
            "subscriptions": len(destination.queues) if destination.kind == "topic" else 0,
            "schedules": self._schedules.count(destination),
            "quota_used_ratio": quota_used(destination),
            "flow_controlled": int(destination.admission.slow),
            "over_threshold": self._meters.thresholds.over(destination),
            "slowed_producers": self._meters.thresholds.slowed(destination),
            "paused": pauses.figures(destination.paused),
            "halted": int(destination.number in self._registry.halted),
            "starving": int(any(plain.starvation.starving for plain in _versioned(destination))),
        }
        waiting = delayed = units = 0
        for queue in destination.queues.values():
            waiting += queue.pending.count + (sum(run.count for run, _ in queue.hidden) if queue.hidden else 0)
            delayed += queue.delayed.count
            units += len(queue.units)
        row["ordered_units"] = units
        row["waiting_messages"] = waiting
        row["delayed_messages"] = delayed
        row.update(_of_consumers(destination.queues.values()))
        return row

    def destination_row(self, destination: Destination) -> Row:
        """Everything about one destination: also ``name``, ``type``, ``temporary``, and what metrics messages have."""
        attributes = destination.attributes
        peak_messages, peak_bytes = self._baselines.peaks(destination)
        meter = self._meters.destinations.get(destination.number)
        row = {
            "name": destination.name,
            "type": destination.kind,
            "temporary": self._registry.definition(destination).owner is not None,
            **self.totals(destination),
            "recovered": {key: destination.counters.recovered.get(name, 0) for key, name in LASTING_KEYS.items()},
            **self.gauges(destination),
            "peak_messages": peak_messages,
            "peak_message_bytes": peak_bytes,
            "active_subscriptions": sum(
                queue.subscription is not None and (queue.subscription.durable or bool(queue.consumers.by_attachment))
                for queue in destination.queues.values()
            ),
            "largest_message_bytes": meter.largest_bytes if meter is not None else 0,
        }
        if attributes.maxNumMsgs >= 0:
            row["limit_messages"] = attributes.maxNumMsgs
        if attributes.maxTotalMsgBytes >= 0:
            row["limit_bytes"] = attributes.maxTotalMsgBytes
        if meter is not None and meter.busiest_units is not None:
            row["unit_messages_total"] = meter.busiest_units.top()
        if meter is not None:
            now_ns = self._time.monotonic_ns()
            row["averages"] = {name: (a.average(now_ns), a.peak) for name, a in meter.averages.items()}
        return row

    def destroyed(self, destination: Destination) -> None:
        """A destination is destroyed: what it counted stays in the totals of its type, which never shrink."""
        meters = self._meters
        if not is_metrics_topic(destination.name):
            total = Sum()
            total.add(destination.kind, self.totals(destination))
            if destination.kind in meters.gone:
                total.add(destination.kind, meters.gone[destination.kind])
            gone = total.done()[destination.kind]
            meters.gone[destination.kind] = {key: value for key, value in gone.items() if key not in GAUGES}
        meters.forget_destination(destination)
        self._baselines.forget_destination(destination)


class HostMetrics:
    """The row of a host itself: store, memory and transactions."""

    def __init__(
        self,
        store: Store,
        cache: BlockCache,
        transactions: Mapping[int, Transaction],
        meters: Meters,
        compression: BlockCompression,
    ) -> None:
        self._store = store
        self._cache = cache
        self._transactions = transactions
        self._meters = meters
        self._compression = compression

    def host_row(self, committer: Committer | None) -> Row:
        """Return the row."""
        stats, meters = self._store.stats(), self._meters
        states = {"open": 0, "prepared": 0}
        for transaction in self._transactions.values():
            states["prepared" if transaction.state is TransactionState.PREPARED else "open"] += 1
        row: Row = {
            "routed_messages_total": dict(meters.routed),
            "transactions": states,
            "transactions_committed_total": meters.committed,
            "transactions_rolled_back_total": meters.rolled_back,
            "store_reserved_bytes": stats.reserved_bytes,
            "store_used_bytes": stats.used_bytes,
            "store_live_bytes": stats.live_bytes,
            "store_segments": stats.segments,
            "fsyncs_total": stats.syncs,
            "fsync_seconds_total": stats.sync_ns,
            "fsync_max_seconds": stats.sync_ns_max * NS,
            **self._cache.figures(),
            "store_compression_saved_bytes_total": self._compression.saved_bytes,
            "paging_compression_saved_bytes_total": self._compression.paging_saved_bytes,
        }
        pager = self._cache.pager
        if pager is not None:
            row["message_buffer_bytes"] = pager.held_bytes
            row["message_buffer_limit_bytes"] = pager.limit_bytes
            row["paged_bytes"] = pager.paged_bytes
            row["paging_failing"] = int(bool(pager.failure))
            row["paged_out_messages_total"] = pager.messages_out
            row["paged_out_bytes_total"] = pager.bytes_out
            row["paged_in_messages_total"] = pager.messages_back
            row["paged_in_bytes_total"] = pager.bytes_back
        if committer is not None:
            row["commit_pending_bytes"] = committer.pending_bytes
            row["store_overloaded"] = int(committer.overloaded or (pager is not None and pager.overloaded))
        if isinstance(committer, ThreadCommitter):
            meter = committer.meter
            row["commit_seconds"] = meter.seconds.as_row()
            row["commit_bytes"] = meter.bytes.as_row()
            row["commit_batches"] = meter.batches.as_row()
        return row


def _versioned(destination: Destination) -> list[VersionPending]:
    return [queue.plain for queue in destination.queues.values() if isinstance(queue.plain, VersionPending)]


def _of_consumers(queues: Iterable[DeliveryQueue]) -> Row:
    active = backup = idle = full = limit = credit = unsettled = 0
    for queue in queues:
        waits = queue.plain.backlog.count > 0
        for consumer in queue.consumers.by_attachment.values():
            unsettled += sum(item.count for item in consumer.unsettled)
            if not consumer.active:
                backup += 1
                continue
            active += 1
            room = _room(queue, consumer)
            idle += room > 0 and not waits
            full += room <= 0 and waits
            if consumer.limit > 0:
                limit += consumer.limit
                credit += min(consumer.window.left(), consumer.limit)
    return {
        "consumers": {"active": active, "backup": backup},
        "idle_consumers": idle,
        "full_consumers": full,
        "consumer_limit_messages": limit,
        "consumer_credit_messages": credit,
        "unacknowledged_messages": unsettled,
    }


def _room(queue: DeliveryQueue, consumer: Consumer) -> int:
    """Whether it would take a message now; one in drain mode is armed while it waits for one."""
    if consumer.attachment in queue.consumers.draining:
        return int(consumer.armed)
    return min(consumer.room(), UNLIMITED)


def quota_used(destination: Destination) -> float:
    attributes, block_index = destination.attributes, destination.block_index
    used = 0.0
    if attributes.maxNumMsgs > 0:
        used = block_index.messages / attributes.maxNumMsgs
    if attributes.maxTotalMsgBytes > 0:
        used = max(used, block_index.bytes_held / attributes.maxTotalMsgBytes)
    return used
