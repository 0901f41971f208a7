"""Connections to the broker of those who ask over HTTP, each opened with the user's own password or token.

A connection is kept while its user has requests or holds something, and IDLE_S longer. The password of a request is
compared with the one that was proved; it is proved again every RECHECK_S, so that a user who was made inactive, or has
another password, loses his connection. A token is a user of its own: another token of the same user has another
connection. At most ``most`` connections, and LOGINS_MAX logins that are under way, LOGINS_OF_ADDRESS_MAX of them from
one address; how many of them are checked at once is the gateway's business.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, Generic, Protocol, TypeVar

from raybroker.model.errors import (
    BrokerError,
    IllegalStateError,
    LoginLimitError,
    NotAdmittedError,
    ResourceAllocationError,
    SecurityError,
)
from raybroker.services.web.credentials import Digests, Offer, RequestCredentials
from raybroker.system.supervision import Supervisor

LOG: Final = logging.getLogger("raybroker.services")
IDLE_S: Final = 60.0
RECHECK_S: Final = 30.0
SWEEP_S: Final = 5.0
LOGINS_MAX: Final = 256
LOGINS_OF_ADDRESS_MAX: Final = 16
"""Logins from one address that are under way or wait, so that wrong ones from there keep nobody else waiting."""
LOGIN_TIMEOUT_S: Final = 30.0

CLIENT: Final = "HTTP"


class Connect(Protocol):
    """Connects as a user with a password, or with a token, by the handles of asyncio; raises SecurityError for a wrong
    one. ``ended`` is called when the broker ends the connection; ``bodies_bytes``: large bodies that its consumers may
    have in memory, 0: any."""

    async def __call__(
        self,
        user: str,
        password: str,
        *,
        token: str | None = None,
        peer: str,
        client: str,
        ended: Callable[[BrokerError], object],
        bodies_bytes: int = 0,
    ) -> Any: ...


class Opened(Protocol):
    """What a service does with the connection of one who asks. ``ended``: the broker has ended it; ``busy``: something
    is held by it that its end would give back."""

    @property
    def ended(self) -> bool: ...
    @property
    def busy(self) -> bool: ...

    def use(self, connection: Any) -> None: ...

    def was_ended(self, error: BrokerError) -> None: ...

    async def close(self) -> None: ...


U = TypeVar("U", bound=Opened)


class Known(Generic[U]):
    """A user who has a connection. ``digest``: of the secret that was proved at ``proved_s``."""

    def __init__(self, digest: bytes, opened: U, now_s: float) -> None:
        self.digest = digest
        self.opened = opened
        self.proved_s = self.used_s = now_s
        self.requests = 0
        self.rechecking: asyncio.Task[None] | None = None


class WebUsers(Generic[U]):
    """The users on one loop. ``make``: what uses a connection; ``now_s``: a clock that never goes back; ``offer``: the
    credentials that are taken; ``by_address``: a user has a connection for each address that he asks from, so that what
    he does is written down with it."""

    def __init__(
        self,
        connect: Connect,
        make: Callable[[], U],
        *,
        most: int,
        now_s: Callable[[], float],
        idle_s: float = IDLE_S,
        offer: Offer = Offer(),  # noqa: B008 - a value
        by_address: bool = False,
    ) -> None:
        self._connect = connect
        self._make = make
        self._most = most
        self._now_s = now_s
        self._idle_s = idle_s
        self._by_address = by_address
        self.offer = offer
        self._digests = Digests()
        self._known: dict[str, Known[U]] = {}
        self._opening: dict[tuple[str, bytes, str], asyncio.Task[Known[U]]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._loops = Supervisor("the users of a service over HTTP")
        self._sweeping: asyncio.Task[None] | None = None
        self.closed = False

    def __len__(self) -> int:
        return len(self._known)

    def names(self) -> list[str]:
        return sorted(self._known)

    @asynccontextmanager
    async def connection_of(self, given: RequestCredentials, peer: str) -> AsyncIterator[U]:
        """The connection of the user; raises RefusedError, 401, and what connecting raises. ``peer``: "address:port"
        of the client that asks."""
        known = await self._find(given, peer)
        known.requests += 1
        try:
            yield known.opened
        finally:
            known.requests -= 1
            known.used_s = self._now_s()

    async def prove(self, given: RequestCredentials, peer: str) -> None:
        """Prove the secret now, whatever was proved before; raises what :meth:`connection_of` raises. One that does
        not hold any more loses the connection."""
        digest = self._digests.digest(given.secret)
        name = self._name(given, digest, peer)
        known = self._known.get(name)
        if known is None or not hmac.compare_digest(known.digest, digest):
            await self._find(given, peer)  # Which proves it.
            return
        try:
            proof = await self._log_in(given, peer)
        except NotAdmittedError:
            raise
        except SecurityError as error:
            if self._known.get(name) is known:
                self._drop(name)
            raise self.offer.asked(str(error)) from None
        except TimeoutError:
            raise ResourceAllocationError(f"the login has not ended in {LOGIN_TIMEOUT_S:g} s; try again") from None
        await proof.close()
        known.proved_s = self._now_s()

    def _name(self, given: RequestCredentials, digest: bytes, peer: str) -> str:
        """What the connection is kept under; no user's name has a zero in it."""
        name = given.user if given.token is None else f"\0{digest.hex()}"
        return f"{name}\0{peer.rpartition(':')[0]}" if self._by_address else name

    def _known_as(self, given: RequestCredentials, digest: bytes, peer: str) -> Known[U] | None:
        """Return whose connection is open, when the secret is the one that was proved."""
        name = self._name(given, digest, peer)
        known = self._known.get(name)
        if known is not None and known.opened.ended:
            self._drop(name)
            return None
        if known is None or not hmac.compare_digest(known.digest, digest):
            return None
        if self._now_s() - known.proved_s > RECHECK_S and known.rechecking is None:
            known.rechecking = asyncio.get_running_loop().create_task(self._recheck(name, given, known, peer))
        return known

    async def _find(self, given: RequestCredentials, peer: str) -> Known[U]:
        digest = self._digests.digest(given.secret)
        known = self._known_as(given, digest, peer)
        if known is not None:
            return known
        name = self._name(given, digest, peer)
        key = (name, digest, peer.rpartition(":")[0])
        task = self._opening.get(key)
        if task is None:
            if len(self._opening) >= LOGINS_MAX:
                raise LoginLimitError(f"{len(self._opening)} users are logging in; try again")
            of_address = sum(opening[2] == key[2] for opening in self._opening)
            if of_address >= LOGINS_OF_ADDRESS_MAX:
                raise LoginLimitError(f"{of_address} users of {key[2]} are logging in; try again")
            task = self._opening[key] = asyncio.get_running_loop().create_task(self._open(name, given, digest, peer))
            task.add_done_callback(lambda done: self._opened(key, done))
        try:
            return await asyncio.shield(task)
        except NotAdmittedError:
            raise
        except SecurityError as error:
            raise self.offer.asked(str(error)) from None
        except IllegalStateError as error:  # The service is paused or quiesced.
            raise ResourceAllocationError(str(error)) from None
        except TimeoutError:
            raise ResourceAllocationError(f"the login has not ended in {LOGIN_TIMEOUT_S:g} s; try again") from None

    def _opened(self, key: tuple[str, bytes, str], done: asyncio.Task[Known[U]]) -> None:
        self._opening.pop(key, None)
        if not done.cancelled():
            done.exception()  # Whoever waits gets it; nobody may be waiting any more.

    async def _log_in(self, given: RequestCredentials, peer: str) -> U:
        """Raises what connecting raises, and TimeoutError."""
        opened = self._make()
        async with asyncio.timeout(LOGIN_TIMEOUT_S):
            opened.use(
                await self._connect(
                    given.user, given.password, token=given.token, peer=peer, client=CLIENT, ended=opened.was_ended
                )
            )
        return opened

    async def _open(self, name: str, given: RequestCredentials, digest: bytes, peer: str) -> Known[U]:
        if name not in self._known and len(self._known) >= self._most:
            self._make_room()
        opened = await self._log_in(given, peer)
        if self.closed:
            await opened.close()
            raise ResourceAllocationError("the service ends")
        self._drop(name)
        known = self._known[name] = Known(digest, opened, self._now_s())
        if self._sweeping is None:
            self._sweeping = self._loops.keep("idle connections", self._sweep)
        return known

    def _make_room(self) -> None:
        """End the connection that was idle for the longest time; raises ResourceAllocationError when none is."""
        idle = [(known.used_s, name) for name, known in self._known.items() if not self._busy(known)]
        if not idle:
            raise ResourceAllocationError(
                f"{self._most} users have connections (half of max_threads of the service); try later or raise it"
            )
        self._drop(min(idle)[1])

    @staticmethod
    def _busy(known: Known[U]) -> bool:
        return known.requests > 0 or known.opened.busy

    async def _recheck(self, name: str, given: RequestCredentials, known: Known[U], peer: str) -> None:
        """Prove the secret again: it may have been changed since."""
        try:
            proof = await self._log_in(given, peer)
            await proof.close()
            known.proved_s = self._now_s()
        except SecurityError as error:
            LOG.info("[B1066] %r lost the connection of HTTP requests: %s", given, error)
            if self._known.get(name) is known:
                self._drop(name)
        except (BrokerError, TimeoutError, OSError) as error:
            LOG.debug("the secret of %r could not be proved again now: %s", given, error)
            known.proved_s = self._now_s() - RECHECK_S / 2
        finally:
            known.rechecking = None

    def _drop(self, name: str) -> None:
        known = self._known.pop(name, None)
        if known is not None:
            task = asyncio.get_running_loop().create_task(known.opened.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(min(SWEEP_S, self._idle_s))
            now_s = self._now_s()
            for name, known in list(self._known.items()):
                if known.opened.ended or (not self._busy(known) and now_s - known.used_s > self._idle_s):
                    self._drop(name)

    async def close(self) -> None:
        """End all of them; what they held goes back."""
        self.closed = True
        self._loops.close()
        for task in self._opening.values():
            task.cancel()
        for name in list(self._known):
            self._drop(name)
        await asyncio.gather(*self._closing, return_exceptions=True)
