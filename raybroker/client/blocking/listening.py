"""The thread of a blocking session with listeners, and what ends each of their calls."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable
from typing import Protocol

from raybroker.client.blocking.handles import Consumer, HandleSession
from raybroker.client.consumer.message import Message
from raybroker.client.listener.batching import Batching
from raybroker.client.listener.handler import Handler, give_up, judge, require_result
from raybroker.model.errors import BrokerError, ConnectionLostError

log = logging.getLogger("raybroker.listener")


class ListeningSession(HandleSession, Protocol):
    """A session whose messages go to listeners."""

    closed: bool

    def commit(self) -> None: ...


class Listening:
    """Calls listeners serially, one message at a time, for all consumers of a session.

    A coroutine that a listener returns is run to its end on an event loop of this thread.
    """

    def __init__(self, session: ListeningSession) -> None:
        self._session = session
        self._core = session._core
        self._batching: Batching | None = None
        if self._core.transactions is not None:
            self._batching = Batching(self._core.connection.attributes["maxMessagesInTransaction"])
        self._runner: asyncio.Runner | None = None
        self._wake = threading.Event()
        self._core.listen(self._wake.set)
        self._thread = threading.Thread(target=self._serve, name="raybroker-session", daemon=True)
        self._thread.start()

    def work(self) -> None:
        """Something may have come."""
        self._wake.set()

    def stop(self) -> None:
        """End after the call that runs; the session says that it is closed."""
        self._wake.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _serve(self) -> None:
        session = self._session
        while not session.closed:
            self._wake.wait()
            self._wake.clear()
            busy = True
            while busy and not session.closed:
                busy = False
                for consumer in list(session._consumers.kept):
                    busy = self._serve_one(consumer) or busy
            self._commit()
        if self._runner is not None:
            self._runner.close()

    def _serve_one(self, consumer: Consumer) -> bool:
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
            if result is not None:
                self._run(handler, result)
        except BaseException as error:  # noqa: BLE001 - whatever ends a call is its message's failure, not the thread's
            self._failed(handler, message, error)
        else:
            self._returned()
        finally:
            self._core.in_hand = None
            self._core.call_ended()
        return True

    def _run(self, handler: Handler, result: object) -> None:
        if isinstance(result, Awaitable):
            if self._runner is None:
                self._runner = asyncio.Runner()
            self._runner.run(_awaited(result))
        else:
            require_result(handler.function, result)

    def _returned(self) -> None:
        if self._batching is None:
            try:
                self._session._come_back()
            except BrokerError as error:
                self._uncertain(error)
        elif self._batching.called():
            self._commit()

    def _commit(self) -> None:
        """The batch is full, or nothing more is at hand."""
        if self._batching is None or not self._batching.calls:
            return
        try:
            self._session.commit()
        except BrokerError as error:
            self._batching.failed(in_call=False)
            self._uncertain(error)
        else:
            self._batching.committed()

    def _uncertain(self, error: BrokerError) -> None:
        """What the listener has done with is not acknowledged: it comes again, or its outcome is unknown."""
        log.warning("what a listener had done with was not acknowledged: %s", error)
        self._core.connection.events.post_failure(error)

    def _failed(self, handler: Handler, message: Message, error: BaseException) -> None:
        verdict = judge(self._core, handler.retries, handler.function, message, error)
        batched = self._batching is not None and self._batching.calls > 0
        if self._batching is not None:
            self._batching.failed(in_call=not verdict.rejects)
        try:
            self._core.connection.io.run(give_up(self._core, message, verdict, batched=batched))
        except ConnectionLostError:  # The message comes again by that.
            pass
        except BrokerError as fault:
            self._uncertain(fault)


async def _awaited(result: Awaitable[object]) -> None:
    await result
