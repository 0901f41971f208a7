"""``conn.admin()``: every administrative verb as a method.

The blocking face returns results; the asynchronous one returns awaitables of the same.  Types of destinations are
"queue" and "topic" (or "q" and "t").  All methods raise the errors of ``raybroker.errors``: InvalidDestinationError for
what does not exist, ConfigError for arguments that cannot be right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from raybroker.client.arguments import check_admin
from raybroker.client.pickled import Unpicklable
from raybroker.model.names import DEAD_MESSAGE_QUEUE


class Admin(Unpicklable):
    """``call(verb, arguments)`` carries a verb to the broker."""

    def __init__(self, call: Callable[[str, dict[str, Any]], Any]) -> None:
        def checked(verb: str, args: dict[str, Any]) -> Any:
            check_admin(args)
            return call(verb, args)

        self._call = checked

    # ---- destinations

    def create_destination(
        self, type: str, name: str, *, if_exists: str = "error", **attributes: Any  # noqa: A002 - public name
    ) -> Any:
        """Create a destination with attributes such as consumerFlowLimit=20; "created", "kept" or "updated".

        if_exists  "error": raises InvalidDestinationError; "keep": it stays as it is, whatever ``attributes`` say;
                   "update": it gets these attributes
        Raises InvalidDestinationError (bad name, or it exists) or ConfigError (unknown attribute, value out of bounds,
        an attribute of the other type).
        """
        args = {"type": type, "name": name, "attributes": attributes, "if_exists": if_exists}
        return self._call("create_destination", args)

    def destroy_destination(self, type: str, name: str) -> Any:  # noqa: A002
        """Remove a destination and its messages.

        Raises IllegalStateError for mq.sys.dmq and for temporary destinations, which go with their connection.
        """
        return self._call("destroy_destination", {"type": type, "name": name})

    def adopt_destination(self, type: str, name: str) -> Any:  # noqa: A002
        """Put a destination in state ORPHANED into the cluster's record again, with its messages: one that was
        created after the backup that was restored.

        Raises IllegalStateError for one that is not orphaned; :meth:`destroy_destination` drops it instead.
        """
        return self._call("adopt_destination", {"type": type, "name": name})

    def update_destination(self, type: str, name: str, **changes: Any) -> Any:  # noqa: A002
        """Change attributes, all or none; raises ConfigError for one that is fixed at creation."""
        return self._call("update_destination", {"type": type, "name": name, "changes": changes})

    def list_destinations(self, type: str | None = None, *, temporary: bool = False) -> Any:  # noqa: A002
        """One dict a destination, by name, as :meth:`query_destination` gives it; ``temporary``: also those.

        As all lists of what hosts have, it is a list with an attribute ``missing``: hosts and brokers that cannot be
        asked now → why.  Their destinations that are known by name have state UNKNOWN; empty when the list is whole.
        """
        return self._call("list_destinations", {"type": type, "temporary": temporary})

    def query_destination(self, type: str, name: str) -> Any:  # noqa: A002
        """Attributes, state and counts: messages, bytes, waiting, unacknowledged, producers, active_consumers, …

        Counts that only grow, and peaks, are since ``counted_since_ms``, milliseconds since 1970: the start of the host
        or :meth:`reset_destination`.  ``over_threshold`` names what is over its threshold, "messages" or "bytes", and
        ``messages_threshold_ms`` and ``bytes_threshold_ms`` say for how long it was in all.
        """
        return self._call("query_destination", {"type": type, "name": name})

    def purge_destination(self, type: str, name: str) -> Any:  # noqa: A002
        """Discard the messages that no consumer holds."""
        return self._call("purge_destination", {"type": type, "name": name})

    def pause_destination(
        self, type: str | None = None, name: str | None = None, which: str = "all", *, until_ms: int = 0  # noqa: A002
    ) -> Any:
        """Pause one destination, or all (of a type) without a name; how many were.

        which     "producers": they are refused; "consumers": nothing is delivered; "all": both; "insertion": what is
                  under way arrives and is not seen until insertion resumes
        until_ms  milliseconds since 1970 at which it resumes by itself; 0: when resumed
        """
        args = {"type": type, "name": name, "which": which, "until_ms": until_ms}
        return self._call("pause_destination", args)

    def resume_destination(
        self, type: str | None = None, name: str | None = None, which: str = "all"  # noqa: A002
    ) -> Any:
        """Undo :meth:`pause_destination`; how many destinations were resumed."""
        return self._call("resume_destination", {"type": type, "name": name, "which": which})

    def reset_destination(self, type: str | None = None, name: str | None = None) -> Any:  # noqa: A002
        """Count from zero what :meth:`query_destination` shows of one destination, or of all (of a type): messages in
        and out, refused, expired, …, peaks, consumers in all and the time over thresholds; how many.

        Metrics, and messages of ``mq.metrics``, count on from the start of the broker.
        """
        return self._call("reset_destination", {"type": type, "name": name})

    # ---- consumers and subscriptions

    def list_consumers(self, destination: str | None = None, type: str | None = None) -> Any:  # noqa: A002
        """One dict a consumer: id, destination, active, flow, limit, granted, unacknowledged, sent."""
        return self._call("list_consumers", {"name": destination, "type": type})

    def query_consumer(self, id: int) -> Any:  # noqa: A002
        """One consumer by id."""
        return self._call("query_consumer", {"id": id})

    def list_subscriptions(self, topic: str | None = None) -> Any:
        """One dict a subscription, of one topic or of all: topic, client_id, name, durable, shared, selector, no_local,
        active, messages, consumers."""
        return self._call("list_subscriptions", {"topic": topic})

    def destroy_subscription(self, name: str, client_id: str | None = None, topic: str | None = None) -> Any:
        """End a durable subscription with its messages; raises IllegalStateError while it has consumers."""
        return self._call("destroy_subscription", {"name": name, "client_id": client_id, "topic": topic})

    def purge_subscription(self, name: str, client_id: str | None = None, topic: str | None = None) -> Any:
        """Discard the messages of a durable subscription."""
        return self._call("purge_subscription", {"name": name, "client_id": client_id, "topic": topic})

    # ---- schedules

    def list_schedules(self, destination: str | None = None, type: str | None = None) -> Any:  # noqa: A002
        """One dict a recurring schedule: id, type, destination, schedule, timezone, repeat, catch_up, fired,
        last_ms, next_ms, state (ACTIVE, WAITING for a destination that does not take it, HALTED), reason, …"""
        return self._call("list_schedules", {"name": destination, "type": type})

    def query_schedule(self, id: str) -> Any:  # noqa: A002
        """One schedule by the id that ``send`` returned; raises InvalidDestinationError when there is none."""
        return self._call("query_schedule", {"id": id})

    def destroy_schedule(self, id: str) -> Any:  # noqa: A002
        """End a schedule; what it has sent stays. Raises InvalidDestinationError when there is none of that id."""
        return self._call("destroy_schedule", {"id": id})

    # ---- transactions

    def list_transactions(self) -> Any:
        """One dict a transaction and host: id, host, kind (local, xa), state, messages, acks, created_ms, …."""
        return self._call("list_transactions", {})

    def query_transaction(self, id: int | str) -> Any:  # noqa: A002
        """One transaction by id, or by "host:id" where several hosts have that id."""
        return self._call("query_transaction", {"id": id})

    def commit_transaction(self, id: int | str) -> Any:  # noqa: A002
        """Commit a PREPARED transaction; raises IllegalStateError naming the state it is in otherwise.

        An XA branch is HEURISTICALLY_COMMITTED then, and listed until its manager calls ``xa.forget``.
        """
        return self._call("commit_transaction", {"id": id})

    def rollback_transaction(self, id: int | str) -> Any:  # noqa: A002
        """Roll a transaction back that has not ended, PREPARED or not.

        A prepared XA branch is HEURISTICALLY_ROLLED_BACK then, and listed until its manager calls ``xa.forget``.
        Raises InvalidDestinationError when there is none of that id.
        """
        return self._call("rollback_transaction", {"id": id})

    # ---- brokers

    def list_brokers(self) -> Any:
        """One dict a broker: broker, state (UP, SUSPECT, JOINING, DOWN, LEFT), coordinator, master, node, record."""
        return self._call("list_brokers", {})

    def query_cluster(self) -> Any:
        """The cluster as the home broker sees it: state, master, term, brokers, and its copy of the record."""
        return self._call("query_cluster", {})

    def reload_cluster(self, brokers: Iterable[str]) -> Any:
        """Make these the brokers of the cluster, on all that are up; which those were."""
        return self._call("reload_cluster", {"brokers": _listed(brokers)})

    def change_master(self, target: str) -> Any:
        """Move the configuration change record to another broker; {"result": "OK" or why not, "text": …}."""
        return self._call("change_master", {"target": target})

    def backup_record(self) -> Any:
        """The configuration change record as the bytes of a backup file."""
        return self._call("backup_record", {})

    # ---- metrics

    def metrics(self, names: str | None = None) -> Any:
        """What was counted: one dict a broker with cluster, broker, ``own`` (of the broker), ``types`` (sums over
        queues and over topics) and ``destinations`` (those whose name matches ``names``; * for any text, none without).

        Keys are those of raybroker.metrics.catalogue; a histogram is (observations by bucket, sum).
        """
        return self._call("metrics", {"names": names})

    # ---- messages

    def browse_messages(
        self,
        type: str,  # noqa: A002
        name: str,
        selector: str | None = None,
        *,
        start: Any = None,
        max: int = 100,  # noqa: A002
        body_bytes_max: int = 1024,
    ) -> Any:
        """One page of messages, oldest first; nothing is taken.

        ``{"messages": rows, "next": …}``; "next" is the ``start`` of the next page, or None. A row has id, timestamp,
        expiration, priority, persistent, type, correlation_id, reply_to, properties, delivery_count, size, body (cut
        to ``body_bytes_max``) and state: waiting, delayed, delivered, or hidden while insertion is paused.
        """
        return self._call(
            "browse_messages",
            {"type": type, "name": name, "selector": selector, "start": start, "max": max,
             "body_bytes_max": body_bytes_max},
        )  # fmt: skip

    def delete_messages(
        self, type: str, name: str, selector: str | None = None, ids: Iterable[str] | None = None  # noqa: A002
    ) -> Any:
        """Delete what the selector and the ids name, all without either; how many.

        Raises IllegalStateError unless consumers are paused or it is mq.sys.dmq.
        """
        return self._call("delete_messages", {"type": type, "name": name, "selector": selector, "ids": _listed(ids)})

    def move_messages(
        self,
        type: str,  # noqa: A002
        name: str,
        target: str,
        target_type: str | None = None,
        selector: str | None = None,
        ids: Iterable[str] | None = None,
    ) -> Any:
        """Move messages to another destination, by default of the same type, with their ids; how many.

        Not one step: a failure in between leaves duplicates, never a loss. Raises as :meth:`delete_messages`.
        """
        args = {"type": type, "name": name, "target": target, "target_type": target_type, "selector": selector}
        return self._call("move_messages", {**args, "ids": _listed(ids)})

    def retry_messages(
        self,
        type: str = "queue",  # noqa: A002
        name: str = DEAD_MESSAGE_QUEUE,
        selector: str | None = None,
        ids: Iterable[str] | None = None,
    ) -> Any:
        """Send dead messages back to where each died, as new messages; how many.

        One that died in a subscription of a topic goes back to that alone. One whose destination or subscription is
        gone, or whose subscription does not select it any more, stays and does not count; the broker logs that.
        Messages that were delivered before come with ``redelivered`` True: ``delivery_count`` goes on, while failures
        are counted anew for redeliveryLimit. They have their unit of order and their expiration again.
        """
        return self._call("retry_messages", {"type": type, "name": name, "selector": selector, "ids": _listed(ids)})

    def skip_messages(self, type: str, name: str) -> Any:  # noqa: A002
        """Skip what is damaged in a halted destination, so that what is behind it is delivered; how many messages.

        What can still be read of each damaged block goes to mq.sys.dmq as a record, with properties that begin with
        ``RAYBROKER_QUARANTINE``. ``query_destination(…)["damaged"]`` names the damaged messages beforehand. Raises
        ResourceAllocationError when mq.sys.dmq is full.
        """
        return self._call("skip_messages", {"type": type, "name": name})

    def export_messages(
        self,
        type: str,  # noqa: A002
        name: str,
        selector: str | None = None,
        *,
        start: Any = None,
        max_bytes: int = 8 << 20,
    ) -> Any:
        """One page of copies: {"blocks": encoded messages, "next": start of the next page or None}."""
        args = {"type": type, "name": name, "selector": selector, "start": start, "max_bytes": max_bytes}
        return self._call("export_messages", args)

    def import_messages(self, type: str, name: str, blocks: Iterable[bytes]) -> Any:  # noqa: A002
        """Put exported messages into a destination, with their ids; how many."""
        return self._call("import_messages", {"type": type, "name": name, "blocks": _listed(blocks)})

    # ---- templates

    def create_template(self, name: str, **attributes: Any) -> Any:
        """A named set of destination attributes; a destination created with template=name takes from it what it is not
        given itself."""
        return self._call("create_template", {"name": name, "attributes": attributes})

    def update_template(self, name: str, **changes: Any) -> Any:
        """Change a template, and every destination of it that still has the old value; how many destinations."""
        return self._call("update_template", {"name": name, "changes": changes})

    def destroy_template(self, name: str) -> Any:
        """Remove a template; destinations keep what they took from it."""
        return self._call("destroy_template", {"name": name})

    def list_templates(self) -> Any:
        """One dict a template: name and attributes."""
        return self._call("list_templates", {})

    # ---- forwarding agents

    def create_forwarding(self, name: str, queue: str, to: str, **attributes: Any) -> Any:
        """Have the messages of a queue forwarded to a queue of another cluster of this Ray: ``to="cluster/queue"``.

        Attributes are qos ("Exactly-once", "At-least-once", "At-most-once"), windowSize, windowInterval,
        acknowledgeInterval, conversationIdleTimeMaximum, retryDelayBase, retryDelayMaximum, retryDelayMultiplier,
        errorPolicy ("Discard", "Log", "Redirect", "Always-forward"), errorDestination and timeToLive; see
        raybroker.model.forwarding. Raises ConfigError for one that is wrong, and when there is an agent
        of that name.
        """
        args = {"name": name, "attributes": {"queue": queue, "to": to, **attributes}}
        return self._call("create_forwarding", args)

    def destroy_forwarding(self, name: str) -> Any:
        """End an agent; what it has not forwarded stays in its queue."""
        return self._call("destroy_forwarding", {"name": name})

    def list_forwardings(self) -> Any:
        """One dict an agent: its attributes, state (STARTING, CONNECTING, RUNNING, IDLE, RETRYING), counts and last
        error."""
        return self._call("list_forwardings", {})

    def query_forwarding(self, name: str) -> Any:
        """One agent; raises InvalidDestinationError when there is none of that name."""
        return self._call("query_forwarding", {"name": name})

    # ---- the broker

    def query_broker(self) -> Any:
        """The broker's hosts: destinations, connections, messages, bytes, store; ``changed``: the properties that
        :meth:`update_broker` has changed, and their values."""
        return self._call("query_broker", {})

    def update_broker(self, properties: Mapping[str, object], broker: str | None = None) -> Any:
        """Change properties of a broker, or of all that are up, while they run: at once, all or none, and for its next
        starts too, until the configuration itself says something else than it does now.

        What can change are those whose setting says so: imq.log.level, imq.log.file.rolloverbytes and .rolloversecs,
        imq.autocreate.queue and .topic, imq.message.max_size, imq.destination.logDeadMsgs and some more.  Returns
        ``{"brokers": {name: {"changed": …, "unreached": hosts}}, "down": names}``: what differs from the configuration
        now, hosts that do not answer and are told later, and brokers that were not up and keep what they had.  Raises
        ConfigError for a property that is read at the start only, does not exist, does not take the value, or has to
        be the same on all brokers when one is named; BrokerGoneError when that one is not up.
        """
        return self._call("update_broker", {"properties": properties, "broker": broker})


def _listed(values: Any) -> Any:
    """An iterable as a list; what is none, or is a text, is left for the check of the arguments."""
    return list(values) if hasattr(values, "__iter__") and not isinstance(values, str | bytes | list) else values


def pages(ask: Callable[[Any], dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """All pages of the blocking face; ``ask(start)`` gets one, such as
    ``lambda start: admin.browse_messages("queue", "orders", start=start)``."""
    start: Any = None
    while True:
        page = ask(start)
        yield page
        start = page["next"]
        if start is None:
            return
