"""The task of an asynchronous session with listeners (R-06), and what ends each of their calls."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from raybroker.client.batching import Batching
from raybroker.model.errors import BrokerError

if TYPE_CHECKING:
    from raybroker.client.aio import Session
    from raybroker.client.aio_handles import Consumer


class Listening:
    """See :class:`raybroker.client.listening.Listening`."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._core = session._core
        self._batching: Batching | None = None
        if self._core.work is not None:
            self._batching = Batching(self._core.connection.attributes["maxMessagesInTransaction"])
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._core.wake_listeners = self._wake_up
        self._task = asyncio.ensure_future(self._serve())

    def _wake_up(self) -> None:
        """Called on the IO thread."""
        with contextlib.suppress(RuntimeError):  # The application's loop is closed: nobody listens any more.
            self._loop.call_soon_threadsafe(self._wake.set)

    def work(self) -> None:
        self._wake.set()

    async def stop(self) -> None:
        self._wake.set()
        if self._task is not asyncio.current_task():
            await self._task

    async def _serve(self) -> None:
        session = self._session
        while not session.closed:
            await self._wake.wait()
            self._wake.clear()
            busy = True
            while busy and not session.closed:
                busy = False
                for consumer in list(session._consumers):
                    busy = await self._serve_one(consumer) or busy
            await self._commit()

    async def _serve_one(self, consumer: Consumer) -> bool:
        """Hand one message to the listener; False when there is none."""
        core = consumer._core
        listener = core.listener
        if listener is None or core.closed:
            return False
        try:
            message = core.take_one()
        except BrokerError:
            return False
        if message is None:
            core.wait(0)
            return False
        self._core.in_hand = message
        try:
            result = listener(message)
            if isinstance(result, Awaitable):
                await result
        except Exception:  # noqa: BLE001 - a listener's failure is its message's failure
            await self._failed(in_call=True)
        else:
            await self._returned()
        finally:
            self._core.in_hand = None
        return True

    async def _returned(self) -> None:
        if self._batching is None:
            await self._session._come_back()
        elif self._batching.called():
            await self._commit()

    async def _commit(self) -> None:
        """The batch is full, or nothing more is at hand (W-42)."""
        if self._batching is None or not self._batching.calls:
            return
        try:
            await self._session.commit()
        except BrokerError:
            self._batching.failed(in_call=False)
        else:
            self._batching.committed()

    async def _failed(self, *, in_call: bool) -> None:
        with contextlib.suppress(BrokerError):
            if self._batching is None:
                await self._session.recover()
            else:
                self._batching.failed(in_call=in_call)
                await self._session.rollback()
