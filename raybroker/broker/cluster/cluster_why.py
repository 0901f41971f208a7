"""Explanations over all brokers: what those say that can be asked, and which broker is lost that may have the thing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from raybroker.admin import copy_checks
from raybroker.broker.cluster.broker_calls import BrokerCalls
from raybroker.broker.cluster.cluster_admin import ClusterAdmin
from raybroker.core.why.reason import Reason
from raybroker.hosting.host_port import Row
from raybroker.model.errors import ConnectionLostError, InvalidDestinationError, RequestTimeoutError
from raybroker.model.listing import Listing
from raybroker.model.naming.names import check_destination_type

WHY_TIMEOUT_S: Final = 5.0
"""How long another broker may take; who waits for longer is told that it does not answer."""
SEVERAL: Final = frozenset({"destination", "subscription", "producer"})
"""What each broker has a part of: the part of one that is lost waits, whatever the others say."""


class ClusterWhy:
    """``known``: whether there is a destination, as far as this broker knows; ``replication``: what is shown of the
    copies of its log."""

    def __init__(
        self,
        brokers: BrokerCalls,
        spread: ClusterAdmin,
        known: Callable[[str, str], bool],
        replication: Callable[[str, str], Awaitable[Row]],
    ) -> None:
        self._brokers = brokers
        self._spread = spread
        self._known = known
        self._replication = replication

    async def why(
        self,
        what: str,
        id: int | str,
        destination: str | None = None,
        type: str = "queue",
        client_id: str | None = None,
    ) -> Listing:
        """See the verb's declaration."""
        args = {"what": what, "id": id, "destination": destination, "type": type, "client_id": client_id}
        silent, missing = self._brokers.absent(), dict[str, str]()
        rows: list[Row] = []
        unknown: InvalidDestinationError | None = None
        for broker, answer in await self._spread.asked("why", args, WHY_TIMEOUT_S):
            if isinstance(answer, ConnectionLostError | RequestTimeoutError):
                silent[broker] = str(answer)
            elif isinstance(answer, InvalidDestinationError):
                unknown = unknown or answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                rows += answer
                missing |= getattr(answer, "missing", {})
        place = str(id) if what == "destination" else destination
        if not rows and unknown is not None and (not silent or not self._may_be(what, type, place)):
            raise unknown
        if not rows or what in SEVERAL:
            found = {"what": what, "id": id, **({"type": type, "destination": place} if place is not None else {})}
            rows += [self._lost(found, broker, why) for broker, why in sorted(silent.items())]
        if what == "destination" and (reason := await self._of_copies(type, str(id))) is not None:
            rows.append(_waiting({"what": what, "id": id, "type": type, "destination": place}, "", reason))
        return Listing(rows, missing | silent)

    async def _of_copies(self, kind: str, name: str) -> Reason | None:
        """Why nothing is confirmed where the log of a destination has copies; None when they are there."""
        shown = await self._replication(kind, name)
        if not shown:
            return None
        if not shown["leader"]:
            return Reason("no_leader", f"no copy leads: {shown.get('why') or 'none can be asked'}")
        if waits := copy_checks.waiting_text(shown):
            facts = {
                "leader": shown["leader"],
                "reached": copy_checks.reached(shown),
                "needed": copy_checks.needed(shown),
            }
            return Reason("waits_for_copies", waits, facts)
        if shown.get("changing"):
            return Reason("copies_change", f"its copies change: {'; '.join(shown['changing'])}")
        return None

    def _may_be(self, what: str, kind: str, place: str | None) -> bool:
        """Whether a broker that is lost may have it: all brokers know which destinations there are."""
        if place is None:
            return True
        return self._known("topic" if what == "subscription" else check_destination_type(kind), place)

    def _lost(self, found: Row, broker: str, why: str) -> Row:
        since_ms = self._brokers.silent_since_ms(broker)
        facts: dict[str, Any] = {"broker_of": broker, **({"since_ms": since_ms} if since_ms else {})}
        reason = Reason("broker_lost", f"broker {broker} is lost ({why}), and what it has of this waits there", facts)
        return _waiting(found, broker, reason)


def _waiting(found: Row, broker: str, reason: Reason) -> Row:
    return {
        **found,
        "broker": broker,
        "state": "UNKNOWN",
        "text": reason.text,
        "reasons": [reason.as_row],
        "history": [],
    }
