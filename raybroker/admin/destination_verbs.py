"""Verbs of destinations and of what is in them: stores, consumers, subscriptions, schedules and messages."""
# mypy: disable-error-code="empty-body"

from __future__ import annotations

from raybroker.admin.verb import By, verb
from raybroker.admin.verb_types import (
    EXPORT_BYTES_MAX,
    Attributes,
    BlockPage,
    Blocks,
    BodyMax,
    ExportMax,
    Id,
    Ids,
    IfExists,
    MessagePage,
    Name,
    PageMax,
    Selector,
    Start,
    Text,
    Truth,
    Type,
    UntilMs,
    Version,
    Which,
)
from raybroker.model.listing import Listing, Row
from raybroker.model.naming.names import DEAD_MESSAGE_QUEUE


class DestinationVerbs:
    """Destinations, and what is in them."""

    # ---- destinations

    @verb(By.CLUSTER)
    def create_destination(
        self, /, type: Type, name: Name, *, if_exists: IfExists = "error", **attributes: Attributes
    ) -> str:
        """Create a destination with attributes such as consumerFlowLimit=20; "created", "kept" or "updated".

        if_exists  "error": raises InvalidDestinationError; "keep": it stays as it is, whatever ``attributes`` say;
                   "update": it gets these attributes
        Raises InvalidDestinationError (bad name, or it exists) or ConfigError (unknown attribute, value out of bounds,
        an attribute of the other type).
        """

    @verb(By.CLUSTER)
    def destroy_destination(self, /, type: Type, name: Name) -> None:
        """Remove a destination and its messages.

        Raises IllegalStateError for mq.sys.dmq and for temporary destinations, which go with their connection.
        """

    @verb(By.CLUSTER)
    def adopt_destination(self, /, type: Type, name: Name) -> None:
        """Put a destination in state ORPHANED into the cluster's record again, with its messages: one that was created
        after the backup that was restored. A queue with copies is not listed before; its log has its attributes.

        Raises IllegalStateError for one that is not orphaned, or of whose copies no majority is at brokers that are up,
        RequestTimeoutError where no copy leads in time: ask again. :meth:`destroy_destination` drops it instead.
        """

    @verb(By.CLUSTER)
    def update_destination(self, /, type: Type, name: Name, **changes: Attributes) -> None:
        """Change attributes, all or none; raises ConfigError for one that is fixed at creation.

        ``replicas`` and ``minInSync`` are changed step by step, while the queue is used: what is left to be done is
        ``changing`` in ``replication`` of :meth:`query_destination`.
        """

    @verb(By.CLUSTER)
    def list_destinations(self, /, type: Type | None = None, *, temporary: Truth = False) -> Listing:
        """One row a destination, by name, as :meth:`query_destination` gives it; ``temporary``: also those.

        Destinations that are known by name, and whose host cannot be asked now, have state UNKNOWN.
        """

    @verb(By.CLUSTER)
    def query_destination(self, /, type: Type, name: Name) -> Row:
        """Attributes, state and counts: messages, bytes, waiting, unacknowledged, producers, active_consumers, …

        ``attributes`` are the destination's own, ``effective`` what holds with its ``policy`` and ``operator_policy``;
        ``origins`` says of each value that is not the default where it comes from: "destination", "policy NAME" or
        "operator policy NAME".

        Counts that only grow are since ``counted_since_ms``, milliseconds since 1970: when the destination was made, or
        :meth:`reset_destination`. They go on when the host comes back after a crash: what is stored is counted up to
        that; what leaves no record, as non-persistent messages, refusals and redeliveries, up to the last checkpoint of
        the store before it.  Peaks, ``total_consumers`` and the times are since the host started, or the reset.
        ``over_threshold`` names what is over its threshold, "messages" or "bytes", and
        ``messages_threshold_ms`` and ``bytes_threshold_ms`` say for how long it was in all.  ``slowed_producers`` are
        those that were told to send more slowly because of it.

        A queue with versionKey has ``version``, the one that is published, or None, ``stale``, how many messages were
        found stale since the host started, and ``starved_ms``, for how long a consumer that has nothing has waited for
        a message, once that is longer than starvationTime; 0 until then.
        """

    @verb(By.EACH, host="destinations.purge")
    def purge_destination(self, /, type: Type, name: Name) -> None:
        """Discard the messages that no consumer holds."""

    @verb(By.CLUSTER)
    def pause_destination(
        self, /, type: Type | None = None, name: Name | None = None, which: Which = "all", *, until_ms: UntilMs = 0
    ) -> int:
        """Pause one destination, or all (of a type) but mq.sys.dmq without a name; how many were.

        which     "producers": they are refused; "consumers": nothing is delivered; "all": both; "insertion": what is
                  under way arrives and is not seen until insertion resumes
        until_ms  milliseconds since 1970 at which it resumes by itself; 0: when resumed
        """

    @verb(By.CLUSTER)
    def resume_destination(self, /, type: Type | None = None, name: Name | None = None, which: Which = "all") -> int:
        """Undo :meth:`pause_destination`; how many destinations were resumed."""

    @verb(By.EACH, host="destinations.publish_version")
    def publish_version(self, /, type: Type, name: Name, version: Version, *, back: Truth = False) -> None:
        """Say the current version of a queue with versionKey: what is further behind it than maxStaleness is stale from
        now on, and stalenessPolicy says what becomes of that. It is on disk when this returns. Of a version that is
        published already nothing comes.

        back  it may be lower than the one before, for training that goes on from an older state
        A broker that is not up keeps its version until the next one is published. Raises IllegalStateError for a lower
        version without ``back``, and for a destination without versionKey.
        """

    @verb(By.LARGEST)
    def reset_destination(self, /, type: Type | None = None, name: Name | None = None) -> int:
        """Count from zero what :meth:`query_destination` shows of one destination, or of all (of a type): messages in
        and out, refused, expired, …, peaks, consumers in all and the time over thresholds; how many.

        Metrics, and messages of ``mq.metrics``, count on from the start of the broker.
        """

    @verb(By.CLUSTER)
    def replace_replica(self, /, type: Type, name: Name, old: Text, *, to: Text | None = None) -> Row:
        """Have another broker keep the copy of a queue that broker ``old`` keeps, which may be gone for good. Answers
        with ``to`` when that is begun; ``changing`` in ``replication`` of :meth:`query_destination` says how far it is.

        to  the broker that gets it, on a node that has none; without it the first by name
        Where the old copy leads, another one leads first. Raises ConfigError where nobody can keep it or ``old`` keeps
        none, ConnectionLostError while no copy leads.
        """

    # ---- stores

    @verb(By.ROWS)
    def query_store(self, /) -> Listing:
        """One row a store, which is a host's: host, hosting, reserved_bytes (its files), used_bytes (what is written in
        them), live_bytes (of messages that are there), garbage_bytes, ratio (live in percent of used),
        advice, segments, large_files and large_bytes (messages in files of their own), free_files and free_bytes (files
        kept for such messages), compressed_blocks and compression_saved_bytes (what
        raybroker.store.message_compression_enabled has done since the host started), not_compressed_because (why it
        does nothing for a store in a database; "" otherwise), and ``destinations``: type, name, blocks and bytes of
        each, the largest first.
        """

    @verb(By.ROWS)
    def compact_destination(self, /, type: Type | None = None, name: Name | None = None) -> Listing:
        """Have the stores of one destination, or of all (of a type), give back what they can at once, which otherwise
        happens by and by.  One row a store, as :meth:`query_store` without destinations, with ``freed_bytes``,
        ``garbage_before``, and ``done``: False when it takes longer than 10 s, and goes on by itself.

        A store has all destinations of its host, and is compacted as a whole.  Raises IllegalStateError unless the
        destinations that are meant are paused, producers and consumers.
        """

    # ---- consumers and subscriptions

    @verb(By.CLUSTER)
    def list_consumers(self, /, destination: Name | None = None, type: Type | None = None) -> Listing:
        """One row a consumer: id, destination, active, flow, limit, granted, unacknowledged, sent.

        Of one destination, of two with that name the queue, or of all (of a type); ``tuned``: it chooses its limit;
        ``leaving``: its node is drained; ``labels``: what it has at hand, inside Ray also its node.
        """

    @verb(By.FIRST)
    def query_consumer(self, /, id: Id) -> Row:
        """One consumer by id: the number that one of the brokers gave it, the home broker's first."""

    @verb(By.CLUSTER)
    def list_subscriptions(self, /, topic: Name | None = None) -> Listing:
        """One row a subscription, of one topic or of all: topic, client_id, name, durable, shared, selector, no_local,
        active, messages, consumers."""

    @verb(By.CLUSTER)
    def create_subscription(
        self,
        /,
        name: Name,
        topic: Name,
        *,
        client_id: Text | None = None,
        shared: Truth = False,
        selector: Selector = None,
        no_local: Truth = False,
    ) -> None:
        """Make a durable subscription that nobody has opened yet, from now on with the messages of its topic.

        A topic that does not exist is created as when a client opens it. Raises InvalidDestinationError for a bad name,
        one that exists, and a topic that is not there, InvalidSelectorError.
        """

    @verb(By.CLUSTER)
    def destroy_subscription(self, /, name: Name, client_id: Text | None = None, topic: Name | None = None) -> None:
        """End a durable subscription with its messages; raises IllegalStateError while it has consumers."""

    @verb(By.EACH)
    def purge_subscription(self, /, name: Name, client_id: Text | None = None, topic: Name | None = None) -> None:
        """Discard the messages that wait for a durable subscription."""

    # ---- schedules

    @verb(By.ROWS)
    def list_schedules(self, /, destination: Name | None = None, type: Type | None = None) -> Listing:
        """One row a recurring schedule, those that come next first: id, type, destination, schedule, timezone, repeat,
        catch_up, fired, last_ms, next_ms, state (ACTIVE, WAITING for a destination that does not take it, HALTED),
        reason, …"""

    @verb(By.FIRST)
    def query_schedule(self, /, id: Id) -> Row:
        """One schedule by the id that ``send`` returned; raises InvalidDestinationError when there is none."""

    @verb(By.FIRST)
    def destroy_schedule(self, /, id: Id) -> None:
        """End a schedule; what it has sent stays. Raises InvalidDestinationError when there is none of that id."""

    # ---- messages

    @verb(By.PAGES, host="messages.browse")
    def browse_messages(
        self,
        /,
        type: Type,
        name: Name,
        selector: Selector = None,
        *,
        start: Start = None,
        max: PageMax = 100,
        body_bytes_max: BodyMax = 1024,
    ) -> MessagePage:
        """One page of messages, oldest first; nothing is taken. It ends earlier than ``max`` says after some megabytes.

        A row has id, timestamp, expiration, priority, persistent, type, correlation_id, reply_to, properties,
        delivery_count, size, body (cut to ``body_bytes_max``) and state: waiting, delayed, delivered, or hidden while
        insertion is paused.
        """

    @verb(By.TOTAL, host="messages.delete")
    def delete_messages(self, /, type: Type, name: Name, selector: Selector = None, ids: Ids = None) -> int:
        """Delete what the selector and the ids name, all without either; how many.

        Raises IllegalStateError unless consumers are paused or it is mq.sys.dmq.
        """

    @verb(By.TOTAL)
    def move_messages(
        self,
        /,
        type: Type,
        name: Name,
        target: Name,
        target_type: Type | None = None,
        selector: Selector = None,
        ids: Ids = None,
    ) -> int:
        """Move messages to another destination, by default of the same type, with their ids; how many.

        They keep their count of deliveries: what was delivered before comes with ``redelivered`` True. The target is
        filled up to its limits, under FLOW_CONTROL as under REJECT_NEWEST; where it removes, by REMOVE_OLDEST or
        REMOVE_LOW_PRIORITY, it takes all of them and removes what is too much. Not one step: a failure in between
        leaves duplicates, never a loss. Raises as :meth:`delete_messages`, and ResourceAllocationError when the target
        does not take all of them: it says how many were moved, and why the others stay.
        """

    @verb(By.TOTAL)
    def retry_messages(
        self, /, type: Type = "queue", name: Name = DEAD_MESSAGE_QUEUE, selector: Selector = None, ids: Ids = None
    ) -> int:
        """Send dead messages back to where each died, as new messages; how many.

        One that died in a subscription of a topic goes back to that alone. One whose destination or subscription is
        gone, or whose subscription does not select it any more, stays and does not count; the broker logs that.
        Messages that were delivered before come with ``redelivered`` True: ``delivery_count`` goes on, while failures
        are counted anew for redeliveryLimit. They have their unit of order and their expiration again. Limits count as
        for :meth:`move_messages`, and raise as there.
        """

    @verb(By.TOTAL, host="damaged.skip")
    def skip_messages(self, /, type: Type, name: Name) -> int:
        """Skip what is damaged in a halted destination, so that what is behind it is delivered; how many messages.

        What can still be read of each damaged block goes to mq.sys.dmq as a record, with properties that begin with
        ``RAYBROKER_QUARANTINE``. ``query_destination(…)["damaged"]`` names the damaged messages beforehand. Raises
        ResourceAllocationError when mq.sys.dmq is full.
        """

    @verb(By.PAGES, host="messages.export")
    def export_messages(
        self,
        /,
        type: Type,
        name: Name,
        selector: Selector = None,
        *,
        start: Start = None,
        max_bytes: ExportMax = EXPORT_BYTES_MAX,
    ) -> BlockPage:
        """One page of copies of messages."""

    @verb(By.BROKER)
    def import_messages(self, /, type: Type, name: Name, blocks: Blocks) -> int:
        """Put exported messages into a destination, with their ids; how many.

        All of them or none: ResourceAllocationError when they do not fit within the destination's limits, under
        FLOW_CONTROL as under REJECT_NEWEST; where it removes it takes them and removes what is too much. What was
        delivered before it was exported comes with ``redelivered`` True. SecurityError for metrics topics.
        """
