"""ConsoleSessions of the console: who has logged in, for how long, and what proves that a change is wanted.

The key of a session is in a cookie that scripts cannot read; a change also needs the session's token, which only pages
of the console get to know (CSRF).  A session ends when nobody has done anything for ``idle_s``, after LIFETIME_S in any
case, and when its user's password does not hold any more.  At most SESSIONS_MAX, and OF_USER_MAX of one user: of more,
the one that was used longest ago ends.  They are those of one service, and end with it.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Final

from raybroker.services.web.credentials import Digests, RequestCredentials

SESSIONS_MAX: Final = 256
OF_USER_MAX: Final = 16
LIFETIME_S: Final = 12 * 3600.0
_TOKEN_BYTES: Final = 32


class ConsoleSession:
    """``name``: of the user; ``given``: what the broker is told for each request; ``token``: that changes come with."""

    def __init__(self, digest: bytes, token: str, name: str, given: RequestCredentials, now_s: float) -> None:
        self.digest = digest
        self.token = token
        self.name = name
        self.given = given
        self.began_s = self.used_s = now_s

    def wants(self, token: str | None) -> bool:
        """Whether a change came with the session's token; compared in constant time."""
        return token is not None and hmac.compare_digest(token.encode(), self.token.encode())


class ConsoleSessions:
    """The sessions of one service. ``now_s``: a clock that never goes back; ``draw(n)``: n unpredictable bytes."""

    def __init__(self, idle_s: float, now_s: Callable[[], float], draw: Callable[[int], bytes]) -> None:
        self.idle_s = idle_s
        self._now_s = now_s
        self._draw = draw
        self._digests = Digests()
        self._sessions: dict[bytes, ConsoleSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, name: str, given: RequestCredentials) -> tuple[str, ConsoleSession]:
        """Open a session for a user who was let in: (key, session)."""
        self._sweep()
        own = [session for session in self._sessions.values() if session.name == name]
        if len(own) >= OF_USER_MAX:
            self.end_session(min(own, key=lambda session: session.used_s))
        if len(self._sessions) >= SESSIONS_MAX:
            self.end_session(min(self._sessions.values(), key=lambda session: session.used_s))
        key = self._draw(_TOKEN_BYTES).hex()
        digest = self._digests.digest(key)
        made = self._sessions[digest] = ConsoleSession(
            digest, self._draw(_TOKEN_BYTES).hex(), name, given, self._now_s()
        )
        return key, made

    def find(self, key: str, *, used: bool) -> ConsoleSession | None:
        """The session of a key, None when there is none any more; ``used``: somebody does something, other than a page
        that renews its figures."""
        session = self._sessions.get(self._digests.digest(key))
        if session is None:
            return None
        if self._is_over(session):
            self.end_session(session)
            return None
        if used:
            session.used_s = self._now_s()
        return session

    def end_session(self, session: ConsoleSession) -> None:
        self._sessions.pop(session.digest, None)

    def end_of(self, name: str) -> None:
        """End all sessions of a user."""
        for session in [session for session in self._sessions.values() if session.name == name]:
            self.end_session(session)

    def _is_over(self, session: ConsoleSession) -> bool:
        now_s = self._now_s()
        return now_s - session.used_s > self.idle_s or now_s - session.began_s > LIFETIME_S

    def _sweep(self) -> None:
        for session in [session for session in self._sessions.values() if self._is_over(session)]:
            self.end_session(session)
