"""Sessions are found by their peer, their client id and their connection."""

from __future__ import annotations

from typing import Any

from raybroker.engine.sessions.sessions import ClientSession, Sessions


def session(client_id: str | None, connection: str) -> ClientSession:
    peer: Any = object()
    made = ClientSession(peer)
    made.client_id, made.connection = client_id, connection
    return made


def test_a_client_id_belongs_to_one_connection() -> None:
    sessions = Sessions()
    first, second = session("billing", "one"), session(None, "two")
    sessions.open = {first: None, second: None}
    assert sessions.session_of(first.peer) is first
    assert sessions.session_of(session(None, "").peer) is None
    assert sessions.has_client_id("billing", besides="two")
    assert not sessions.has_client_id("billing", besides="one")
    assert [sessions.has_connection(name) for name in ("one", "two", "three")] == [True, True, False]
