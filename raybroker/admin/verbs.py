"""The table of verbs.  Types of destinations are "queue" and "topic", or "q" and "t".

All verbs raise the errors of ``raybroker.errors``: InvalidDestinationError for what does not exist, ConfigError for
arguments that cannot be right.  A row is a dict of plain values.  A ``Listing`` is a list of rows with an attribute
``missing``: hosts and brokers that cannot be asked now → why; it is empty when the list is whole.
"""
# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from raybroker.admin.verb import By, declared_in, verb
from raybroker.admin.verb_types import (
    EXPORT_BYTES_MAX,
    ApplyTo,
    Attributes,
    BlockPage,
    Blocks,
    BodyMax,
    Definitions,
    ExportMax,
    Id,
    Ids,
    IfExists,
    MasterChange,
    MessagePage,
    Name,
    NamePattern,
    Names,
    PageMax,
    Pattern,
    Priority,
    Properties,
    PropertyChange,
    Reason,
    Seconds,
    Selector,
    Start,
    Text,
    Thresholds,
    Truth,
    Type,
    UntilMs,
    Which,
)
from raybroker.model.listing import Listing, Row
from raybroker.model.names import DEAD_MESSAGE_QUEUE


class AdminVerbs:
    """What ``conn.admin()`` can do."""

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
        after the backup that was restored.

        Raises IllegalStateError for one that is not orphaned; :meth:`destroy_destination` drops it instead.
        """

    @verb(By.CLUSTER)
    def update_destination(self, /, type: Type, name: Name, **changes: Attributes) -> None:
        """Change attributes, all or none; raises ConfigError for one that is fixed at creation."""

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

        Counts that only grow, and peaks, are since ``counted_since_ms``, milliseconds since 1970: the start of the host
        or :meth:`reset_destination`.  ``over_threshold`` names what is over its threshold, "messages" or "bytes", and
        ``messages_threshold_ms`` and ``bytes_threshold_ms`` say for how long it was in all.  ``slowed_producers`` are
        those that were told to send more slowly because of it.
        """

    @verb(By.EACH, host=True)
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

    @verb(By.LARGEST)
    def reset_destination(self, /, type: Type | None = None, name: Name | None = None) -> int:
        """Count from zero what :meth:`query_destination` shows of one destination, or of all (of a type): messages in
        and out, refused, expired, …, peaks, consumers in all and the time over thresholds; how many.

        Metrics, and messages of ``mq.metrics``, count on from the start of the broker.
        """

    # ---- stores

    @verb(By.ROWS)
    def query_store(self, /) -> Listing:
        """One row a store, which is a host's: host, hosting, reserved_bytes (its files), used_bytes (what is written in
        them), live_bytes (of messages that are there), garbage_bytes, ratio (live in percent of used),
        advice, segments, large_files and large_bytes (messages in files of their own), free_files and free_bytes (files
        kept for such messages), compressed_blocks and compression_saved_bytes (what
        raybroker.store.message_compression_enabled has done since the host started), and ``destinations``: type, name,
        blocks and bytes of each, the largest first.
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

        Of one destination, of two with that name the queue, or of all (of a type).
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
        self, /, name: Name, topic: Name, *, client_id: Text | None = None, shared: Truth = False,
        selector: Selector = None, no_local: Truth = False,
    ) -> None:  # fmt: skip
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

    # ---- transactions

    @verb(By.ROWS)
    def list_transactions(self, /) -> Listing:
        """One row a transaction and host: id, host, kind (local, xa), state, messages, acks, created_ms, …"""

    @verb(By.FIRST)
    def query_transaction(self, /, id: Id) -> Row:
        """One transaction by id, or by "host:id" where several hosts have that id.

        Raises InvalidDestinationError when there is none, IllegalStateError when there are several.
        """

    @verb(By.FIRST)
    def commit_transaction(self, /, id: Id) -> None:
        """Commit a PREPARED transaction; raises IllegalStateError naming the state it is in otherwise.

        An XA branch is HEURISTICALLY_COMMITTED then, and listed until its manager calls ``xa.forget``.
        """

    @verb(By.FIRST)
    def rollback_transaction(self, /, id: Id) -> None:
        """Roll a transaction back that has not ended, PREPARED or not.

        A prepared XA branch is HEURISTICALLY_ROLLED_BACK then, and listed until its manager calls ``xa.forget``.
        Raises InvalidDestinationError when there is none of that id.
        """

    # ---- brokers

    @verb(By.CLUSTER, always=True)
    def list_brokers(self, /) -> list[Row]:
        """One row a broker: broker, state (UP, SUSPECT, JOINING, DOWN, LEFT), coordinator, master, node, and how far
        its copy of the record goes."""

    @verb(By.CLUSTER, always=True)
    def query_cluster(self, /) -> Row:
        """The cluster as the home broker sees it: state, master, term, brokers, and its copy of the record."""

    @verb(By.CLUSTER)
    def reload_cluster(self, /, brokers: Names) -> list[str]:
        """Make these the brokers of the cluster, on all that are up; which those were.

        Raises ConfigError when a broker that is up is not among them: stop it first.
        """

    @verb(By.CLUSTER)
    def change_master(self, /, target: Name) -> MasterChange:
        """Move the configuration change record to another broker, while brokers run.

        A broker that is not the master passes it on to the master; raises BrokerGoneError when that cannot be asked.
        """

    @verb(By.CLUSTER)
    def backup_record(self, /) -> bytes:
        """The configuration change record as the bytes of a backup file."""

    @verb(By.BROKER)
    def query_broker(self, /) -> Row:
        """The broker: its name, state (RUNNING, STOPPING, RESTARTING), when it was started; its hosts: destinations,
        connections, messages, bytes, store; ``changed``: the properties that :meth:`update_broker` has changed, and
        their values."""

    @verb(By.CLUSTER, always=True)
    def shutdown_broker(self, /, broker: Text | None = None, time_s: Seconds = 0) -> Row:
        """Shut a broker down, without a name the one that is asked; answers at once, and :meth:`list_brokers` shows
        later that it is down. What it has stored comes back when it is started again.

        Its services take no new clients from now on, but those for administration; handles inside the Ray cluster have
        no connection to a broker, and go on. After ``time_s`` seconds producers are told to wait, consumers have
        raybroker.shutdown.delivery seconds to acknowledge what they were given, and the broker ends. A second request
        in the time before takes the place of the first.

        Raises BrokerGoneError for a broker that is not up, and NotSupportedError for one of ``rb.loopback``.
        """

    @verb(By.CLUSTER, always=True)
    def restart_broker(self, /, broker: Text | None = None, time_s: Seconds = 0) -> Row:
        """Shut a broker down as :meth:`shutdown_broker`, and have it started again at once, on the same node, with the
        options that it was started with and what :meth:`update_broker` has changed since."""

    @verb(By.CLUSTER, always=True)
    def update_broker(self, /, properties: Properties, broker: Text | None = None) -> PropertyChange:
        """Change properties of a broker, or of all that are up, while they run: at once, all or none, and for its next
        starts too, until the configuration itself says something else than it does now.

        What can change are those whose setting says so: imq.log.level, imq.log.file.rolloverbytes and .rolloversecs,
        imq.autocreate.queue and .topic, imq.message.max_size, imq.destination.logDeadMsgs and some more.  Raises
        ConfigError for a property that is read at the start only, does not exist, does not take the value, or has to
        be the same on all brokers when one is named; BrokerGoneError when that one is not up.
        """

    # ---- metrics

    @verb(By.ROWS)
    def metrics(self, /, names: Pattern | None = None) -> Listing:
        """What was counted: one dict a broker with cluster, broker, ``own`` (of the broker), ``types`` (sums over
        queues and over topics) and ``destinations`` (those whose name matches ``names``; * for any text, none without).

        Keys are those of raybroker.metrics.catalogue; a histogram is (observations by bucket, sum).
        """

    # ---- messages

    @verb(By.PAGES, host=True)
    def browse_messages(
        self, /, type: Type, name: Name, selector: Selector = None, *, start: Start = None, max: PageMax = 100,
        body_bytes_max: BodyMax = 1024,
    ) -> MessagePage:  # fmt: skip
        """One page of messages, oldest first; nothing is taken.

        A row has id, timestamp, expiration, priority, persistent, type, correlation_id, reply_to, properties,
        delivery_count, size, body (cut to ``body_bytes_max``) and state: waiting, delayed, delivered, or hidden while
        insertion is paused.
        """

    @verb(By.TOTAL, host=True)
    def delete_messages(self, /, type: Type, name: Name, selector: Selector = None, ids: Ids = None) -> int:
        """Delete what the selector and the ids name, all without either; how many.

        Raises IllegalStateError unless consumers are paused or it is mq.sys.dmq.
        """

    @verb(By.TOTAL)
    def move_messages(
        self, /, type: Type, name: Name, target: Name, target_type: Type | None = None, selector: Selector = None,
        ids: Ids = None,
    ) -> int:  # fmt: skip
        """Move messages to another destination, by default of the same type, with their ids; how many.

        Not one step: a failure in between leaves duplicates, never a loss. Raises as :meth:`delete_messages`.
        """

    @verb(By.TOTAL)
    def retry_messages(
        self, /, type: Type = "queue", name: Name = DEAD_MESSAGE_QUEUE, selector: Selector = None, ids: Ids = None
    ) -> int:
        """Send dead messages back to where each died, as new messages; how many.

        One that died in a subscription of a topic goes back to that alone. One whose destination or subscription is
        gone, or whose subscription does not select it any more, stays and does not count; the broker logs that.
        Messages that were delivered before come with ``redelivered`` True: ``delivery_count`` goes on, while failures
        are counted anew for redeliveryLimit. They have their unit of order and their expiration again.
        """

    @verb(By.TOTAL, host=True)
    def skip_messages(self, /, type: Type, name: Name) -> int:
        """Skip what is damaged in a halted destination, so that what is behind it is delivered; how many messages.

        What can still be read of each damaged block goes to mq.sys.dmq as a record, with properties that begin with
        ``RAYBROKER_QUARANTINE``. ``query_destination(…)["damaged"]`` names the damaged messages beforehand. Raises
        ResourceAllocationError when mq.sys.dmq is full.
        """

    @verb(By.PAGES, host=True)
    def export_messages(
        self, /, type: Type, name: Name, selector: Selector = None, *, start: Start = None,
        max_bytes: ExportMax = EXPORT_BYTES_MAX,
    ) -> BlockPage:  # fmt: skip
        """One page of copies of messages."""

    @verb(By.BROKER)
    def import_messages(self, /, type: Type, name: Name, blocks: Blocks) -> int:
        """Put exported messages into a destination, with their ids; how many. SecurityError for metrics topics."""

    # ---- templates

    @verb(By.CLUSTER)
    def create_template(self, /, name: Name, **attributes: Attributes) -> None:
        """A named set of destination attributes; a destination created with template=name takes from it what it is not
        given itself. Raises ConfigError for a bad name, one that exists, an unknown attribute or a bad value."""

    @verb(By.CLUSTER)
    def update_template(self, /, name: Name, **changes: Attributes) -> int:
        """Change a template, and every destination of it that still has the old value; how many destinations."""

    @verb(By.CLUSTER)
    def destroy_template(self, /, name: Name) -> None:
        """Remove a template; destinations keep what they took from it. Raises ConfigError when there is none."""

    @verb(By.BROKER)
    def list_templates(self, /) -> list[Row]:
        """One row a template, by name: name and attributes."""

    # ---- quotas

    @verb(By.CLUSTER)
    def create_quota(self, /, name: Name, **attributes: Attributes) -> None:
        """Named limits for what destinations hold, which refer to it by their attribute ``quota``.

        Attributes are MessagesMaximum and BytesMaximum (-1: no limit), Policy ("FIFO", "Preemptive": who goes first of
        the senders that wait for room) and Shared (True: its destinations have the limits together, False: each has
        them alone). They hold on each broker. Raises ConfigError for a bad name, one that exists, an unknown attribute
        or a bad value.
        """

    @verb(By.CLUSTER)
    def update_quota(self, /, name: Name, **changes: Attributes) -> None:
        """Change a quota; senders that wait for room go on waiting, and what is held stays. ConfigError as of
        :meth:`create_quota`, for a change of Shared, and for a limit below a threshold of a destination."""

    @verb(By.CLUSTER)
    def destroy_quota(self, /, name: Name) -> None:
        """Raises IllegalStateError naming destinations or templates that refer to it, ConfigError when there is
        none."""

    @verb(By.BROKER)
    def list_quotas(self, /) -> list[Row]:
        """One row a quota, by name: name and attributes."""

    @verb(By.CLUSTER)
    def query_quota(self, /, name: Name) -> Row:
        """One quota: name, attributes, users (the destinations and templates that refer to it), messages, bytes,
        waiting (blocks of messages whose senders wait for room) and refused (messages), on all brokers that are up; and
        pools: a row for each part of the limits with broker, those counts and its destinations.

        Raises ConfigError when there is none, ConnectionLostError when a host cannot be asked.
        """

    # ---- policies

    @verb(By.CLUSTER)
    def create_policy(
        self, /, name: Name, pattern: NamePattern, *, apply_to: ApplyTo = "all", priority: Priority = 0,
        operator: Truth = False, **attributes: Attributes,
    ) -> None:  # fmt: skip
        """Attributes that hold for every destination whose name matches, now and when it is created later.

        pattern   as of topics: * is one segment of a name, ** one or more, > any number, such as "orders>"
        apply_to  "queue", "topic" or "all"
        priority  of the policies that match a destination the highest holds, as a whole
        operator  False: fills in what a destination does not set itself; True: an upper bound for limits, and stands
                  above the destination in everything else
        Raises ConfigError for a bad name or pattern, one that exists, an unknown attribute or a bad value, attributes
        that contradict each other, and those that cannot change while a destination is used. See model.policy.
        """

    @verb(By.CLUSTER)
    def update_policy(
        self, /, name: Name, *, pattern: NamePattern | None = None, apply_to: ApplyTo | None = None,
        priority: Priority | None = None, operator: Truth | None = None, unset: Names = (), **changes: Attributes,
    ) -> None:  # fmt: skip
        """Change a policy, all or nothing; ``unset``: attributes that it has no more. It holds so for destinations at
        once. ConfigError as of :meth:`create_policy`."""

    @verb(By.CLUSTER)
    def destroy_policy(self, /, name: Name) -> None:
        """Remove a policy; what it said holds no more, at once. Raises ConfigError when there is none."""

    @verb(By.BROKER)
    def list_policies(self, /) -> list[Row]:
        """One row a policy, those of operators first and then by priority: name, pattern, applyTo, priority, operator,
        attributes and conflicts (policies of the same kind and priority that match the same names → such a name)."""

    @verb(By.BROKER)
    def query_policy(self, /, name: Name) -> Row:
        """One policy as in :meth:`list_policies`, and destinations: those for which it holds. Raises ConfigError when
        there is none."""

    # ---- forwarding agents

    @verb(By.CLUSTER)
    def create_forwarding(self, /, name: Name, queue: Text, to: Text, **attributes: Attributes) -> None:
        """Have the messages of a queue forwarded to a queue of another cluster of this Ray: ``to="cluster/queue"``.

        Attributes are qos ("Exactly-once", "At-least-once", "At-most-once"), windowSize, windowInterval,
        acknowledgeInterval, conversationIdleTimeMaximum, retryDelayBase, retryDelayMaximum, retryDelayMultiplier,
        errorPolicy ("Discard", "Log", "Redirect", "Always-forward"), errorDestination and timeToLive; see
        raybroker.model.forwarding. Raises ConfigError for one that is wrong, and when there is an agent of that name.
        """

    @verb(By.CLUSTER)
    def destroy_forwarding(self, /, name: Name) -> None:
        """End an agent; what it has not forwarded stays in its queue. InvalidDestinationError when there is none."""

    @verb(By.CLUSTER)
    def list_forwardings(self, /) -> list[Row]:
        """One row an agent, by name: its attributes, state (STARTING, CONNECTING, RUNNING, IDLE, RETRYING), counts and
        last error."""

    @verb(By.CLUSTER)
    def query_forwarding(self, /, name: Name) -> Row:
        """One agent; raises InvalidDestinationError when there is none of that name."""

    # ---- definitions

    @verb(By.CLUSTER)
    def export_definitions(self, /) -> Row:
        """Everything that administrators have made, as plain values for a file: properties, quotas, templates,
        policies, queues, topics, subscriptions (durable ones) and agents (forwarding), with the attributes that are
        not the default; see raybroker.model.definitions. Properties, and destinations with isLocalOnly, are those of
        the broker that is asked. Raises ConnectionLostError when a host cannot be asked what it has."""

    @verb(By.CLUSTER)
    def import_definitions(
        self, /, definitions: Definitions, *, dry_run: Truth = False, prune: Truth = False, keep_going: Truth = False
    ) -> Row:
        """Create and change what differs from the definitions: {"steps", "same", "left", "complete", "more"}.

        dry_run     change nothing; the steps are those that would be tried
        prune       destroy what is not among the definitions; without it that stays, and ``left`` names it
        keep_going  go on after a step that fails; without it the steps after it are not tried
        steps       rows of action (create, update, destroy), kind, name, changes (attribute → {"old", "new"}), state
                    and reason. States: planned, done, failed, unknown (an answer was lost), not done, and blocked: it
                    cannot be done at all, and then nothing is tried unless ``keep_going``
        same        how many entries were as wanted
        complete    whether there is now what the definitions want, or would be; look at it: a step that fails raises
                    nothing
        more        True: the time of one call was over; call again, and it goes on

        What is as wanted is left alone, so that a call may be repeated. Raises ConfigError for what is no definitions,
        are of a newer version or contradict each other, IllegalStateError while another import is under way.
        """

    # ---- connection services

    @verb(By.ROWS, always=True)
    def list_services(self, /) -> Listing:
        """One row a connection service and broker, and one for the port mapper: service, kind (NORMAL, ADMIN,
        PORTMAPPER), protocol, port, state (RUNNING, PAUSED, QUIESCED, UNKNOWN for one that is not active), connections,
        connections_max, accepted, refused; and what connections of its clients carried since the hosts were started:
        messages_in, messages_out, message_bytes_in, packets_in, packet_bytes_in and so on."""

    @verb(By.EACH, always=True)
    def pause_service(self, /, name: Name) -> None:
        """New clients of a service get an error, and nothing of the others is processed until :meth:`resume_service`.

        Raises ConfigError for a service that is not active, and for those of kind ADMIN.
        """

    @verb(By.EACH, always=True)
    def quiesce_service(self, /, name: Name) -> None:
        """New clients of a service get an error, the others go on. Raises ConfigError for one that is not active."""

    @verb(By.EACH, always=True)
    def resume_service(self, /, name: Name) -> None:
        """A paused or quiesced service takes clients again. Raises ConfigError for one that is not active."""

    @verb(By.EACH, always=True)
    def update_service(self, /, name: Name, broker: Name | None = None, **changes: Attributes) -> None:
        """Change a service of one broker, or of all that have it, until the broker is restarted; nobody is closed.

        minThreads, maxThreads  half of the latter bounds its clients
        port                    where it listens, 0 for any free port: first there, and then at the old port no more;
                                the port mapper tells it from then on
        Raises ConfigError for other attributes, values out of bounds, and a port that is taken, and changes nothing of
        that broker then; InvalidDestinationError where no broker of that name has services.
        """

    @verb(By.ROWS, always=True)
    def list_connections(
        self, /, service: Name | None = None, *, user: Text | None = None, address: Text | None = None,
        client_id: Text | None = None, destination: Name | None = None, type: Type | None = None,
        consumer: Id | None = None,
    ) -> Listing:  # fmt: skip
        """One row a client of the services: id, user, service, host, producers, consumers, client_id, platform,
        ``destinations`` and ``consumer_ids`` (what it has producers and consumers of), and what its open connections to
        hosts carried, as in :meth:`list_services`.

        Only those that all of the other arguments fit: ``address`` is one, or a network such as 10.0.0.0/8;
        ``destination``: the client has a producer or a consumer of it (of that ``type``); ``consumer``: the client has
        that consumer, by the id that :meth:`list_consumers` shows.  Raises ConfigError for what is no address.
        """

    @verb(By.FIRST, always=True)
    def destroy_connection(self, /, id: Id, reason: Reason = None) -> None:
        """Close a client's connections; the client is told the ``reason``, and the log has it.  Raises
        InvalidDestinationError when there is none of that id."""

    @verb(By.TOTAL, always=True)
    def destroy_connections(
        self, /, reason: Reason = None, *, service: Name | None = None, user: Text | None = None,
        address: Text | None = None, client_id: Text | None = None, destination: Name | None = None,
        type: Type | None = None, consumer: Id | None = None,
    ) -> int:  # fmt: skip
        """Close the connections of all clients that the arguments fit, as in :meth:`list_connections`; how many.

        One of the arguments at least has to be given.  Clients of services for administration are left alone.
        """

    @verb(By.BROKER, always=True)
    def why_denied(
        self, /, user: Name, operation: Name, destination: Name | None = None, type: Type = "queue",
        service: Name = "jms",
    ) -> Row:  # fmt: skip
        """Whether a user of the file of users may do something, and by which rule: {"allowed", "request", "rule"}.

        operation  produce, consume or browse with a destination; create; connect to the service
        What is asked takes other rights as well: to connect to the service, and to create a destination that is not
        there. ``request`` is the first that is denied.
        Raises ConfigError for an unknown user or operation.
        """


    # ---- checks

    @verb(By.ROWS, always=True)
    def check_broker(self, /, warn: Thresholds = None, critical: Thresholds = None) -> Listing:
        """Graded checks of the brokers. One row a check: check, broker, of (what was looked at), grade (ok, warning,
        critical, unknown) and text, and the figure with its thresholds where it has some.

        broker   it runs, and is not about to end
        open     it takes clients: it knows the master and the record
        hosts    all its hosts answer
        memory   the memory level: YELLOW and ORANGE are a warning, RED is critical; memory_percent
        disk     the disks of its hosts have room (raybroker.store.low_free_percent), and are quick; disk_free_percent
        load     what its destinations hold is below its thresholds (raybroker.system.messagesThresholdHigh)
        services those that the configuration asks for listen

        ``warn`` and ``critical`` give thresholds for memory_percent and disk_free_percent.
        """

    @verb(By.CLUSTER, always=True)
    def check_cluster(self, /) -> list[Row]:
        """Graded checks of the cluster as the broker that is asked sees it. Rows are as those of :meth:`check_broker`.

        members  all brokers are up
        master   the master is there, where the cluster has one
        record   the broker's copy of the record and its settings agree with the others'
        """

    @verb(By.ROWS, always=True)
    def check_services(
        self, /, service: Name | None = None, warn: Thresholds = None, critical: Thresholds = None
    ) -> Listing:
        """Graded checks of the connection services that are active, or of one. Rows are as those of
        :meth:`check_broker`. Raises ConfigError for a service that is not active.

        state        it is neither paused nor quiesced
        listener     its port accepts connections
        clients      there is room for more: clients_percent, from 90 a warning, from 100 critical
        certificate  of those with TLS, is good for a while: certificate_days, below 30 a warning, below 7 critical
        """

    @verb(By.CLUSTER)
    def check_destination(
        self, /, type: Type, name: Name, warn: Thresholds = None, critical: Thresholds = None
    ) -> list[Row]:
        """Graded checks of one destination: ``state`` (paused is a warning, halted by damage is critical) and its
        figures, which have no thresholds but those that ``warn`` and ``critical`` give:

        messages, bytes   what it holds
        oldest_s          seconds since its oldest message came, or since the start of its host
        full_percent      what it holds of maxNumMsgs or maxTotalMsgBytes, whichever is more
        dead              messages that died there since ``counted_since_ms``
        consumers         active ones; fewer are worse
        producers         fewer are worse

        Rows are as those of :meth:`check_broker`.
        """


class ManagerVerbs:
    """What transaction managers may do besides, see ``raybroker.connect_xa``."""

    @verb(By.FIRST)
    def decide_transaction(self, /, id: Id, commit: Truth) -> None:
        """End a prepared XA branch as its manager decided. Raises IllegalStateError in any other state."""

    @verb(By.FIRST)
    def forget_transaction(self, /, id: Id) -> None:
        """Drop a heuristic outcome that its manager knows. Raises IllegalStateError in any other state."""


VERBS: Final = declared_in(AdminVerbs, ManagerVerbs)


def implementations(*parts: object) -> dict[str, Callable[..., Awaitable[Any]]]:
    """Verb → the method of its name; a part carries out the verbs that its class has methods for."""
    return {name: getattr(part, name) for part in parts for name in VERBS if hasattr(type(part), name)}
