"""Message-driven consumer actors (``rb.deploy``): each holds a prefetch buffer and calls a function with what comes.

Survives a crash: nothing of a consumer, and nothing needs to; what it had not acknowledged goes to the others and comes
back to it, flagged, when Ray has restarted it.  A message is acknowledged, and confirmed, after the function returned.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from raybroker.actors import runtime
from raybroker.client.batching import Batching
from raybroker.client.factory import connect
from raybroker.client.listener import Listener
from raybroker.model.errors import BrokerError, ConfigError, ConnectionLostError, TransactionRolledBackError

IDLE_S = 0.2
"""How long a consumer waits for messages before it looks whether it should stop."""
INSTANCES_MAX = 1000


class ConsumerActor:
    """One consumer. ``stats`` may be called at any time; ``stop`` ends it after the message in hand."""

    def __init__(self, cluster: str, listener: Listener) -> None:
        self._listener = listener
        self._connection = connect(cluster=cluster)
        self._connection.start()
        self._session = self._connection.session(ack="client", transacted=listener.transacted)
        self._consumer = self._session.consumer(
            listener.queue, listener.selector, prefetch=listener.prefetch, serializer=listener.serializer
        )
        self._batching = Batching(listener.batch)
        self._stopping = threading.Event()
        self._counts = {"messages": 0, "batches": 0, "redelivered": 0, "failures": 0}
        self._last_error: str | None = None
        self._thread = threading.Thread(target=self._run, name="raybroker-listener", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        step = self._step_in_transaction if self._listener.transacted else self._step
        while not self._stopping.is_set():
            try:
                step()
            except ConnectionLostError as error:
                self._last_error = repr(error)
                os._exit(1)
            except BrokerError as error:
                self._last_error = repr(error)
                return

    def _step(self) -> None:
        messages = self._consumer.receive_many(self._listener.batch, timeout=IDLE_S)
        if messages:
            self._handle(messages)

    def _step_in_transaction(self) -> None:
        """One call, or the end of a transaction: when it is full, or when no next message is at hand (W-42)."""
        batching = self._batching
        message = self._consumer.receive_nowait() if batching.calls else self._consumer.receive(IDLE_S)
        try:
            if message is not None:
                self._counts["redelivered"] += message.redelivered
                self._listener.function(message)
        except Exception as error:  # noqa: BLE001 - a listener's failure is its messages' failure
            self._counts["failures"] += 1
            self._last_error = repr(error)
            batching.failed(in_call=True)
            self._session.rollback()
            return
        if (message is not None and batching.called()) or (message is None and batching.calls):
            self._commit()

    def _commit(self) -> None:
        calls = self._batching.calls
        try:
            self._session.commit()
        except (TransactionRolledBackError, ConnectionLostError) as error:
            self._last_error = repr(error)
            self._batching.failed(in_call=False)
            return
        self._batching.committed()
        self._counts["messages"] += calls
        self._counts["batches"] += 1

    def _handle(self, messages: list[Any]) -> None:
        counts = self._counts
        redelivered = sum(m.redelivered for m in messages)
        try:
            self._listener.function(messages if self._listener.batch > 1 else messages[0])
        except Exception as error:  # noqa: BLE001 - a listener's failure is its messages' failure
            counts["failures"] += 1
            self._last_error = repr(error)
            self._session.recover()
            return
        try:
            messages[-1].acknowledge()
        except ConnectionLostError:
            return
        counts["messages"] += len(messages)
        counts["batches"] += 1
        counts["redelivered"] += redelivered

    def stats(self) -> dict[str, Any]:
        """Messages, batches, redelivered, failures, buffered, process id, last error."""
        return {
            **self._counts, "buffered": self._consumer.info()["buffered"], "pid": os.getpid(),
            "last_error": self._last_error,
        }  # fmt: skip

    def stop(self) -> dict[str, Any]:
        """End after what is in hand; what is buffered goes back to the queue."""
        self._stopping.set()
        self._thread.join()
        if self._batching.calls:
            self._commit()
        found = self.stats()
        self._connection.close()
        return found


class Pool:
    """Consumers that share a queue. They end with the process that deployed them."""

    def __init__(self, listener: Listener, actors: list[Any]) -> None:
        self.listener = listener
        self.actors = actors

    def stats(self) -> list[dict[str, Any]]:
        """One dict an instance; an instance that cannot answer now has only "error"."""
        found = []
        for actor in self.actors:
            try:
                found.append(runtime.call_blocking(actor.stats))
            except BrokerError as error:
                found.append({"error": str(error)})
        return found

    def stop(self) -> list[dict[str, Any]]:
        """Stop every instance; returns their last stats."""
        found = []
        for actor in self.actors:
            try:
                found.append(runtime.call_blocking(actor.stop))
            except BrokerError as error:
                found.append({"error": str(error)})
            runtime.kill(actor)
        self.actors = []
        return found


def deploy(
    listener: Listener, instances: int = 1, actor_options: dict[str, Any] | None = None, *, cluster: str = "default"
) -> Pool:
    """Start ``instances`` consumer actors for a function marked with ``@rb.listener`` (F-01).

    actor_options  options of Ray for each actor, such as {"num_cpus": 1}
    """
    if not isinstance(listener, Listener):
        raise ConfigError("rb.deploy takes a function marked with @rb.listener(queue=…)")
    if not 1 <= instances <= INSTANCES_MAX:
        raise ConfigError(f"instances={instances}; it is 1 to {INSTANCES_MAX}")
    runtime.join_ray()
    options = {"max_concurrency": 4, **(actor_options or {})}
    actors = [runtime.create_actor(ConsumerActor, cluster, listener, name=None, **options) for _ in range(instances)]
    for actor in actors:
        runtime.call_blocking(actor.stats)
    return Pool(listener, actors)
