"""An instance of a deployed listener: the sessions and threads that call its function, in an actor or in this process.

It survives everything that happens to its destination: when that is destroyed, damaged or cannot be reached, the
instance says so in its log and stats, waits until it is there again (one that was destroyed is not created again by
it), and attaches again, for as long as it is not stopped.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from raybroker.client.connection.drain_notice import DRAINING, STAYING
from raybroker.client.io.io_thread import ending
from raybroker.client.listener.batching import Batching
from raybroker.client.listener.handler import Verdict, give_up, judge, reason_of, report, require_result
from raybroker.client.listener.listener import Listener
from raybroker.model.batch import Batch
from raybroker.model.errors import BrokerError, ConnectionLostError, IllegalStateError
from raybroker.transport.loops import run_until_stopped

if TYPE_CHECKING:
    from raybroker.client.blocking.handles import Connection, Consumer, Session
    from raybroker.client.connection.events import ConnectionEvent
    from raybroker.client.consumer.message import Message

IDLE_S: Final = 0.2
"""How long a session waits for messages before it looks whether it should stop."""
PAUSE_FIRST_S: Final = 0.1
PAUSE_LONGEST_S: Final = 5.0
"""Between attempts to attach again."""
READY_S: Final = 30.0
"""How long a new instance may take to attach."""
STOP_S: Final = 25.0
"""How long stopping waits for calls that run; their messages come again elsewhere when it is over."""
COUNTS: Final = ("messages", "batches", "redelivered", "failures", "rejected", "reattached")

log = logging.getLogger("raybroker.listener")


class Instance:
    """``connect`` makes a connection with a client id; ``fatal`` is called when a thread failed by our own fault."""

    def __init__(
        self, listener: Listener, connect: Callable[[str | None], Connection], fatal: Callable[[], None]
    ) -> None:
        self.listener = listener
        self.stopping = threading.Event()
        self._leaves = threading.Event()
        """Its node is drained, or it stops."""
        self.last_error: str | None = None
        self._connect = connect
        self._fatal = fatal
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = threading.Condition()
        self._workers = [_Worker(self) for _ in range(listener.concurrency)]
        for worker in self._workers:
            worker.thread.start()

    def connection(self, broken: Connection | None = None) -> Connection:
        """The connection that all sessions share; a new one in place of ``broken``."""
        with self._lock:
            if self._connection is None or self._connection is broken:
                old, self._connection = self._connection, None
                if old is not None:
                    old.close()
                self._connection = self._connect(self.listener.client_id)
                self._connection.on_event(self._told)
                self._connection.start()
            return self._connection

    def _told(self, event: ConnectionEvent) -> None:
        if event.kind == DRAINING:
            self._leaves.set()
        elif event.kind == STAYING and not self.stopping.is_set():
            self._leaves.clear()

    def wait_to_leave(self) -> bool:
        """Wait until the node is drained: True; or until the instance stops: False."""
        self._leaves.wait()
        return not self.stopping.is_set()

    def run(self, result: Awaitable[object]) -> None:
        """Run a coroutine on the event loop of the instance; returns when it has ended."""
        with self._lock:
            if self._loop is None:
                self._loop = loop = asyncio.new_event_loop()
                threading.Thread(
                    target=run_until_stopped, args=(loop,), name="raybroker-listener-loop", daemon=True
                ).start()
        done: Future[None] = asyncio.run_coroutine_threadsafe(_awaited(result), self._loop)
        done.result()

    def changed(self) -> None:
        """The state of a session has changed."""
        with self._changed:
            self._changed.notify_all()

    def failed(self, error: BaseException) -> None:
        """A session's thread has failed by a fault of this package."""
        log.critical("an instance of the listener %s has failed and ends", self.listener.name, exc_info=error)
        self._fatal()

    def ready(self, timeout_s: float = READY_S) -> None:
        """Wait until every session is attached; raises what keeps one from it, ConnectionLostError after a time."""

        def attached() -> bool:
            return all(worker.state == "running" or worker.refusal is not None for worker in self._workers)

        with self._changed:
            over = not self._changed.wait_for(attached, timeout_s)
        for worker in self._workers:
            if worker.refusal is not None:
                raise worker.refusal
        if over:
            raise ConnectionLostError(
                f"an instance of {self.listener.name} did not attach within {timeout_s:g} s: {self.last_error}"
            )

    def stats(self) -> dict[str, Any]:
        """See :meth:`raybroker.client.listener.pool.Pool.stats`."""
        counts = {name: sum(worker.counts[name] for worker in self._workers) for name in COUNTS}
        states = {worker.state for worker in self._workers}
        state = next((one for one in ("unreachable", "attaching", "running") if one in states), "stopped")
        return {
            **counts,
            "state": state,
            "buffered": sum(worker.buffered() for worker in self._workers),
            "pid": os.getpid(),
            "last_error": self.last_error,
        }

    def leave(self) -> dict[str, Any]:
        """Begin no more calls, and wait STOP_S for those that run, which go on; "stopped" in the stats: there are
        none."""
        self.stopping.set()
        self._leaves.set()
        for worker in self._workers:
            worker.thread.join(STOP_S)
        return self.stats()

    def stop(self) -> dict[str, Any]:
        """End after the calls that run; what is buffered goes back. Returns the last stats."""
        found = self.leave()
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
        return found


class _Worker:
    """One session with one consumer, and the thread that calls the function with what comes."""

    def __init__(self, instance: Instance) -> None:
        self.counts = dict.fromkeys(COUNTS, 0)
        self.state = "attaching"
        self.refusal: BrokerError | None = None
        """Why it could not attach at first, when trying again cannot help."""
        self.thread = threading.Thread(target=self._run, name="raybroker-listener", daemon=True)
        self._instance = instance
        self._listener = instance.listener
        self._connection: Connection | None = None
        self._session: Session
        self._consumer: Consumer | None = None
        self._batching = Batching(self._listener.calls_max)
        self._attached_before = False

    def buffered(self) -> int:
        consumer = self._consumer
        return int(consumer.info()["buffered"]) if consumer is not None else 0

    def _run(self) -> None:
        stopping, pause_s = self._instance.stopping, PAUSE_FIRST_S
        step = self._step_in_transaction if self._listener.transacted else self._step
        try:
            while not stopping.is_set():
                try:
                    self._attach()
                    pause_s = PAUSE_FIRST_S
                    while not stopping.is_set():
                        step()
                except BrokerError as error:
                    if ending():  # What is in hand comes again, and nobody is to be told.
                        return
                    self._lost(error)
                    stopping.wait(pause_s)
                    pause_s = min(pause_s * 2, PAUSE_LONGEST_S)
            self._leave()
        except BaseException as error:  # noqa: BLE001 - a thread that ends without a word would be a pool that is dead
            if ending():
                return
            self._set("stopped")
            self._instance.failed(error)

    # ---- attaching -------------------------------------------------------------------------------------------------

    def _attach(self) -> None:
        listener, where = self._listener, self._listener.destination
        self._connection = self._instance.connection(self._connection if self.state == "unreachable" else None)
        if self._attached_before and not where.is_pattern:
            self._connection.admin().query_destination(where.kind, where.name)  # Raises while it is not there again.
        self._session = session = self._connection.session(ack="client", transacted=listener.transacted)
        if session._core.transactions is not None:
            session._core.transactions.ends_with_calls = True
        options: dict[str, Any] = {
            "prefetch": listener.prefetch,
            "prefetch_cost": listener.prefetch_cost,
            "serializer": listener.serializer,
            **listener.deliveries._asdict(),
            "batch": listener.batch if isinstance(listener.batch, Batch) else None,
        }
        try:
            if listener.subscription is None:
                self._consumer = session.consumer(where, listener.selector, **options)
            else:
                kind = "shared_durable" if listener.shared and listener.durable else "shared"
                opened = getattr(session, f"{kind if listener.shared else 'durable'}_consumer")
                self._consumer = opened(where, listener.subscription, listener.selector, **options)
        except BrokerError:
            session.close()
            raise
        if self._attached_before:
            self.counts["reattached"] += 1
            log.warning("the listener %s is attached to %s again", listener.name, where.text)
        self._attached_before = True
        self._set("running")

    def _lost(self, error: BrokerError) -> None:
        """The consumer has ended, or could not be opened."""
        instance, where = self._instance, self._listener.destination
        said = repr(error)
        if self.state == "running" or instance.last_error != said:
            log.error("the listener %s lost %s and tries to attach again: %s", self._listener.name, where.text, error)
        instance.last_error = said
        if not self._attached_before and not error.retryable:
            self.refusal = error
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            self._batching = Batching(self._listener.calls_max)
            try:
                self._session.close()
            except BrokerError:  # What it held comes again by itself.
                pass
        self._set("unreachable" if isinstance(error, ConnectionLostError | IllegalStateError) else "attaching")

    def _leave(self) -> None:
        """End the session properly."""
        try:
            if self._batching.calls:
                self._commit()
            if self._consumer is not None:
                self._session.close()
        except BrokerError as error:
            self._instance.last_error = repr(error)
        self._set("stopped")

    def _set(self, state: str) -> None:
        self.state = state
        self._instance.changed()

    # ---- calling ---------------------------------------------------------------------------------------------------

    def _call(self, argument: Any) -> None:
        result = self._listener.function(argument)
        if isinstance(result, Awaitable):
            self._instance.run(result)
        elif result is not None:
            require_result(self._listener.function, result)

    def _step(self) -> None:
        batching, consumer, batch = self._batching, self._consumer, self._listener.batch
        assert consumer is not None
        if isinstance(batch, Batch):
            messages = consumer.receive_batch(timeout=IDLE_S)
        else:
            messages = consumer.receive_many(1 if batching.alone else batch, timeout=IDLE_S)
        if not messages:
            return
        batching.alone = max(batching.alone - 1, 0)
        try:
            self._call(messages[0] if batch == 1 else messages)
        except BaseException as error:  # Whatever ends a call is its messages' failure.
            if ending():
                raise
            self._failed(messages, error)
            return
        try:
            messages[-1].acknowledge()
        except (ConnectionLostError, IllegalStateError) as error:  # They come again.
            if ending():
                raise
            self._instance.last_error = repr(error)
            log.warning("what the listener %s had done with was not acknowledged: %s", self._listener.name, error)
            return
        self._count(messages)

    def _count(self, messages: list[Message]) -> None:
        self.counts["messages"] += len(messages)
        self.counts["batches"] += 1
        self.counts["redelivered"] += sum(message.redelivered for message in messages)

    def _step_in_transaction(self) -> None:
        """One call, or the end of a transaction: when it is full, or when no next message is at hand."""
        batching, consumer = self._batching, self._consumer
        assert consumer is not None
        message = consumer.receive_nowait() if batching.calls else consumer.receive(IDLE_S)
        if message is None:
            if batching.calls:
                self._commit()
            return
        self.counts["redelivered"] += message.redelivered
        try:
            self._call(message)
        except BaseException as error:  # As above.
            if ending():
                raise
            batched = batching.calls > 0
            verdict = self._judged(message, error)
            batching.failed(in_call=not verdict.rejects)
            self._give_up(message, verdict, batched=batched)
            return
        if batching.called():
            self._commit()

    def _commit(self) -> None:
        calls = self._batching.calls
        try:
            self._session.commit()
        except BrokerError as error:
            if ending():
                raise
            self._instance.last_error = repr(error)
            self._batching.failed(in_call=False)
            log.warning("the transaction of the listener %s was not committed: %s", self._listener.name, error)
            return
        self._batching.committed()
        self.counts["messages"] += calls
        self.counts["batches"] += 1

    def _failed(self, messages: list[Message], error: BaseException) -> None:
        """Deal with a failed call; of several messages nobody knows which one it was: they are tried again one by
        one."""
        if len(messages) == 1:
            self._give_up(messages[0], self._judged(messages[0], error))
            return
        self.counts["failures"] += 1
        self._instance.last_error = repr(error)
        self._batching.alone = len(messages)
        core, where = self._session._core, self._listener.destination
        which = f"one of {len(messages)} messages of {where.name}, from {messages[0].id} on"
        report(core, self._listener.function, which, "they are tried again one by one", error)
        core.connection.io.run(core.recover(0, reason_of(error)))

    def _judged(self, message: Message, error: BaseException) -> Verdict:
        self._instance.last_error = repr(error)
        verdict = judge(self._session._core, self._listener.retries, self._listener.function, message, error)
        self.counts["failures"] += 1
        self.counts["rejected"] += verdict.rejects
        return verdict

    def _give_up(self, message: Message, verdict: Verdict, *, batched: bool = False) -> None:
        core = self._session._core
        core.connection.io.run(give_up(core, message, verdict, batched=batched))


async def _awaited(result: Awaitable[object]) -> None:
    await result
