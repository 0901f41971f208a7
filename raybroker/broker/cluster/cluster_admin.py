"""Administration over all brokers of a cluster: which brokers a verb asks, and how their answers are merged.

Every destination has a member on each broker.  Queries merge the answers of all members; verbs that act on messages go
to all members; changes of definitions go through the configuration change record, see broker.definitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from raybroker.admin.verb import By, Verb
from raybroker.broker.cluster.broker_calls import BrokerCalls
from raybroker.hosting.host_port import Row
from raybroker.model.errors import (
    BrokerError,
    BrokerGoneError,
    ConnectionLostError,
    InvalidDestinationError,
    RequestTimeoutError,
)
from raybroker.model.listing import Listing

ASK_TIMEOUT_S: Final = 20.0
"""How long another broker may take for an administrative verb."""
SUMMED: Final = frozenset(
    {
        "messages",
        "bytes",
        "peak_messages",
        "peak_bytes",
        "waiting",
        "unacknowledged",
        "delayed",
        "incomplete",
        "in_transaction",
        "dying",
        "producers",
        "messages_in",
        "messages_out",
        "bytes_in",
        "bytes_out",
        "redelivered",
        "refused",
        "expired",
        "dead",
        "duplicates",
        "throttled",
        "moved_in",
        "current",
        "pending",
        "slowed_producers",
        "recalled",
        "batches",
        "batched",
        "batches_due",
        "batch_wait_ms",
        "stale",
    }
)
"""Counts of a destination that members have apart."""
_LARGEST: Final = (
    "active_consumers",
    "backup_consumers",
    "subscriptions",
    "total_consumers",
    "peak_consumers",
    "messages_threshold_ms",
    "bytes_threshold_ms",
)
"""Consumers are known to all members; each member has thresholds of its own."""
_SMALLEST: Final = ("starved_ms",)
"""A consumer that gets messages from one member waits for the others, and does not starve."""
MIXED: Final = "MIXED"
"""State of a destination whose members have different ones; ``members`` says which has which."""
_OF_EACH: Final = ("paused", "messages", "bytes", "messages_in", "messages_out")
"""What is shown of each member."""
_EMPTY: Final[dict[str, Row]] = {"browse_messages": {"messages": []}, "export_messages": {"blocks": []}}
"""A page of a broker that does not have the destination."""

Answer = tuple[str, Any]
"""(broker, what it answered)."""
Everywhere = Callable[[str, Row], Awaitable[list[Answer]]]
"""Asks all brokers that are up for a verb with its arguments."""


class ClusterAdmin:
    """Verbs that concern the members on all brokers; ``copied``: destinations whose logs have copies, (type, name)."""

    def __init__(self, brokers: BrokerCalls, copied: Callable[[], Iterable[tuple[str, ...]]] = tuple) -> None:
        self._brokers = brokers
        self._copied = copied

    async def carry_out(self, declared: Verb[..., Any], args: Row) -> Any:
        """A verb of all brokers, and what their answers are together; see ``By``."""
        verb, by = declared.name, declared.by
        if by is By.FIRST:
            return await self._first(verb, args)
        if by is By.PAGES:
            return await self._page(verb, args)
        if by is By.ROWS:
            answers, missing = await self._listed(verb, args)
            return Listing((row for _, rows in answers for row in rows), missing)
        answers = await self.everywhere(verb, args)
        if by is By.EACH:
            return None
        return (sum if by is By.TOTAL else max)(int(found) for _, found in answers)

    async def asked(self, verb: str, args: Row, timeout_s: float = ASK_TIMEOUT_S) -> list[Answer]:
        """(broker, what it answered or raised), of all brokers that are up, asked at once."""
        brokers = self._brokers.live()
        work = (self._brokers.verb_at(broker, verb, args, timeout_s) for broker in brokers)
        return list(zip(brokers, await asyncio.gather(*work, return_exceptions=True), strict=True))

    async def everywhere(self, verb: str, args: Row) -> list[Answer]:
        """Ask all brokers that are up.

        A broker that does not have the destination, or is lost meanwhile, is left out as long as another one answers;
        any other error is raised, and the first of those when nobody answers.
        """
        found: list[Answer] = []
        errors: list[BaseException] = []
        for broker, result in await self.asked(verb, args):
            if isinstance(result, InvalidDestinationError | BrokerGoneError):
                errors.append(result)
            elif isinstance(result, BaseException):
                raise result
            else:
                found.append((broker, result))
        if not found:
            raise errors[0]
        return found

    async def _listed(self, verb: str, args: Row) -> tuple[list[Answer], dict[str, str]]:
        """A list verb of all brokers: what those answered that can be asked, and what is missing → why.

        Raises InvalidDestinationError when all that answer lack the destination, and what the first broker raised when
        nobody answers.
        """
        found: list[Answer] = []
        errors: list[BaseException] = []
        results = await self.asked(verb, args)
        missing = self._brokers.absent()
        for broker, result in results:
            if isinstance(result, ConnectionLostError | RequestTimeoutError):
                missing[broker] = str(result)
                errors.append(result)
            elif isinstance(result, InvalidDestinationError):
                errors.insert(0, result)
            elif isinstance(result, BaseException):
                raise result
            else:
                found.append((broker, result))
                missing.update(result.missing if isinstance(result, Listing) else {})
        if not found:
            raise errors[0]
        return found, missing

    async def _first(self, verb: str, args: Row) -> Any:
        """What the first broker answers that knows it; one that cannot be asked may be the one that does."""
        missing: BrokerError | None = None
        for broker in self._brokers.live():
            try:
                return await self._brokers.verb_at(broker, verb, args, ASK_TIMEOUT_S)
            except InvalidDestinationError as error:
                missing = missing or error
            except ConnectionLostError as error:
                missing = error if not isinstance(missing, ConnectionLostError) else missing
        raise missing or InvalidDestinationError(f"{verb}: no broker is up")

    async def _page(self, verb: str, args: Row) -> Row:
        """One page of what all members have, broker after broker; the next page's ``start`` says which.

        A broker that does not have the destination is passed over; InvalidDestinationError when none has it, and when
        one has let it go in the middle.
        """
        brokers = sorted(self._brokers.live())
        start = args.get("start")
        broker, inner = start or (brokers[0], None)
        if broker not in brokers:
            raise BrokerGoneError(f"broker {broker} is gone, and the rest of its messages cannot be read; start again")
        for asked in [other for other in brokers if other >= broker]:
            within = inner if asked == broker else None
            try:
                page: Row = dict(await self._brokers.verb_at(asked, verb, {**args, "start": within}, ASK_TIMEOUT_S))
            except InvalidDestinationError:
                if within is not None or (start is None and asked == brokers[-1]):
                    raise
                continue
            after = [other for other in brokers if other > asked]
            if page["next"] is not None:
                page["next"] = [asked, page["next"]]
            elif after:
                page["next"] = [after[0], None]
            return page
        return {**_EMPTY[verb], "next": None}

    # ---- destinations

    async def query_destination(self, type: str, name: str) -> Row:
        """One row for all members: counts added up, and ``members`` with the row of each broker; ``missing``: brokers
        whose members are not counted → why, where there are any."""
        row = self._merged(await self.everywhere("query_destination", {"type": type, "name": name}))
        missing = self._brokers.absent()
        return {**row, "missing": missing} if missing else row

    async def list_destinations(self, type: str | None = None, temporary: bool = False) -> Listing:
        found: dict[tuple[str, str], list[Answer]] = {}
        answers, missing = await self._listed("list_destinations", {"type": type, "temporary": temporary})
        for broker, rows in answers:
            for row in rows:
                found.setdefault((row["name"], row["type"]), []).append((broker, row))
        for kind, name in self._copied():
            if type in (None, kind) and (name, kind) not in found:
                why = "nobody leads its log now: a majority of its copies has to be up"
                found[name, kind] = [("", {"name": name, "type": kind, "state": "UNKNOWN", "host": "", "error": why})]
        return Listing((self._merged(found[key]) for key in sorted(found)), missing)

    def _merged(self, answers: list[Answer]) -> Row:
        """The row of the coordinator, or of the first that knows anything, with the counts of all and the state of
        each."""
        known = [(broker, row) for broker, row in answers if row["state"] != "UNKNOWN"] or answers
        row = dict(next((found for broker, found in known if broker == self._brokers.coordinator), known[0][1]))
        states = {other["state"] for _, other in answers}  # One that is unknown is not what the others are.
        if len(states) > 1:
            row["state"] = MIXED
        for key in SUMMED & row.keys():
            row[key] = sum(other.get(key, 0) for _, other in known)
        for key in _LARGEST:
            if key in row:
                row[key] = max(other.get(key, 0) for _, other in known)
        for key in _SMALLEST:
            if key in row:
                row[key] = min(other.get(key, 0) for _, other in known)
        if "over_threshold" in row:
            row["over_threshold"] = sorted({of for _, other in known for of in other.get("over_threshold", ())})
        if copies := [other["replication"] for _, other in known if "replication" in other]:
            row["replication"] = max(copies, key=lambda shown: len(shown["copies"]))  # Its leader knows of all.
        if moving := [text for _, other in known for text in other.get("moving", ())]:
            row["moving"] = moving
        if damaged := [part for _, other in known for part in other.get("damaged", ())]:
            row["damaged"] = damaged
        row["members"] = [
            {
                "broker": broker,
                "host": other.get("host"),
                "state": other["state"],
                **{key: other[key] for key in _OF_EACH if key in other},
            }
            for broker, other in answers
        ]
        return row

    # ---- consumers and subscriptions

    async def list_consumers(self, destination: str | None = None, type: str | None = None) -> Listing:
        """One row a consumer, whichever members it is attached to; what these count is added up. ``broker`` is the home
        broker of its connection, ``members`` the brokers that it is attached to."""
        found: dict[Any, Row] = {}
        answers, missing = await self._listed("list_consumers", {"destination": destination, "type": type})
        for broker, rows in answers:
            for row in rows:
                key = row.get("consumer") or (broker, row["id"])
                known = found.setdefault((key, row["type"], row["destination"]), {**row, "members": []})
                known["members"].append(broker)
                if len(known["members"]) > 1:
                    for count in ("unacknowledged", "sent", "granted", "buffered"):
                        if count in row:
                            known[count] = (known.get(count) or 0) + (row[count] or 0)
        return Listing(found.values(), missing)

    async def list_subscriptions(self, topic: str | None = None) -> Listing:
        """One row a subscription; messages are those of all members."""
        found: dict[tuple[str, str, str], Row] = {}
        answers, missing = await self._listed("list_subscriptions", {"topic": topic})
        for _, rows in answers:
            for row in rows:
                key = (row["topic"], row["client_id"] or "", row["name"])
                known = found.setdefault(key, {**row, "messages": 0, "consumers": 0})
                known["messages"] += row["messages"]
                known["consumers"] = max(known["consumers"], row["consumers"])
                known["active"] = known["active"] or row["active"]
        return Listing((found[key] for key in sorted(found)), missing)
