"""An instance of a listener over a scripted connection: what is called, acknowledged and told, and how it attaches."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import raybroker as rb
from raybroker.client.connection.events import ConnectionEvent
from raybroker.client.listener import instance as module
from raybroker.client.listener.instance import Instance
from raybroker.model.errors import ConnectionLostError, InvalidDestinationError

WAIT_S = 60.0


class Message:
    def __init__(self, body: str) -> None:
        self.body = self.id = self.destination = body
        self.redelivered, self.delivery_count = False, 1
        self.acknowledged = threading.Event()

    def acknowledge(self) -> None:
        self.acknowledged.set()


class Connection:
    """Its sessions get what the test puts into ``messages``; an exception there is raised. ``refuses``: to open."""

    def __init__(self, *refuses: Exception) -> None:
        self.messages: queue.Queue[Any] = queue.Queue()
        self.refuses = list(refuses)
        self.opened: list[tuple[Any, ...]] = []
        self.commits: queue.Queue[int] = queue.Queue()
        self.closed = threading.Event()

    def on_event(self, handler: Callable[[ConnectionEvent], object]) -> None:
        self.tell = handler

    def start(self) -> None: ...

    def close(self) -> None:
        self.closed.set()

    def admin(self) -> Any:
        return SimpleNamespace(query_destination=lambda kind, name: None)

    def session(self, *, ack: str, transacted: bool) -> Any:
        return SimpleNamespace(
            consumer=lambda where, selector, **options: self._open("consumer", where.name, selector),
            shared_durable_consumer=lambda where, name, selector, **options: self._open("shared_durable", name),
            durable_consumer=lambda where, name, selector, **options: self._open("durable", name),
            close=lambda: None,
            commit=lambda: self.commits.put(1),
            _core=SimpleNamespace(transactions=None),
        )

    def _open(self, *what: Any) -> Any:
        if self.refuses:
            raise self.refuses.pop(0)
        self.opened.append(what)
        return SimpleNamespace(
            receive=self._receive,
            receive_nowait=lambda: self._receive(0),
            receive_many=self._many,
            info=lambda: {"buffered": 4},
        )

    def _receive(self, timeout: float) -> Any:
        try:
            found = self.messages.get(timeout=timeout) if timeout else self.messages.get_nowait()
        except queue.Empty:
            return None
        if isinstance(found, Exception):
            raise found
        return found

    def _many(self, most: int, timeout: float) -> list[Any]:
        first = self._receive(timeout)
        found = [] if first is None else [first]
        while found and len(found) < most and (another := self._receive(0)) is not None:
            found.append(another)
        return found


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_S", 0.005)
    monkeypatch.setattr(module, "PAUSE_FIRST_S", 0.001)


class World:
    """``got``: what the function was called with; ``fatal``: how often the instance failed by our own fault."""

    def __init__(self, connection: Connection, function: Callable[[Any], Any] | None = None, **options: Any) -> None:
        self.connection = connection
        self.got: queue.Queue[Any] = queue.Queue()
        self.fatal = threading.Event()
        options.setdefault("queue", "q")
        listener = rb.listener(**options)(function or self.got.put)
        connect: Any = lambda client_id: connection
        self.instance = Instance(listener, connect, self.fatal.set)

    def put(self, *bodies: str) -> list[Message]:
        found = [Message(body) for body in bodies]
        for message in found:
            self.connection.messages.put(message)
        return found


def test_a_message_is_acknowledged_once_the_function_has_returned() -> None:
    world = World(Connection())
    world.instance.ready(WAIT_S)
    (message,) = world.put("a")
    assert world.got.get(timeout=WAIT_S) is message
    assert message.acknowledged.wait(WAIT_S)
    stats = world.instance.stop()
    assert (stats["messages"], stats["batches"], stats["failures"], stats["state"]) == (1, 1, 0, "stopped")
    assert world.connection.opened == [("consumer", "q", None)]
    assert world.connection.closed.is_set()


def test_a_coroutine_is_run_to_its_end_before_its_message_is_acknowledged() -> None:
    ran = threading.Event()

    async def function(message: Any) -> None:
        ran.set()

    world = World(Connection(), function)
    (message,) = world.put("a")
    assert message.acknowledged.wait(WAIT_S)
    assert ran.is_set()
    world.instance.stop()


def test_a_batch_is_acknowledged_with_its_last_message() -> None:
    connection = Connection()
    first, last = Message("a"), Message("b")
    connection.messages.put(first)
    connection.messages.put(last)
    world = World(connection, batch=2)
    assert world.got.get(timeout=WAIT_S) == [first, last]
    assert last.acknowledged.wait(WAIT_S)
    assert not first.acknowledged.is_set(), "the session acknowledges what came before with it"
    assert world.instance.stop()["messages"] == 2


def test_calls_are_committed_when_no_next_message_is_at_hand() -> None:
    connection = Connection()
    for body in "abc":
        connection.messages.put(Message(body))
    world = World(connection, transacted=True, batch=2)
    for _ in range(2):
        connection.commits.get(timeout=WAIT_S)
    stats = world.instance.stop()
    assert (stats["messages"], stats["batches"]) == (3, 2)


def test_a_subscription_is_opened_as_it_was_declared() -> None:
    world = World(Connection(), queue=None, topic="t", subscription="s", shared=True)
    world.instance.ready(WAIT_S)
    world.instance.stop()
    assert world.connection.opened == [("shared_durable", "s")]


def test_an_instance_that_loses_its_consumer_attaches_again() -> None:
    world = World(Connection())
    world.instance.ready(WAIT_S)
    world.connection.messages.put(InvalidDestinationError("q was destroyed"))
    (message,) = world.put("a")
    assert message.acknowledged.wait(WAIT_S)
    stats = world.instance.stop()
    assert (stats["reattached"], "q was destroyed" in stats["last_error"]) == (1, True)
    assert len(world.connection.opened) == 2


def test_a_broken_connection_is_replaced() -> None:
    first, second = Connection(), Connection()
    connections = [first, second]
    connect: Any = lambda client_id: connections.pop(0)
    instance = Instance(rb.listener(queue="q")(lambda message: None), connect, lambda: None)
    instance.ready(WAIT_S)
    first.messages.put(ConnectionLostError("cut"))
    message = Message("a")
    second.messages.put(message)
    assert message.acknowledged.wait(WAIT_S)
    assert first.closed.is_set()
    instance.stop()


def test_what_cannot_get_better_is_raised_by_ready_and_what_can_is_tried_again() -> None:
    refused = World(Connection(*[InvalidDestinationError("no such queue")] * 3))
    with pytest.raises(InvalidDestinationError, match="no such queue"):
        refused.instance.ready(WAIT_S)
    refused.instance.stop()
    later = World(Connection(ConnectionLostError("not yet")))
    later.instance.ready(WAIT_S)
    assert later.instance.stop()["reattached"] == 0


def test_an_instance_that_does_not_attach_in_time_says_what_it_waits_for() -> None:
    world = World(Connection(*[ConnectionLostError("not yet")] * 100_000))
    with pytest.raises(ConnectionLostError, match=r"did not attach within 0.05 s: .*not yet"):
        world.instance.ready(0.05)
    world.instance.stop()


def test_a_fault_of_our_own_ends_the_instance() -> None:
    world = World(Connection())
    world.instance.ready(WAIT_S)
    world.connection.messages.put(ZeroDivisionError("ours"))
    assert world.fatal.wait(WAIT_S)
    assert world.instance.stats()["state"] == "stopped"


def test_an_instance_hears_that_its_node_is_drained_and_leaves_without_closing() -> None:
    release, begun = threading.Event(), threading.Event()

    def function(message: Any) -> None:
        begun.set()
        release.wait(WAIT_S)

    world = World(Connection(), function)
    world.instance.ready(WAIT_S)
    (message,) = world.put("a")
    assert begun.wait(WAIT_S)
    world.connection.tell(ConnectionEvent("draining", "h"))
    assert world.instance.wait_to_leave()
    left: list[Any] = []
    leaving = threading.Thread(target=lambda: left.append(world.instance.leave()))
    leaving.start()
    assert not world.connection.closed.is_set(), "the call that runs has its connection"
    release.set()
    leaving.join(WAIT_S)
    assert left[0]["state"] == "stopped"
    assert message.acknowledged.is_set()
    world.instance.stop()
    assert world.connection.closed.is_set()


def test_who_waits_for_a_drain_is_let_go_when_the_instance_stops() -> None:
    world = World(Connection())
    world.instance.ready(WAIT_S)
    world.connection.tell(ConnectionEvent("draining", "h"))
    world.connection.tell(ConnectionEvent("staying", "h"))
    said: list[bool] = []
    waiting = threading.Thread(target=lambda: said.append(world.instance.wait_to_leave()))
    waiting.start()
    world.instance.stop()
    waiting.join(WAIT_S)
    assert said == [False]
