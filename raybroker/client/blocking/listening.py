# Generated from raybroker/client/aio/listening.py: change that file, then run `python -m tests.tidy.blocking_face`.
"""The calls of a session's listeners, and what ends each of them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from raybroker.client.blocking.serving import Serving
from raybroker.client.blocking.waiting import result, run
from raybroker.client.consumer.lost_consumers import ConsumerHandles
from raybroker.client.consumer.message import Message
from raybroker.client.consumer.multi_broker import AnyConsumer
from raybroker.client.io.io_thread import fulfil
from raybroker.client.listener.batching import Batching
from raybroker.client.listener.handler import Handler, give_up, judge
from raybroker.client.listener.in_call import in_call, is_in_call
from raybroker.client.session.session import SessionCore
from raybroker.model.errors import BrokerError, ConnectionLostError

log = logging.getLogger("raybroker.listener")


class Listening:
    """Calls listeners serially, one message at a time, for all consumers of a session. ``come_back``: acknowledges what
    was handed out before, ``commit``: ends a transaction."""

    def __init__(
        self,
        core: SessionCore,
        consumers: ConsumerHandles[Any],
        come_back: Callable[[], Any],
        commit: Callable[[], Any],
    ) -> None:
        self._core = core
        self._consumers = consumers
        self._come_back = come_back
        self._end_batch = commit
        self._batching: Batching | None = None
        if self._core.transactions is not None:
            self._batching = Batching(self._core.connection.attributes["maxMessagesInTransaction"])
        self._called: AnyConsumer | None = None
        """The consumer whose next message is handed to its listener."""
        self._awaited: list[Future[None]] = []
        """Of those who wait for the end of that."""
        self._serving = Serving()
        self._core.listen(self._serving.wake)
        self._serving.start(self._serve)

    def work(self) -> None:
        """Something may have come."""
        self._serving.wake()

    def calls(self, consumer: AnyConsumer) -> bool:
        """Whether what runs here is a call of that consumer's listener."""
        return self._called is consumer and is_in_call(self._core)

    def call_of(self, consumer: AnyConsumer) -> None:
        """Wait for the call of a consumer's listener that runs, if one does, unless this is inside of a call."""
        if self._called is not consumer or is_in_call(self._core):
            return
        ended: Future[None] = Future()
        self._awaited.append(ended)
        if self._called is not consumer:
            fulfil(ended, None)
        result(self._core.connection.io, ended)

    def stop(self) -> None:
        """End after the call that runs; the session says that it is closed."""
        self._serving.wake()
        self._serving.ended()
        self._core.connection.io.count_resident(-1)

    @property
    def _ends(self) -> bool:
        """The process ends, and its connections have ended: what is in hand comes again, and nobody is to be told."""
        return bool(self._core.connection.io.unusable)

    def _serve(self) -> None:
        try:
            self._serve_all()
        except BaseException:
            if not self._ends:
                raise

    def _serve_all(self) -> None:
        while not self._core.ending:
            self._serving.woken()
            busy = True
            while busy and not self._core.ending:
                busy = False
                for consumer in list(self._consumers.kept.values()):
                    busy = self._serve_one(consumer) or busy
            self._commit()

    def _serve_one(self, core: AnyConsumer) -> bool:
        """Hand one message to the listener; False when there is none."""
        self._called = core  # Before the look at its listener: who closes it takes that away, and then looks here.
        try:
            return self._serve_next(core)
        finally:
            self._called = None
            if core.listener is None and self._core.mode == "dups_ok":  # The call has closed it, and this ends it.
                self._core.connection.io.post(self._core.flush_lazily)
            while self._awaited:
                fulfil(self._awaited.pop(), None)

    def _serve_next(self, core: AnyConsumer) -> bool:
        handler = core.listener
        if not isinstance(handler, Handler) or core.closed:
            return False
        try:
            message = core.take_one()
        except BrokerError as error:
            if self._ends:
                raise
            log.error("the listener of %s is called no more: %s", core.name, error)
            core.listener = None
            return False
        if message is None:
            core.wait(0)
            return False
        self._core.handed.in_hand = message
        try:
            with in_call(self._core):
                self._serving.call(handler, message)
        except BaseException as error:  # What ends a call is its message's failure.
            if self._serving.is_ended_by(error):
                raise
            self._failed(handler, message, error)
        else:
            self._returned()
        finally:
            self._core.handed.in_hand = None
            self._core.handed.call_ended()
        return True

    def _returned(self) -> None:
        if self._batching is None:
            try:
                self._come_back()
            except BrokerError as error:
                self._uncertain(error)
        elif self._batching.called():
            self._commit()

    def _commit(self) -> None:
        """The batch is full, or nothing more is at hand."""
        if self._batching is None or not self._batching.calls:
            return
        try:
            self._end_batch()
        except BrokerError as error:
            self._batching.failed(in_call=False)
            self._uncertain(error)
        else:
            self._batching.committed()

    def _uncertain(self, error: BrokerError) -> None:
        """Report that messages of a listener are not acknowledged: they come again, or their outcome is unknown."""
        if self._ends:
            raise error
        log.warning("what a listener had done with was not acknowledged: %s", error)
        self._core.connection.events.post_failure(error)

    def _failed(self, handler: Handler, message: Message, error: BaseException) -> None:
        if self._ends:
            raise ConnectionLostError(self._core.connection.io.unusable) from error
        verdict = judge(self._core, handler.retries, handler.function, message, error)
        batched = self._batching is not None and self._batching.calls > 0
        if self._batching is not None:
            self._batching.failed(in_call=not verdict.rejects)
        try:
            run(self._core.connection.io, give_up(self._core, message, verdict, batched=batched))
        except ConnectionLostError:  # The message comes again by that.
            pass
        except BrokerError as fault:
            self._uncertain(fault)
