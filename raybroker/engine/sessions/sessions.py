"""The open sessions of a host."""

from __future__ import annotations

from raybroker.engine.ports import Peer


class ClientSession:
    """What the parts of a host know of a session.

    connection  id of the client's connection, which may have sessions on other hosts too
    blocked     how many blocks of it wait for room in a pool
    """

    __slots__ = ("blocked", "client_id", "connection", "peer")

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.client_id: str | None = None
        self.connection = ""
        self.blocked = 0


class Sessions:
    """``open``: a set in order of arrival, which makes iteration deterministic; the values say whether others may have
    the session's client id."""

    def __init__(self) -> None:
        self.open: dict[ClientSession, bool | None] = {}

    def session_of(self, peer: Peer) -> ClientSession | None:
        return next((session for session in self.open if session.peer is peer), None)

    def has_client_id(self, client_id: str, besides: str) -> bool:
        """Whether a connection other than ``besides`` has the client id for itself."""
        return any(
            session.client_id == client_id and session.connection != besides and not shared
            for session, shared in self.open.items()
        )

    def share_client_id(self, session: ClientSession, shared: bool) -> None:
        """Whether others may have the client id of a session that is open."""
        if session in self.open:
            self.open[session] = shared

    def has_connection(self, connection: str) -> bool:
        return any(session.connection == connection for session in self.open)
