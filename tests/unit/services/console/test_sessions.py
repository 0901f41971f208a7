"""Sessions of the console: their keys and tokens, and when they end."""

from __future__ import annotations

from collections.abc import Callable

from raybroker.services.console.sessions import LIFETIME_S, OF_USER_MAX, SESSIONS_MAX, ConsoleSessions
from raybroker.services.web.credentials import RequestCredentials


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0


def draws() -> Callable[[int], bytes]:
    """Bytes that are different each time."""
    count = 0

    def draw(size: int) -> bytes:
        nonlocal count
        count += 1
        return count.to_bytes(size, "big")

    return draw


def made(clock: Clock, idle_s: float = 60) -> ConsoleSessions:
    return ConsoleSessions(idle_s, lambda: clock.now_s, draws())


GIVEN = RequestCredentials("ann", "secret")


def test_a_session_is_found_by_its_key_alone() -> None:
    sessions = made(Clock())
    key, session = sessions.open("ann", GIVEN)
    assert sessions.find(key, used=True) is session
    assert sessions.find(key[:-1], used=True) is None
    assert sessions.find("", used=True) is None
    assert key not in repr(vars(session)), "the key is not kept"


def test_a_change_needs_the_token_of_its_own_session() -> None:
    sessions = made(Clock())
    _, one = sessions.open("ann", GIVEN)
    _, other = sessions.open("ann", GIVEN)
    assert one.wants(one.token)
    for token in (other.token, one.token.upper() + "x", "", None, "ä"):
        assert not one.wants(token)


def test_a_session_that_nobody_uses_ends_also_when_its_page_renews_figures() -> None:
    clock = Clock()
    sessions = made(clock)
    key, _ = sessions.open("ann", GIVEN)
    clock.now_s += 50
    assert sessions.find(key, used=False) is not None
    clock.now_s += 11
    assert sessions.find(key, used=False) is None
    assert len(sessions) == 0


def test_use_keeps_a_session_but_not_for_ever() -> None:
    clock = Clock()
    sessions = made(clock)
    key, _ = sessions.open("ann", GIVEN)
    began = clock.now_s
    while clock.now_s + 50 <= began + LIFETIME_S:
        clock.now_s += 50
        assert sessions.find(key, used=True) is not None
    clock.now_s += 50
    assert sessions.find(key, used=True) is None


def test_all_sessions_of_a_user_end_together() -> None:
    sessions = made(Clock())
    ann = [sessions.open("ann", GIVEN)[0] for _ in range(3)]
    bob = sessions.open("bob", GIVEN)[0]
    sessions.end_of("ann")
    assert [sessions.find(key, used=True) for key in ann] == [None] * 3
    assert sessions.find(bob, used=True) is not None


def test_sessions_are_bounded_of_one_user_and_in_all() -> None:
    clock = Clock()
    sessions = made(clock, idle_s=10_000)
    keys = []
    for _ in range(OF_USER_MAX + 1):
        clock.now_s += 1
        keys.append(sessions.open("ann", GIVEN)[0])
    assert len(sessions) == OF_USER_MAX
    assert sessions.find(keys[0], used=False) is None, "the one that was used longest ago ends"
    for number in range(SESSIONS_MAX):
        sessions.open(f"user{number}", GIVEN)
    assert len(sessions) == SESSIONS_MAX
