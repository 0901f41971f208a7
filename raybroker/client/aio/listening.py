"""The task of an asynchronous session with listeners, and what ends each of their calls."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable
from typing import Protocol

from raybroker.client.aio.handles import Consumer, HandleSession
from raybroker.client.consumer.message import Message
from raybroker.client.listener.batching import Batching
from raybroker.client.listener.handler import Handler, give_up, judge, require_result
from raybroker.model.errors import BrokerError, ConnectionLostError

log = logging.getLogger("raybroker.listener")


class ListeningSession(HandleSession, Protocol):
    """A session whose messages go to listeners."""

    closed: bool

    async def commit(self) -> None: ...


class Listening:
    """See :class:`raybroker.client.blocking.listening.Listening`."""

    def __init__(self, session: ListeningSession) -> None:
        self._session = session
        self._core = session._core
        self._batching: Batching | None = None
        if self._core.transactions is not None:
            self._batching = Batching(self._core.connection.attributes["maxMessagesInTransaction"])
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._core.listen(self._wake_up)
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
                for consumer in list(session._consumers.kept):
                    busy = await self._serve_one(consumer) or busy
            await self._commit()

    async def _serve_one(self, consumer: Consumer) -> bool:
        """Hand one message to the listener; False when there is none."""
        core = consumer._core
        handler = core.listener
        if not isinstance(handler, Handler) or core.closed:
            return False
        try:
            message = core.take_one()
        except BrokerError as error:
            log.error("the listener of %s is called no more: %s", core.name, error)
            core.listener = None
            return False
        if message is None:
            core.wait(0)
            return False
        self._core.in_hand = message
        try:
            result = handler.function(message)
            if isinstance(result, Awaitable):
                await result
            elif result is not None:
                require_result(handler.function, result)
        except asyncio.CancelledError as error:
            if self._is_cancelled():
                raise
            await self._failed(handler, message, error)
        except Exception as error:  # noqa: BLE001 - a listener's failure is its message's failure
            await self._failed(handler, message, error)
        else:
            await self._returned()
        finally:
            self._core.in_hand = None
            self._core.call_ended()
        return True

    def _is_cancelled(self) -> bool:
        """The session's own task is to end; otherwise what the listener awaited was cancelled."""
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0

    async def _returned(self) -> None:
        if self._batching is None:
            try:
                await self._session._come_back()
            except BrokerError as error:
                self._uncertain(error)
        elif self._batching.called():
            await self._commit()

    async def _commit(self) -> None:
        """The batch is full, or nothing more is at hand."""
        if self._batching is None or not self._batching.calls:
            return
        try:
            await self._session.commit()
        except BrokerError as error:
            self._batching.failed(in_call=False)
            self._uncertain(error)
        else:
            self._batching.committed()

    def _uncertain(self, error: BrokerError) -> None:
        log.warning("what a listener had done with was not acknowledged: %s", error)
        self._core.connection.events.post_failure(error)

    async def _failed(self, handler: Handler, message: Message, error: BaseException) -> None:
        verdict = judge(self._core, handler.retries, handler.function, message, error)
        batched = self._batching is not None and self._batching.calls > 0
        if self._batching is not None:
            self._batching.failed(in_call=not verdict.rejects)
        try:
            await self._session._run(give_up(self._core, message, verdict, batched=batched))
        except ConnectionLostError:  # The message comes again by that.
            pass
        except BrokerError as fault:
            self._uncertain(fault)
