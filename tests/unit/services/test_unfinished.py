"""Messages that have not ended: the one that began first makes room for the others."""

from __future__ import annotations

from raybroker.services.gateways.unfinished import Unfinished


def test_who_began_first_makes_room() -> None:
    given_up: dict[str, str] = {}
    held: Unfinished[str] = Unfinished(100, given_up.__setitem__, "the.setting")
    held.grows("a", 40)
    held.grows("b", 40)
    held.grows("a", 50)
    assert (held.total, given_up) == (90, {})
    held.ends("a")
    held.ends("a")
    held.grows("a", 30)
    held.grows("c", 31)
    assert given_up.keys() == {"b"}
    assert "the.setting" in given_up["b"]
    assert "of which 40 came" in given_up["b"]
    assert (held.total, "a" in held, "b" in held) == (61, True, False)
    held.grows("d", 1000)
    assert given_up.keys() == {"a", "b", "c", "d"}, "the newest goes too where it alone has no room"
    assert held.total == 0
