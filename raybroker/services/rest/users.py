"""One connection to the broker for each user who asks over HTTP, opened with the user's own password.

A connection is kept while its user has requests or holds messages, and IDLE_S longer. The password of a request is
compared with the one that was proved; it is proved again every RECHECK_S, so that a user who was made inactive, or has
another password, loses his connection. At most ``most`` users, LOGINS_MAX logins at once and LOGINS_WAITING_MAX more
that wait.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, Protocol

from raybroker.model.errors import BrokerError, IllegalStateError, ResourceAllocationError, SecurityError
from raybroker.services.rest.credentials import Credentials, Digests, asked
from raybroker.services.rest.user_connection import Connection, UserConnection

LOG: Final = logging.getLogger("raybroker.services")
IDLE_S: Final = 60.0
RECHECK_S: Final = 30.0
SWEEP_S: Final = 5.0
LOGINS_MAX: Final = 4
LOGINS_WAITING_MAX: Final = 64
LOGIN_TIMEOUT_S: Final = 30.0

CLIENT: Final = "HTTP"


class Connect(Protocol):
    """Connects as a user with a password, by the handles of asyncio; raises SecurityError for a wrong one. ``ended`` is
    called when the broker ends the connection."""

    async def __call__(
        self, user: str, password: str, *, peer: str, client: str, ended: Callable[[BrokerError], object]
    ) -> Connection: ...


class _Known:
    """A user who has a connection. ``digest``: of the password that was proved at ``proved_s``."""

    def __init__(self, digest: bytes, opened: UserConnection, now_s: float) -> None:
        self.digest = digest
        self.opened = opened
        self.proved_s = self.used_s = now_s
        self.requests = 0
        self.rechecking: asyncio.Task[None] | None = None


class Users:
    """On one loop. ``now_s``: a clock that never goes back."""

    def __init__(self, connect: Connect, *, most: int, now_s: Callable[[], float], idle_s: float = IDLE_S) -> None:
        self._connect = connect
        self._most = most
        self._now_s = now_s
        self._idle_s = idle_s
        self._digests = Digests()
        self._known: dict[str, _Known] = {}
        self._opening: dict[tuple[str, bytes, str], asyncio.Task[_Known]] = {}
        self._logins = asyncio.Semaphore(LOGINS_MAX)
        self._closing: set[asyncio.Task[None]] = set()
        self._sweeping: asyncio.Task[None] | None = None
        self.closed = False

    def __len__(self) -> int:
        return len(self._known)

    def names(self) -> list[str]:
        return sorted(self._known)

    @asynccontextmanager
    async def of(self, given: Credentials, peer: str) -> AsyncIterator[UserConnection]:
        """The connection of the user; raises RefusedError, 401, and what connecting raises. ``peer``: "address:port"
        of the client that asks."""
        known = await self._find(given, peer)
        known.requests += 1
        try:
            yield known.opened
        finally:
            known.requests -= 1
            known.used_s = self._now_s()

    async def _find(self, given: Credentials, peer: str) -> _Known:
        digest = self._digests.of(given.password)
        known = self._known.get(given.user)
        if known is not None and known.opened.ended:
            self._drop(given.user)
            known = None
        if known is not None and hmac.compare_digest(known.digest, digest):
            if self._now_s() - known.proved_s > RECHECK_S and known.rechecking is None:
                known.rechecking = asyncio.get_running_loop().create_task(self._recheck(given, known, peer))
            return known
        key = (given.user, digest, peer.rpartition(":")[0])
        task = self._opening.get(key)
        if task is None:
            if len(self._opening) >= LOGINS_MAX + LOGINS_WAITING_MAX:
                raise ResourceAllocationError(f"{len(self._opening)} users are logging in; try again")
            task = self._opening[key] = asyncio.get_running_loop().create_task(self._open(given, digest, peer))
            task.add_done_callback(lambda done: self._opened(key, done))
        try:
            return await asyncio.shield(task)
        except SecurityError as error:
            raise asked(str(error)) from None
        except IllegalStateError as error:  # The service is paused or quiesced.
            raise ResourceAllocationError(str(error)) from None
        except TimeoutError:
            raise ResourceAllocationError(f"the login has not ended in {LOGIN_TIMEOUT_S:g} s; try again") from None

    def _opened(self, key: tuple[str, bytes, str], done: asyncio.Task[_Known]) -> None:
        self._opening.pop(key, None)
        if not done.cancelled():
            done.exception()  # Whoever waits gets it; nobody may be waiting any more.

    async def _open(self, given: Credentials, digest: bytes, peer: str) -> _Known:
        async with self._logins:
            if given.user not in self._known and len(self._known) >= self._most:
                self._make_room()
            opened = UserConnection(self._now_s)
            async with asyncio.timeout(LOGIN_TIMEOUT_S):
                opened.use(
                    await self._connect(given.user, given.password, peer=peer, client=CLIENT, ended=opened.was_ended)
                )
        if self.closed:
            await opened.close()
            raise ResourceAllocationError("the service ends")
        self._drop(given.user)
        known = self._known[given.user] = _Known(digest, opened, self._now_s())
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().create_task(self._sweep())
        return known

    def _make_room(self) -> None:
        """End the connection that was idle for the longest time; raises ResourceAllocationError when none is."""
        idle = [(known.used_s, user) for user, known in self._known.items() if not self._busy(known)]
        if not idle:
            raise ResourceAllocationError(
                f"{self._most} users have connections (half of max_threads of the service); try later or raise it"
            )
        self._drop(min(idle)[1])

    @staticmethod
    def _busy(known: _Known) -> bool:
        return known.requests > 0 or len(known.opened.leases) > 0

    async def _recheck(self, given: Credentials, known: _Known, peer: str) -> None:
        """Prove the password again: it may have been changed since."""
        proof = UserConnection(self._now_s)
        try:
            async with self._logins, asyncio.timeout(LOGIN_TIMEOUT_S):
                proof.use(
                    await self._connect(given.user, given.password, peer=peer, client=CLIENT, ended=proof.was_ended)
                )
            await proof.close()
            known.proved_s = self._now_s()
        except SecurityError as error:
            LOG.info("[B1066] user %r lost the connection of HTTP requests: %s", given.user, error)
            if self._known.get(given.user) is known:
                self._drop(given.user)
        except (BrokerError, TimeoutError, OSError) as error:
            LOG.debug("the password of %r could not be proved again now: %s", given.user, error)
            known.proved_s = self._now_s() - RECHECK_S / 2
        finally:
            known.rechecking = None

    def _drop(self, user: str) -> None:
        known = self._known.pop(user, None)
        if known is not None:
            task = asyncio.get_running_loop().create_task(known.opened.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(min(SWEEP_S, self._idle_s))
            now_s = self._now_s()
            for user, known in list(self._known.items()):
                if known.opened.ended or (not self._busy(known) and now_s - known.used_s > self._idle_s):
                    self._drop(user)

    def end(self, user: str) -> None:
        """End a user's connection now."""
        self._drop(user)

    async def close(self) -> None:
        """End all of them; what they held goes back."""
        self.closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        for task in self._opening.values():
            task.cancel()
        for user in list(self._known):
            self._drop(user)
        await asyncio.gather(*self._closing, return_exceptions=True)
