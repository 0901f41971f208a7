"""The directory of a cluster: routes calls to the home broker or another one, and chooses a new home broker.

A client asks its home broker.  When that one is gone, and the application has not named it, another broker becomes the
home: what is attached to hosts that are alive stays attached, and what has to be found again is found there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Final, Protocol, TypeVar

from raybroker.client.cluster.directory import DestinationPlace, KnownBroker, KnownSubscription, View
from raybroker.model.errors import BrokerError, BrokerGoneError, ConnectionLostError
from raybroker.model.naming.names import home_of_temporary
from raybroker.transport.loops import sleep_waited_for

T = TypeVar("T")
READ_PATIENCE_S: Final = 10.0
"""How long a verb that changes nothing is tried again while a broker restarts; one that changes something never is."""
RETRY_S: Final = 0.2
MOVE_TIMEOUT_S: Final = 2.0
"""How long a broker may take to say that it can be a home."""
PREFERENCE_S: Final = 0.1
"""How long the preferred brokers are waited for once another one has answered."""


class Calls(Protocol):
    """How brokers are asked."""

    def call(self, broker: str, method: str, *args: Any) -> Coroutine[Any, Any, Any]:
        """Raises BrokerGoneError when the broker itself cannot be asked, and whatever it raises."""
        ...

    async def names(self) -> list[str]:
        """The brokers there are, those to try first at the front."""
        ...

    def place(self, found: Sequence[Any]) -> DestinationPlace:
        """What ``locate`` of a broker answered."""
        ...

    def led_by(self, found: Sequence[Any]) -> str:
        """The broker that has to be asked instead of the one that answered ``locate`` so; "": none."""
        ...

    outside: bool
    """See Directory."""

    def identify(self, broker: str, client_id: str, instance: str) -> Coroutine[Any, Any, None]:
        """See Directory; where the client logs in from now on it has that id."""
        ...

    def close(self) -> None:
        """Nobody asks any more."""
        ...


def _seen(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task whose error is no news if nobody waits for it any more."""
    task = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


class ClusterDirectory:
    """``home``: the broker to begin with; ``pinned``: it was named, so that no other will do."""

    collocated = False

    def __init__(self, calls: Calls, home: str, *, pinned: bool) -> None:
        self._calls = calls
        self._home = home
        self._pinned = pinned
        self._moving = asyncio.Lock()
        self._waiting: dict[asyncio.Future[Any], str] = {}
        """Calls that are not answered yet → the home broker that was asked."""

    @property
    def outside(self) -> bool:
        return self._calls.outside

    @property
    def home(self) -> str:
        return self._home

    async def _call_home(self, method: str, *args: Any) -> Any:
        """Ask the home broker; when it is gone, the next call goes to another one."""
        home = self._home
        call = _seen(self._calls.call(home, method, *args))
        self._waiting[call] = home
        try:
            return await call
        except BrokerGoneError:
            await self._move(home)
            raise
        except asyncio.CancelledError:
            if call in self._waiting:
                raise  # It was not we who gave it up.
            raise BrokerGoneError(f"broker {home} does not answer; {self._home} is asked from now on") from None
        finally:
            self._waiting.pop(call, None)

    async def _ask_at(self, broker: str | None, method: str, *args: Any) -> Any:
        """Ask a broker; None: the home broker."""
        if broker and broker != self._home:
            return await self._calls.call(broker, method, *args)
        return await self._call_home(method, *args)

    async def doubt(self, home: str, patience_s: float) -> None:
        """Ask another broker from now on unless our home broker answers within ``patience_s`` seconds.

        Who could take its place is found out meanwhile. One that was named stays.
        """
        if self._pinned:
            return
        other = _seen(self._successor(home))
        try:
            if await self._answers(home, patience_s):
                return
            found = await other
        finally:
            other.cancel()
        if found and self._home == home:
            self._home = found
        if self._home != home:
            for call in [call for call, asked in self._waiting.items() if asked == home]:
                del self._waiting[call]
                call.cancel()

    async def _answers(self, broker: str, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await self._calls.call(broker, "brokers")
        except (BrokerError, TimeoutError):
            return False
        return True

    async def _move(self, lost: str) -> None:
        """Find another home; where there is none, the old one stays the one to try."""
        if self._pinned:
            return
        async with self._moving:
            if self._home != lost:
                return
            found = await self._successor(lost)
            if found:
                self._home = found

    async def _successor(self, lost: str) -> str:
        """A broker that answers, which is not the one that is lost; "" when none does in time."""
        return await self._first([name for name in await self._calls.names() if name != lost])

    async def _first(self, names: list[str]) -> str:
        """The first of these brokers that answers, "" when none does in time; those at the front get a moment more."""
        asked = {_seen(self._calls.call(name, "brokers")): name for name in names}
        waiting = set(asked)
        there: set[asyncio.Future[Any]] = set()
        try:
            async with asyncio.timeout(MOVE_TIMEOUT_S):
                while waiting and not there:
                    done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                    there = {call for call in done if call.exception() is None}
                if waiting:
                    done, _ = await asyncio.wait(waiting, timeout=PREFERENCE_S)
                    there |= {call for call in done if call.exception() is None}
        except TimeoutError:
            pass
        finally:
            for call in asked:
                call.cancel()
        return next((name for call, name in asked.items() if call in there), "")

    # ---- destinations ----------------------------------------------------------------------------------------------

    async def locate(self, kind: str, name: str, create: bool, broker: str | None = None) -> DestinationPlace:
        broker = broker or home_of_temporary(name)
        if broker and broker != self._home:
            guest = not home_of_temporary(name)
            return self._calls.place(await self._calls.call(broker, "locate", kind, name, create, guest))
        found = await self._call_home("locate", kind, name, create)
        leader = self._calls.led_by(found)
        if leader and leader != self._home:  # It has one place, which is another broker's.
            found = await self._calls.call(leader, "locate", kind, name, False, True)
        return self._calls.place(found)

    async def create_temporary(self, kind: str, owner: str) -> str:
        return str(await self._call_home("create_temporary", kind, owner))

    async def destroy_temporary(self, kind: str, name: str, owner: str) -> None:
        await self._calls.call(home_of_temporary(name) or self._home, "destroy_temporary", kind, name, owner)

    async def matching(self, pattern: str, broker: str | None = None) -> tuple[int, list[str]]:
        version, names = await self._ask_at(broker, "matching", pattern)
        return version, names

    async def changed(self, version: int, timeout_s: float, broker: str | None = None) -> int:
        return int(await self._ask_at(broker, "changed", version, timeout_s))

    # ---- subscriptions ---------------------------------------------------------------------------------------------

    async def subscribe(self, subscription: KnownSubscription) -> None:
        await self._call_home("subscribe", subscription._asdict())

    async def identify(self, client_id: str, instance: str) -> None:
        await self._calls.identify(self._home, client_id, instance)

    async def unsubscribe(self, client_id: str | None, name: str) -> None:
        await self._call_home("unsubscribe", client_id, name)

    # ---- brokers ---------------------------------------------------------------------------------------------------

    async def brokers(self, broker: str | None = None) -> View:
        version, home, rows = await self._ask_at(broker, "brokers")
        return View(version, home, tuple(KnownBroker(*row) for row in rows))

    async def brokers_changed(self, version: int, timeout_s: float, broker: str | None = None) -> int:
        return int(await self._ask_at(broker, "brokers_changed", version, timeout_s))

    async def members(self, kind: str, name: str) -> dict[str, int]:
        return dict(await self._call_home("members", kind, name))

    async def routes(self, kind: str, name: str, units: list[str], owner: str) -> dict[str, str]:
        found: dict[str, str] = await self._call_home("routes", kind, name, units, owner)
        return found

    async def renew_routes(self, owner: str) -> bool:
        return bool(await self._call_home("renew_routes", owner))

    async def release_routes(self, kind: str, name: str, units: list[str], owner: str) -> None:
        await self._call_home("release_routes", kind, name, units, owner)

    # ---- the rest --------------------------------------------------------------------------------------------------

    async def branch_states(self, key: bytes) -> list[str]:
        found: list[str] = await self._call_home("branch_states", key)
        return found

    async def settings(self) -> dict[str, Any]:
        found: dict[str, Any] = await self._call_home("settings")
        return found

    async def admin(self, verb: str, args: dict[str, Any]) -> Any:
        deadline = asyncio.get_running_loop().time() + READ_PATIENCE_S
        while True:
            try:
                return await self._call_home("admin", verb, args)
            except ConnectionLostError:
                reads = verb.startswith(("list_", "query_", "browse_", "export_"))
                if not reads or asyncio.get_running_loop().time() > deadline:
                    raise
                await sleep_waited_for(RETRY_S)

    async def close(self) -> None:
        self._calls.close()
