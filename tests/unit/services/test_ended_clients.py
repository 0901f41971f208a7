"""Clients that were ended are remembered, so many of them and no more."""

from __future__ import annotations

from raybroker.services.clients.ended_clients import ID_CHARS_MAX, EndedClients


def test_the_first_reason_stays_and_the_first_client_is_forgotten_first() -> None:
    ended = EndedClients(2)
    ended.add(["a"], "one")
    ended.add(["a", "b"], "two")
    assert (ended.why("a"), ended.why("b"), ended.why("c")) == ("one", "two", None)
    ended.add(["c"], "three")
    assert (ended.why("a"), ended.why("c")) == (None, "three")


def test_what_nobody_can_be_called_is_not_kept() -> None:
    ended = EndedClients()
    ended.add(["x" * (ID_CHARS_MAX + 1)], "why")
    assert ended.why("x" * (ID_CHARS_MAX + 1)) is None
