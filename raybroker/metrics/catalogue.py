"""The catalogue: every quantity that is measured, once, with its name, meaning, unit and labels.

There are two *tiers*.  The aggregate tier sums over the destinations of a broker and is the default of a scrape: its
size does not grow with the number of destinations.  The destination tier has one row for each destination and is given
on request (``/metrics?tier=destination`` or ``/metrics/destinations``).  A quantity of destinations is in both tiers
under two names, ``raybroker_messages`` and ``raybroker_destination_messages``, so that no query adds it up twice.

Counters and gauges are exact.  Histograms are exact while a host handles few batches, about a hundred a second.  Of
more batches, one of every eight small ones (below 2,000 messages) is observed and counts eight times: counts and sums
are then unbiased estimates, which differ from the counters by some batches.

Every metric has the labels ``cluster`` and ``broker``; quantities of destinations have ``type`` (queue, topic), and in
the destination tier ``destination``.  Further labels are bounded, as their help says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

from raybroker.model import histogram as h

PREFIX: Final = "raybroker_"
DESTINATION_PREFIX: Final = "raybroker_destination_"

Kind = Literal["counter", "gauge", "histogram"]
Tier = Literal["aggregate", "destination"]
Scope = Literal["destination", "only", "broker"]
TIERS: Final[tuple[Tier, ...]] = ("aggregate", "destination")


@dataclass(frozen=True, slots=True)
class Quantity:
    """One row of the catalogue.

    key      its name in the rows of brokers and hosts; with a prefix, the metric's name
    unit     "messages", "bytes", "seconds", "ratio" and so on; "" for plain counts
    labels   labels beside those of its tier
    scope    "destination": it belongs to destinations, and is in both tiers; "only": in the destination tier alone;
             "broker": it belongs to the broker, and is in the aggregate tier alone
    merge    "sum" or "max": makes the broker's value of those of its destinations and hosts
    buckets  upper edges of a histogram
    """

    key: str
    kind: Kind
    unit: str
    help: str
    labels: tuple[str, ...] = ()
    scope: Scope = "broker"
    merge: Literal["sum", "max"] = "sum"
    buckets: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Metric:
    """A quantity in one tier, under the name that Prometheus knows."""

    name: str
    kind: Kind
    unit: str
    labels: tuple[str, ...]
    tier: Tier
    help: str
    buckets: tuple[float, ...]
    key: str


def _counter(key: str, unit: str, help: str, *labels: str) -> Quantity:
    return Quantity(key, "counter", unit, help, labels)


def _gauge(key: str, unit: str, help: str, *labels: str, merge: Literal["sum", "max"] = "sum") -> Quantity:
    return Quantity(key, "gauge", unit, help, labels, merge=merge)


def _histogram(key: str, unit: str, buckets: tuple[float, ...], help: str) -> Quantity:
    return Quantity(key, "histogram", unit, help, buckets=buckets)


def _scoped(scope: Scope, *quantities: Quantity) -> tuple[Quantity, ...]:
    return tuple(replace(quantity, scope=scope) for quantity in quantities)


DESTINATIONS: Final = _scoped(
    "destination",
    # ---- flow of messages
    _counter("messages_in_total", "messages",
             "Messages taken from producers, and occurrences of schedules; those of a transaction when it commits."),
    _counter("moved_in_messages_total", "messages",
             "Messages that brokers put here: moved, forwarded by another broker, dead elsewhere, or imported."),
    _counter("messages_out_total", "messages", "Messages that consumers have acknowledged."),
    _counter("message_in_bytes_total", "bytes", "Body bytes of messages taken from producers."),
    _counter("message_out_bytes_total", "bytes", "Body bytes of messages that consumers have acknowledged."),
    _counter("delivered_messages_total", "messages",
             "Messages handed to consumers, again ones included; place: local, or remote when the consumer's home "
             "broker is another one.", "place"),
    _counter("redelivered_messages_total", "messages", "Messages handed to consumers for the second time or later."),
    _counter("recalled_messages_total", "messages",
             "Messages that consumers gave back before their applications had begun them: for an idle consumer, or to "
             "make room."),
    _counter("batches_total", "", "Batches that were formed for consumers of batches, and handed out."),
    _counter("batched_messages_total", "messages", "Messages of these batches; by batches: how full they were."),
    _counter("due_batches_total", "",
             "Batches that were not full, and went because their oldest messages had waited for long enough."),
    _counter("batch_wait_seconds_total", "seconds",
             "How long the oldest messages of batches had waited when these went, together."),
    _counter("stale_messages_total", "messages",
             "Messages of queues with versionKey that were found stale: removed, or put behind all others."),
    _counter("starvation_seconds_total", "seconds",
             "Time for which queues with versionKey have starved: see starving."),
    _counter("failed_deliveries_total", "messages",
             "Deliveries that have failed; cause: error, oom, lost, preempted, timeout or poison.", "cause"),
    _counter("refused_messages_total", "messages", "Messages that were not taken: limits, pauses, a full store."),
    _counter("expired_messages_total", "messages", "Messages whose time to live was over before they were consumed."),
    _counter("dead_messages_total", "messages", "Messages that were put where the dead go, or discarded as such."),
    _counter("duplicate_messages_total", "messages", "Messages not taken again, by the deduplication window."),
    _counter("flow_control_episodes_total", "", "Times that producers were told to wait: the destination is full."),
    _counter("flow_control_seconds_total", "seconds", "Time for which producers were told to wait."),
    _counter("threshold_seconds_total", "seconds",
             "Time for which destinations were over their thresholds; of: messages or bytes.", "of"),
    # ---- what is held
    _gauge("messages", "messages", "Messages held, in memory or in the store."),
    _gauge("message_bytes", "bytes", "Body bytes of messages held."),
    _gauge("waiting_messages", "messages", "Messages that no consumer has yet, over all subscriptions of a topic."),
    _gauge("unacknowledged_messages", "messages", "Messages with consumers that have not acknowledged them."),
    _gauge("delayed_messages", "messages", "Messages that are not to be delivered yet."),
    _gauge("pending_messages", "messages", "Messages sent or taken in transactions that have not ended."),
    _gauge("oldest_message_age_seconds", "seconds",
           "How long the oldest message has been here, since the last start of its host at most.", merge="max"),
    # ---- who is there
    _gauge("producers", "", "Producers."),
    _gauge("consumers", "", "Consumers; state: active or backup.", "state"),
    _gauge("idle_consumers", "", "Active consumers with credit, for whom there is no message."),
    _gauge("full_consumers", "", "Active consumers without credit while messages wait: they are the bottleneck."),
    _gauge("subscriptions", "", "Subscriptions of topics."),
    _gauge("schedules", "", "Recurring schedules that send to destinations."),
    _gauge("ordered_units", "",
           "Units of order of messages with consumers and next to be delivered; those deep in a backlog do not count."),
    # ---- prefetch
    _gauge("consumer_limit_messages", "messages", "Sum of the prefetch limits of active consumers that have one."),
    _gauge("consumer_credit_messages", "messages", "Messages that consumers with a limit have asked for and not got."),
    # ---- limits and states
    _gauge("quota_used_ratio", "ratio",
           "The larger of messages to maxNumMsgs and bytes to maxTotalMsgBytes; 0 without limits.", merge="max"),
    _gauge("flow_controlled", "", "Destinations whose producers are told to wait."),
    _gauge("over_threshold", "",
           "Destinations that held more than messagesHigh or bytesHigh, and have not been below messagesLow or "
           "bytesLow since; of: messages or bytes.", "of"),
    _gauge("slowed_producers", "",
           "Producers that were told to send more slowly, since their destination is over a threshold."),
    _gauge("paused", "", "Destinations that are paused; what: producers, consumers or insertion.", "what"),
    _gauge("halted", "", "Destinations that are halted by a damaged message."),
    _gauge("starving", "",
           "Queues with versionKey of which a consumer that has nothing has waited for starvationTime or longer. In a "
           "cluster one starves that starves on all brokers: the smallest value of them."),
    # ---- times and sizes
    _histogram("send_to_store_seconds", "seconds", h.SECONDS,
               "From the arrival of a persistent message to its confirmation: it is durable, and a full destination "
               "with FLOW_CONTROL has room again; counted in messages."),
    _histogram("store_to_delivery_seconds", "seconds", h.SECONDS,
               "From the arrival of a message to its first hand-over to a consumer; counted in messages. After a start "
               "of the host it counts from there."),
    _histogram("delivery_to_ack_seconds", "seconds", h.SECONDS,
               "From the hand-over of a message to its acknowledgement; counted in messages."),
    _histogram("service_seconds", "seconds", h.SERVICE_SECONDS,
               "Time that a busy consumer took for one message: from its last acknowledgement, or the delivery if that "
               "came later, to the next one, by the messages acknowledged; counted in messages."),
    _histogram("send_batch_messages", "messages", h.BATCH, "Messages that arrived as one block."),
    _histogram("delivery_batch_messages", "messages", h.BATCH, "Messages handed to a consumer as one block."),
    _histogram("prefetch_occupancy_ratio", "ratio", h.RATIO,
               "What a consumer with a limit still has when it asks for more, by the limit; 0: it had run dry."),
) + _scoped(
    "only",
    _gauge("limit_messages", "messages", "maxNumMsgs, where there is one."),
    _gauge("limit_bytes", "bytes", "maxTotalMsgBytes, where there is one."),
    _gauge("peak_messages", "messages", "Most messages held since the host started."),
    _gauge("peak_message_bytes", "bytes", "Most body bytes held since the host started."),
    _gauge("largest_message_bytes", "bytes", "Largest body taken since the host started."),
    _counter("unit_messages_total", "messages",
             "Messages of the busiest units of order, ten at most; a unit that becomes one starts with the count of "
             "the one that it replaces.", "unit"),
    _gauge("copy_lag_entries", "",
           "Entries that another broker's copy of the queue's log lacks, as its leader sees it; copy: that broker.",
           "copy"),
    _gauge("leader_term", "",
           "Number of the term in which the copy at this broker leads the queue's log: larger with each leader."),
)  # fmt: skip

BROKERS: Final[tuple[Quantity, ...]] = (
    _gauge("info", "", "1; version of the package, of Python and of Ray.", "version", "python", "ray"),
    _gauge("start_time_seconds", "seconds", "When the broker started, since 1970."),
    _gauge("clock_seconds", "seconds", "The broker's clock when it was asked, since 1970."),
    _gauge("destinations", "", "Destinations; type: queue or topic.", "type"),
    _gauge("hosts", "", "Hosts of destinations; hosting: dedicated, shared, broker, or spare for one without any yet.",
           "hosting"),
    _gauge("unreachable_hosts", "", "Hosts that did not answer the last time they were asked."),
    _counter("host_restarts_total", "", "Processes of hosts that ended and were followed by another one."),
    # ---- connections
    _gauge("connections", "", "Open connections of clients to hosts."),
    _counter("connections_opened_total", "", "Connections opened."),
    _counter("connections_refused_total", "", "Connections refused: too many, or not authenticated."),
    _gauge("congested_connections", "", "Connections whose client does not read what is sent to it."),
    _gauge("held_connections", "", "Connections that are not read because the store is behind."),
    _counter("packets_in_total", "", "Frames received, messages and control."),
    _counter("packets_out_total", "", "Frames sent, messages and control."),
    _counter("packet_in_bytes_total", "bytes", "Bytes received on data sockets."),
    _counter("packet_out_bytes_total", "bytes", "Bytes sent on data sockets."),
    _counter("spin_seconds_total", "seconds",
             "Time for which hosts looked for the next frame of a lone sender before they slept: raybroker.spin."),
    _counter("spins_total", "", "How often they did."),
    _counter("paid_spins_total", "", "How often the frame came meanwhile."),
    _histogram("round_trip_seconds", "seconds", h.SECONDS, "Round trips to clients: a ping every five seconds."),
    _counter("routed_messages_total", "messages",
             "Messages handed to consumers by the home broker of the consumer; consumer_broker: a broker of the "
             "cluster, or empty when it is not known.", "consumer_broker"),
    # ---- AMQP, of brokers with that service
    _gauge("amqp_connections", "", "Connections of AMQP clients that are open."),
    _gauge("amqp_links", "", "Links of AMQP clients; direction: in for those on which they send, or out.", "direction"),
    _gauge("amqp_links_without_credit", "",
           "Links over which nothing may go now: in, their destination is full; out, the client grants nothing.",
           "direction"),
    _gauge("amqp_unsettled_messages", "messages",
           "Messages that went over links and are not settled: in, not stored yet; out, with the client.", "direction"),
    _counter("amqp_transfers_total", "messages", "Messages that went over links.", "direction"),
    _counter("amqp_rejected_total", "",
             "Messages and links that were refused; condition: the error that the client was told, or other.",
             "condition"),
    # ---- transactions
    _gauge("transactions", "", "Transactions that have not ended; state: open or prepared.", "state"),
    _counter("transactions_committed_total", "", "Transactions committed."),
    _counter("transactions_rolled_back_total", "", "Transactions rolled back."),
    # ---- store
    _gauge("store_reserved_bytes", "bytes", "Disk space that the stores occupy."),
    _gauge("store_used_bytes", "bytes", "Part of the reserved space that was written."),
    _gauge("store_live_bytes", "bytes", "Part of the written space that is still needed."),
    _gauge("store_segments", "", "Segments of the journals that hold something."),
    _counter("store_compression_saved_bytes_total", "bytes",
             "Bytes that the stores did not get because of raybroker.store.message_compression_enabled."),
    _counter("fsyncs_total", "", "Syncs to disk."),
    _counter("fsync_seconds_total", "seconds", "Time that syncs took."),
    _gauge("fsync_max_seconds", "seconds", "Longest sync since the host started.", merge="max"),
    _histogram("commit_seconds", "seconds", h.SECONDS, "Time of one group commit: write and sync."),
    _histogram("commit_bytes", "bytes", h.BATCH_BYTES, "Bytes of one group commit."),
    _histogram("commit_batches", "", h.BATCH, "Batches that became durable with one commit."),
    _gauge("commit_pending_bytes", "bytes", "What waits to become durable."),
    _gauge("store_slow", "",
           "Hosts whose disk is slow: one of a hundred commits of the last minute took longer than 100 ms."),
    _gauge("disk_low", "",
           "Hosts whose disk is nearly full (raybroker.store.low_free_percent, raybroker.store.low_free_bytes)."),
    _gauge("disk_free_bytes", "bytes", "Free space on the disk of the stores; of several disks the largest.",
           merge="max"),
    _gauge("store_overloaded", "", "Hosts that read nothing more from producers until the disk has caught up."),
    # ---- memory and processes
    _gauge("block_cache_bytes", "bytes", "Bodies of persistent messages kept in memory."),
    _gauge("block_cache_limit_bytes", "bytes", "Bodies of persistent messages that may be kept in memory."),
    _counter("blocks_read_back_total", "", "Blocks that were read from the store to be delivered."),
    _gauge("system_messages", "messages", "Messages that count for imq.system.max_count, while the broker has limits."),
    _gauge("system_message_bytes", "bytes", "Bytes that count for imq.system.max_size, while the broker has limits."),
    _gauge("system_limit_messages", "messages", "imq.system.max_count, where it is set.", merge="max"),
    _gauge("system_limit_bytes", "bytes", "imq.system.max_size, where it is set.", merge="max"),
    _gauge("system_over_threshold", "",
           "1 while the broker is over raybroker.system.messagesThresholdHigh or bytesThresholdHigh; of: messages or "
           "bytes.", "of"),
    _gauge("blocked_sends", "", "Blocks of messages whose senders wait for room within the broker's limits."),
    _counter("system_refused_messages_total", "messages", "Messages refused for lack of room within those limits."),
    _gauge("quota_messages", "messages", "Messages that count for a quota, of quotas that are in use.", "quota"),
    _gauge("quota_message_bytes", "bytes", "Bytes that count for a quota.", "quota"),
    _gauge("quota_limit_messages", "messages",
           "MessagesMaximum of a quota, where it is set; with Shared=false of each of its destinations.", "quota",
           merge="max"),
    _gauge("quota_limit_bytes", "bytes", "BytesMaximum of a quota, where it is set, likewise.", "quota", merge="max"),
    _gauge("quota_blocked_sends", "", "Blocks of messages whose senders wait for room within a quota.", "quota"),
    _counter("quota_refused_messages_total", "messages", "Messages refused for lack of room within a quota.", "quota"),
    _gauge("message_buffer_bytes", "bytes", "Bodies kept in memory of messages that are not stored."),
    _gauge("message_buffer_limit_bytes", "bytes", "Where bodies of messages that are not stored begin to be paged."),
    _gauge("paged_bytes", "bytes", "Bodies in paging files."),
    _gauge("reference_bytes", "bytes",
           "Bodies by reference of messages that are not stored, in the object store of Ray; those of others are in "
           "the store."),
    _gauge("paging_failing", "", "Hosts whose paging files cannot be written: bodies stay in memory."),
    _counter("paged_out_messages_total", "messages", "Messages whose bodies went to paging files."),
    _counter("paged_out_bytes_total", "bytes", "Bytes that went to paging files, before they were compressed."),
    _counter("paging_compression_saved_bytes_total", "bytes",
             "Bytes that paging files did not get because of raybroker.paging.message_compression_enabled."),
    _counter("paged_in_messages_total", "messages", "Messages whose bodies were read from paging files."),
    _counter("paged_in_bytes_total", "bytes", "Bytes that were read from paging files."),
    _gauge("process_resident_bytes", "bytes",
           "Resident memory, where pages that processes share count in each; memory_used_bytes is what counts against "
           "the limit; process: broker or host.", "process"),
    _counter("process_cpu_seconds_total", "seconds", "CPU time; process: broker or host.", "process"),
    _gauge("process_threads", "", "Threads; process: broker or host.", "process"),
    _gauge("process_open_files", "", "Open file descriptors; process: broker or host.", "process"),
    _gauge("memory_limit_bytes", "bytes",
           "Memory that the broker and its hosts may use: raybroker.memory.limit_bytes, or what the control group "
           "allows, or the machine has.", merge="max"),
    _gauge("memory_level", "",
           "Memory level: 0 green, 1 yellow, 2 orange, 3 red; process: broker, or host for the highest of its hosts.",
           "process", merge="max"),
    _gauge("memory_used_bytes", "bytes",
           "Memory that counts against the limit: resident, of the broker and its hosts; process: broker, or host for "
           "the largest figure that a host has.", "process", merge="max"),
    # ---- cluster
    _gauge("brokers", "", "Brokers as this one sees them; state: UP, SUSPECT or DOWN.", "state"),
    _gauge("master", "", "1 on the master broker."),
    _gauge("seat", "", "1 on the broker that decides about active and backup consumers."),
    _gauge("operating", "", "1 when the broker takes clients."),
    _counter("takeovers_total", "", "Lost brokers that this one took over, in a store that brokers share."),
    _counter("failed_takeovers_total", "", "Attempts at that which came to nothing; they are made again."),
    _gauge("shared_store_brokers", "",
           "Brokers by their state in the store that they share; state: OPERATING, TAKEOVER_STARTED and so on.",
           "state"),
    _gauge("copied_logs", "", "Logs of which this broker keeps a copy; state: led here, followed, or leaderless.",
           "state"),
    _gauge("copied_logs_short", "", "Logs that are led here and have too few copies there to confirm anything."),
    _gauge("copy_behind_entries", "",
           "Entries that another broker's copy lacks, the most of all logs that are led here; copy: that broker.",
           "copy", merge="max"),
    _counter("leader_changes_total", "", "How often this broker saw another copy lead than before, of all logs."),
    _gauge("drained", "", "1 while this broker is drained: it leads no log that another one can lead."),
    _gauge("drained_logs", "",
           "Logs that this broker leads and is drained; state: handing_over, or stuck where no other copy can lead.",
           "state"),
    _gauge("standby_processes", "",
           "Processes that stand by to become a lost broker; process: broker or host.", "process"),
    _counter("record_entries_total", "", "Entries of the configuration change record."),
    _gauge("path_units", "", "Units of order in the path service; member: their broker. Told by the seat alone.",
           "member"),
    _counter("path_requests_total", "", "Questions to the path service for clients of this broker."),
    # ---- the observers
    _counter("log_records_total", "", "Lines for the log; level: ERROR, WARNING or INFO.", "level"),
    _gauge("collection_seconds", "seconds", "Time that the last collection took."),
)  # fmt: skip

QUANTITIES: Final[dict[str, Quantity]] = {row.key: row for row in (*DESTINATIONS, *BROKERS)}


def _metrics() -> Iterator[Metric]:
    tiers: tuple[tuple[Tier, str, tuple[str, ...]], ...] = (
        ("aggregate", PREFIX, ("type",)),
        ("destination", DESTINATION_PREFIX, ("destination", "type")),
    )
    for tier, prefix, own in tiers:
        for q in QUANTITIES.values():
            if q.scope != ("only" if tier == "aggregate" else "broker"):
                labels = ("cluster", "broker", *(own if q.scope != "broker" else ()), *q.labels)
                yield Metric(prefix + q.key, q.kind, q.unit, labels, tier, q.help, q.buckets, q.key)


METRICS: Final[dict[str, Metric]] = {metric.name: metric for metric in _metrics()}
"""Metrics by name; the samples of a histogram append _bucket, _sum and _count to it."""
