"""A queue in memory with the handles' public names, for the load generator's tests."""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


class FakeMessage:
    """A body and the flags that the generator looks at."""

    def __init__(self, body: bytes, acknowledged: list[bytes]) -> None:
        self.body, self.redelivered, self._acknowledged = body, False, acknowledged

    def acknowledge(self) -> None:
        self._acknowledged.append(self.body)


class FakeConnection:
    """Connection, session, producer and consumer in one; ``on_send`` runs at each send and may block or raise."""

    def __init__(self, on_send: Callable[[], None] = lambda: None) -> None:
        self.waiting: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.acknowledged: list[bytes] = []
        self.calls: set[str] = set()
        self._on_send = on_send

    def start(self) -> None:
        self.calls.add("start")

    def close(self) -> None:
        pass

    def session(self, ack: str = "auto") -> FakeConnection:
        self.calls.add(f"session {ack}")
        return self

    def queue(self, name: str) -> str:
        return name

    def producer(self, _queue: str, persistent: bool) -> FakeConnection:
        self.calls.add("persistent" if persistent else "non-persistent")
        return self

    def consumer(self, _queue: str, prefetch: int | None) -> FakeConnection:
        self.calls.add(f"prefetch {prefetch}")
        return self

    def send(self, body: bytes) -> str:
        self.calls.add("send")
        self._on_send()
        self.waiting.put(body)
        return "id"

    def send_many(self, bodies: list[bytes]) -> None:
        self.calls.add("send_many")
        self._on_send()
        for body in bodies:
            self.waiting.put(body)

    def send_async(self, body: bytes) -> Future[Any]:
        self.calls.add("send_async")
        self._on_send()
        self.waiting.put(body)
        done: Future[Any] = Future()
        done.set_result("id")
        return done

    def receive_many(self, max: int, timeout: float) -> list[FakeMessage]:
        found: list[FakeMessage] = []
        try:
            found.append(FakeMessage(self.waiting.get(timeout=timeout), self.acknowledged))
            while len(found) < max:
                found.append(FakeMessage(self.waiting.get_nowait(), self.acknowledged))
        except queue.Empty:
            pass
        return found
