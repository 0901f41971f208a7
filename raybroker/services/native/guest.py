"""One guest of a host: what a connection may do that came in through a connection service, and what it has carried."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from raybroker.content.headers import require_no_sender
from raybroker.logs.audit import REFUSED, Audit
from raybroker.model.blocks.block import Block
from raybroker.model.errors import SecurityError
from raybroker.security.access import ADMIN_GROUP, Access, user_of
from raybroker.services.clients.user_limits import CONSUMERS, exceeded

Traffic = dict[str, int]
"""What guests' connections have carried, by the keys of TRAFFIC."""
TRAFFIC: Final = (
    "messages_in",
    "messages_out",
    "message_bytes_in",
    "message_bytes_out",
    "packets_in",
    "packets_out",
    "packet_bytes_in",
    "packet_bytes_out",
)
_FREE: Final = frozenset(
    {
        "hello",
        "start",
        "stop",
        "close_producer",
        "close_consumer",
        "close_browser",
        "browse",
        "release",
        "schedule",
        "unwatch_consumers",
        "txn_begin",
        "txn_stage",
        "txn_commit",
        "txn_prepare",
        "txn_decide",
        "txn_rollback",
        "txn_received",
        "txn_outcome",
        "txn_forget",
        "read_body",
        "drop_body",
        "body_piece",
    }
)
"""Requests about what the connection has already, or by a name that cannot be guessed."""
_RIGHTS: Final = {
    "open_producer": "produce",
    "begin_body": "produce",
    "refer_body": "produce",
    "open_consumer": "consume",
    "open_browser": "browse",
}
_ANY: Final = frozenset({"watch_consumers", "units"})
"""Requests of producers about a destination."""


class Guest:
    """One connection. ``claims``: who it is, once it has shown its secret."""

    def __init__(
        self,
        redeem: Callable[[bytes], dict[str, Any] | None],
        access_of: Callable[[str], Access],
        audit_of: Callable[[dict[str, Any]], Audit],
        has_gone: Callable[[str, Traffic], None],
        consumers_of: Callable[[str], int],
    ) -> None:
        self._consumers_of = consumers_of
        self._redeem = redeem
        self._has_gone = has_gone
        self._audit_of = audit_of
        self._access_of = access_of
        self.claims: dict[str, Any] | None = None

    def accepts(self, token: bytes) -> bool:
        """Whether it is what it says; asked once."""
        self.claims = self._redeem(token)
        return self.claims is not None

    def why_denied(self, kind: str, name: str, operation: str) -> str:
        """Why the user may not do that any more, "" when he may."""
        from raybroker.security.access_rules import AccessRequest

        assert self.claims is not None
        user, access = user_of(self.claims), self._access_of(str(self.claims["rules"]))
        request = AccessRequest(kind, name, operation)
        if access.decide(user, request).allowed:
            return ""
        return f"user {user.name!r} may not {request} any more: the access rules have changed"

    def gone(self, traffic: Traffic) -> None:
        """The connection has ended; ``traffic``: what it carried in all."""
        if self.claims is not None:
            self._has_gone(str(self.claims["service"]), traffic)

    def check(self, op: str, args: dict[str, Any]) -> None:
        """Raises a BrokerError, SecurityError above all, for a request that it may not make."""
        assert self.claims is not None
        if op == "schedule":
            require_no_sender(Block(bytes(args["message"])))
        if op in _FREE:
            return
        try:
            self._check(op, args)
        except SecurityError as error:
            claims = self.claims
            self._audit_of(claims).record(
                "denied",
                REFUSED,
                user=str(claims["user"]),
                address=str(claims.get("address", "")),
                service=str(claims["service"]),
                connection=str(claims["connection"]),
                what=op,
                reason=str(error),
            )
            raise

    def _check(self, op: str, args: dict[str, Any]) -> None:
        from raybroker.security.access_rules import AccessRequest

        assert self.claims is not None
        user, access = user_of(self.claims), self._access_of(str(self.claims["rules"]))
        kind, name = str(args.get("type", "queue")), str(args.get("name", ""))
        operation = _RIGHTS.get(op)
        if operation is not None:
            access.require(user, AccessRequest(kind, name, operation))
            if op == "open_consumer" and (most := int(self.claims.get("consumers_max", -1))) >= 0:
                count = self._consumers_of(user.name)
                if count >= most:
                    raise exceeded(CONSUMERS, user.name, count, most)
        elif op in _ANY:
            if not any(
                access.decide(user, AccessRequest(kind, name, right)).allowed for right in ("produce", "consume")
            ):
                access.require(user, AccessRequest(kind, name, "produce"))
        elif ADMIN_GROUP not in user.groups:
            raise SecurityError(f"user {user.name!r} may not ask for {op}: it is for the group {ADMIN_GROUP}")
