"""Explanations of what waits on a host: the reasons of the core, as rows for administrators.

A row has ``what`` and ``id``, where it is, its ``state``, ``reasons`` and ``text``, which says them in one line.  A
reason has code, text, remedy and facts of its own.  Nothing of a body is shown; values of headers are, where a selector
looks at them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from raybroker.core.blocks import message_mask as pk
from raybroker.core.delivery.delivery_queue import DeliveryQueue
from raybroker.core.delivery.redelivery import failures_apart, own_failures
from raybroker.core.delivery.run import own_priority
from raybroker.core.destination import Destination
from raybroker.core.unit_of_work import PARTS
from raybroker.core.why import messages, queues
from raybroker.core.why.consumers import waiting_for
from raybroker.core.why.producers import held_up
from raybroker.core.why.reason import Reason
from raybroker.engine.destinations.destination_registry import DMQ, DestinationRegistry
from raybroker.engine.destinations.message_search import IdParts, Search, Sought, parsed
from raybroker.engine.measured_time import MeasuredTime
from raybroker.engine.memory.block_reader import BlockReader
from raybroker.engine.transactions.transactions import Transaction
from raybroker.model.errors import BrokerError, ConfigError, InvalidDestinationError
from raybroker.model.listing import Row
from raybroker.model.naming import names

ROWS_MAX: Final = 100
"""Subscriptions of one topic that are explained at once."""
DEAD_MAX: Final = 200
"""Blocks of the dead message queue, the newest, that are looked at for a message that is not where it was sent."""
_SAID_MAX: Final = 3
"""Reasons that the one line of a row names."""


class Explaining:
    """``transactions``: rows; ``room``: whether the store has room; ``require_memory`` raises MemoryLowError."""

    def __init__(
        self,
        registry: DestinationRegistry,
        blocks: BlockReader,
        transactions: Callable[[], list[Row]],
        open_transactions: Mapping[int, Transaction],
        time: MeasuredTime,
        room: Callable[[int], bool],
        require_memory: Callable[[str], None],
    ) -> None:
        self._registry = registry
        self._blocks = blocks
        self._transactions = transactions
        self._open_transactions = open_transactions
        self._time = time
        self._room = room
        self._require_memory = require_memory

    # ---- messages

    def message(self, kind: str, name: str, id: str) -> list[Row]:
        """A message by its id, a row for each subscription that it is for; of a dead one also where it died.

        Raises InvalidDestinationError when it is not found.
        """
        wanted, destination = parsed(id), self._named(kind, name)
        if wanted is None:
            raise ConfigError(f"{id[:80]!r} is no message id; those are as ID:0123456789abcdef-17")
        sought = self._sought(destination, wanted)
        if sought.ordinal:
            return [self._message_row(destination, queue, sought, id) for queue in _queues(destination)]
        dead = self._died(id) if destination.name != DMQ else None
        if dead is not None:
            return [dead]
        raise InvalidDestinationError(f"message {id} is not found in {kind} {name}: {_not_found(sought, destination)}")

    def _sought(self, destination: Destination, wanted: IdParts) -> Sought:
        held, index = destination.block_index.held, destination.block_index
        oldest = held.oldest()
        search = Search(
            wanted, held.__contains__, lambda at: self._blocks.glanced(destination, at), self._time.monotonic_ns
        )
        return search.run(oldest or 1, index.next_ordinal - 1, len(held)) if oldest else Sought(0, 0, 0, True)

    def _message_row(self, destination: Destination, queue: DeliveryQueue, sought: Sought, id: str) -> Row:
        ordinal, index = sought.ordinal, sought.at
        block = destination.block_index.held.get(ordinal)
        if block.done >> index & 1:
            raise InvalidDestinationError(f"message {id} of {destination.kind} {destination.name} is settled")
        content = self._blocks.headers(destination, ordinal)
        found = messages.explained(queue, destination.staged, ordinal, index, content)
        run = found.place.run
        reasons = [*self._halted(destination), *(self._with_earlier(destination, queue, one) for one in found.reasons)]
        reasons = [self._with_beginning(reason) for reason in reasons]
        row = {
            **_where("message", id, destination, queue),
            "state": found.state.upper(),
            "position": f"{ordinal}.{index}",
            "priority": own_priority(run.priority),
            "deliveries": run.attempts,
            "failures": own_failures(run.failures),
            "causes": failures_apart(run.failures),
        }
        if destination.name == DMQ and content is not None:
            reasons += _death(content.properties(index))
        return _with(row, reasons, found.history)

    def _with_earlier(self, destination: Destination, queue: DeliveryQueue, reason: Reason) -> Reason:
        """The reason; where it is an earlier message of the same unit of order, with that one's own reasons."""
        if "earlier" not in reason.facts:
            return reason
        ordinal, index = map(int, reason.facts["earlier"].split("."))
        content = self._blocks.headers(destination, ordinal)
        found = messages.explained(queue, destination.staged, ordinal, index, content)
        because = [self._with_beginning(one).as_row for one in found.reasons]
        return reason._replace(facts={**reason.facts, "state_of_earlier": found.state.upper(), "because": because})

    def _with_beginning(self, reason: Reason) -> Reason:
        """The reason; where it is a transaction, with the time when that began."""
        found = self._open_transactions.get(reason.facts.get("transaction", 0))
        return reason._replace(facts={**reason.facts, "since_ms": found.created_ms}) if found is not None else reason

    def _died(self, id: str) -> Row | None:
        """A message that is not where it was sent any more, among the latest dead ones of this host."""
        destination = self._registry.destinations.get(("queue", DMQ))
        if destination is None:
            return None
        held = destination.block_index.held
        newest = (
            at for at in range(destination.block_index.next_ordinal - 1, (held.oldest() or 1) - 1, -1) if at in held
        )
        for ordinal in islice(newest, DEAD_MAX):
            content, block = self._blocks.headers(destination, ordinal), held.get(ordinal)
            if content is None:
                continue
            for index in pk.indexes(block.everything & ~block.done):
                properties = content.properties(index)
                if properties.get(names.DEAD_ORIGINAL_ID) == id:
                    row = {
                        **_where("message", id, destination, None),
                        "state": "DEAD",
                        "position": f"{ordinal}.{index}",
                    }
                    return _with(row, _death(properties), [])
        return None

    # ---- consumers and producers

    def consumer(self, number: int) -> list[Row]:
        for destination, queue in self._all_queues():
            consumer = queue.consumers.by_attachment.get(number)
            if consumer is not None:
                self._now(destination)
                row = {
                    **_where("consumer", number, destination, queue),
                    "state": "ACTIVE" if consumer.active else "BACKUP",
                    "unacknowledged": consumer.have,
                    "sent": consumer.sent,
                }
                return [_with(row, [*self._halted(destination), *waiting_for(queue, consumer)], [])]
        raise InvalidDestinationError(f"there is no consumer {number}; list_consumers shows those there are")

    def producer(self, id: str, kind: str, name: str | None) -> list[Row]:
        """A producer by the number in the ids of its messages, a row for each destination that it has open."""
        text = id.removeprefix("ID:").partition("-")[0]
        try:
            number = int(text, 16)
        except ValueError:
            raise ConfigError(f"{id[:80]!r} is no producer; say the id of one of its messages") from None
        found = [
            self._producer_row(destination, text)
            for destination in self._registry.matching(kind if name is not None else None, name)
            if number in destination.producers.attached.values()
        ]
        if not found:
            raise InvalidDestinationError(
                f"producer {text} is not attached to {f'{kind} {name}' if name else 'anything'}"
            )
        return found

    def _producer_row(self, destination: Destination, id: str) -> Row:
        self._now(destination)
        state, _ = destination.admission.gate_state()
        row = {**_where("producer", id, destination, None), "state": state.upper()}
        return _with(row, self._taking(destination), [])

    def _taking(self, destination: Destination) -> list[Reason]:
        """Why nothing more is taken for a destination."""
        found = self._halted(destination) + held_up(destination.name, destination.policy, destination.admission)
        if not self._room(1):
            found.append(Reason("disk_full", "the store's disk is full; messages that are not persistent are taken"))
        try:
            self._require_memory("nothing more is taken")
        except BrokerError as error:
            found.append(Reason("memory_low", str(error)))
        return found

    # ---- destinations and subscriptions

    def destination(self, kind: str, name: str) -> list[Row]:
        """A destination, a row for each subscription of a topic; ``producers``: why nothing more is taken."""
        destination = self._named(kind, name)
        taking = [reason.as_row for reason in self._taking(destination)]
        return [
            {**self._queue_row("destination", name, destination, queue), "producers": taking}
            for queue in _queues(destination)
        ]

    def subscription(self, topic: str | None, client_id: str | None, name: str) -> list[Row]:
        found = []
        for destination, queue in self._all_queues("topic", topic):
            own = queue.subscription
            if own is not None and own.name == name and client_id in (None, own.client_id):
                self._now(destination)
                found.append(self._queue_row("subscription", name, destination, queue))
        if not found:
            raise InvalidDestinationError(
                f"there is no subscription {name!r}; list_subscriptions shows those there are"
            )
        return found

    def _queue_row(self, what: str, id: str, destination: Destination, queue: DeliveryQueue) -> Row:
        row = {
            **_where(what, id, destination, queue),
            "state": "HALTED"
            if destination.number in self._registry.halted
            else "PAUSED"
            if destination.paused
            else "RUNNING",
            "waiting": queue.pending.count,
            "delayed": queue.delayed.count,
            "unacknowledged": sum(c.have for c in queue.consumers.by_attachment.values()),
            "in_transaction": sum(part.messages for part in destination.staged.values()),
        }
        reasons = [*self._halted(destination), *queues.standing(queue)]
        for txn, part in destination.staged.items():
            if part.messages:
                text = f"{part.messages} messages are sent in transaction {txn}, which is not committed"
                reason = Reason("sent_in_transaction", text, {"transaction": txn, "messages": part.messages})
                reasons.append(self._with_beginning(reason))
        return _with(row, reasons, [])

    # ---- transactions

    def transaction(self, number: int) -> list[Row]:
        rows = [row for row in self._transactions() if row["id"] == number]
        if not rows:
            raise InvalidDestinationError(f"there is no transaction {number}; list_transactions shows those there are")
        found = self._open_transactions.get(number)
        return [
            _with(
                {
                    "what": "transaction",
                    "id": number,
                    "state": row["state"],
                    "kind": row["kind"],
                    "messages": row["messages"],
                    "acks": row["acks"],
                    "destinations": [f"{d.kind} {d.name}" for d in (found.destinations if found is not None else ())],
                },
                _of_transaction(row, found.refusal if found is not None else None),
                [],
            )
            for row in rows
        ]

    # ---- for all of them

    def _named(self, kind: str, name: str) -> Destination:
        destination = self._registry.named(kind, name)
        self._now(destination)
        return destination

    def _now(self, destination: Destination) -> None:
        """What depends on time is as of now, and not as of the last command."""
        destination.current.at(self._time.read(), self._time.ahead_ms)

    def _all_queues(
        self, kind: str | None = None, name: str | None = None
    ) -> Iterator[tuple[Destination, DeliveryQueue]]:
        for destination in self._registry.matching(kind, name):
            for queue in destination.queues.values():
                if queue.subscription != PARTS:
                    yield destination, queue

    def _halted(self, destination: Destination) -> list[Reason]:
        error = self._registry.halted.get(destination.number)
        return [Reason("halted", str(error))] if error is not None else []


def _queues(destination: Destination) -> list[DeliveryQueue]:
    return [queue for queue in destination.queues.values() if queue.subscription != PARTS][:ROWS_MAX]


def _where(what: str, id: object, destination: Destination, queue: DeliveryQueue | None) -> Row:
    own = queue.subscription if queue is not None else None
    row: Row = {"what": what, "id": id, "type": destination.kind, "destination": destination.name}
    return {**row, "subscription": own.name or None, "client_id": own.client_id or None} if own is not None else row


def _with(row: Row, reasons: Sequence[Reason], history: Iterable[Reason]) -> Row:
    said = "; ".join(reason.text for reason in reasons[:_SAID_MAX])
    more = f"; and {len(reasons) - _SAID_MAX} more" if len(reasons) > _SAID_MAX else ""
    return {
        **row,
        "text": f"{said}{more}" or "nothing keeps it",
        "reasons": [reason.as_row for reason in reasons],
        "history": [reason.as_row for reason in history],
    }


def _not_found(sought: Sought, destination: Destination) -> str:
    if sought.whole:
        return "it was consumed, has expired or was moved, or was never sent there"
    blocks = len(destination.block_index.held)
    return (
        f"{sought.looked_at} of {blocks} blocks were looked at where it would be; browse_messages with the selector"
        " JMSMessageID = '…' looks at all, and takes longer"
    )


def _death(properties: Mapping[str, Any]) -> list[Reason]:
    """Say where, when and why a message died, by what is written on it."""
    reason = properties.get(names.DEAD_REASON)
    if reason is None:
        return []
    facts = {
        "reason": reason,
        "origin": properties.get(names.DEAD_ORIGIN),
        "at_ms": properties.get(names.DEAD_TIMESTAMP),
        "deliveries": properties.get(names.DEAD_DELIVERIES),
        "broker": properties.get(names.DEAD_BROKER),
        "subscription": properties.get(names.DEAD_SUBSCRIPTION),
        "original_id": properties.get(names.DEAD_ORIGINAL_ID),
        "comment": properties.get(names.DEAD_COMMENT),
        "exception": properties.get(names.DEAD_EXCEPTION),
    }
    told = "; ".join(str(facts[key]) for key in ("comment", "exception") if facts[key])
    text = (
        f"it died in {facts['origin']} ({reason}) after {facts['deliveries']} deliveries{f': {told}' if told else ''}"
    )
    return [Reason("dead", text, {key: value for key, value in facts.items() if value is not None})]


def _of_transaction(row: Row, refusal: BrokerError | None) -> list[Reason]:
    facts = {key: row[key] for key in ("client_id", "connection", "coordinator", "created_ms") if row[key]}
    facts |= {"since_ms": row["created_ms"]} if row["created_ms"] else {}
    who = (
        f"client {row['client_id']}"
        if row["client_id"]
        else f"connection {row['connection']}"
        if row["connection"]
        else "its client"
    )
    state = str(row["state"])
    if state.startswith("HEURISTICALLY"):
        return [Reason("heuristic", f"an administrator has ended it ({state}); its manager does not know yet", facts)]
    if state == "PREPARED" and row["kind"] == "xa":
        return [Reason("waits_for_manager", "it is prepared, and its transaction manager has not decided", facts)]
    if state == "PREPARED":
        text = f"it is prepared, and its coordinator {row['coordinator']} has not said how it ends"
        return [Reason("waits_for_coordinator", text, facts)]
    found = [Reason("transaction_open", f"{who} has it open and has neither committed nor rolled back", facts)]
    return found + ([Reason("transaction_refused", f"a message was refused: {refusal}", facts)] if refusal else [])
