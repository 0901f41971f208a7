"""Sessions are found by their peer, their client id and their connection."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from raybroker.engine.sessions.sessions import Sessions


def session(client_id: str | None, connection: str) -> Any:
    return SimpleNamespace(client_id=client_id, connection=connection, peer=object())


class Hashable(SimpleNamespace):
    __hash__ = object.__hash__


def test_a_client_id_belongs_to_one_connection() -> None:
    sessions = Sessions()
    first: Any = Hashable(**vars(session("billing", "one")))
    second: Any = Hashable(**vars(session(None, "two")))
    sessions.open = {first: None, second: None}
    assert sessions.of(first.peer) is first
    assert sessions.of(session(None, "").peer) is None
    assert sessions.has_client_id("billing", besides="two")
    assert not sessions.has_client_id("billing", besides="one")
    assert [sessions.has_connection(name) for name in ("one", "two", "three")] == [True, True, False]
