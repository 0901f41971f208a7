"""Requests of a connection about itself and its producers: what is checked, and what the client hears."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.core import command as cmd
from raybroker.engine.sessions.attachments import Attachments
from raybroker.engine.sessions.connection_requests import SKEW_MS_MAX, ConnectionRequests, ProducerRequests, checks_of
from raybroker.engine.sessions.sessions import ClientSession, Sessions
from raybroker.model.errors import (
    IllegalStateError,
    InvalidClientIDError,
    MemoryLowError,
    ProtocolError,
    SecurityError,
)
from raybroker.model.settings.settings import destination_attributes
from tests.unit.engine.parts import Desk
from tests.unit.engine.rig import RecordingPeer

INCARNATION = 3


class FakeSession:
    """A session that performs at once. ``performed``: commands; ``refuses``: what attaching raises."""

    def __init__(self, executor: Any) -> None:
        self.executor = executor
        self.peer: Any = RecordingPeer()
        self.outbox: Any = None
        self.client = ClientSession(self.peer)
        self.started = True
        self.flow: list[bool] = []
        self.producers: dict[int, Any] = {}
        self.producer_ids: dict[int, int] = {}
        self.performed: list[cmd.Command] = []
        self.refuses: Exception | None = None

    def new_handle(self, args: Any) -> int:
        return int(args["handle"])

    def perform_attach(self, attachment: Any, command: cmd.Command) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.detach(attachment, command)

    def detach(self, attachment: Any, command: cmd.Command) -> None:
        self.performed.append(command)
        self.executor.perform(attachment.destination, command)

    def start(self, started: bool) -> None:
        self.started = started
        self.flow.append(started)


class Asking(Desk):
    """``found``: connections that were heard of."""

    def __init__(self) -> None:
        super().__init__()
        self.sessions = Sessions()
        self.found: list[str] = []
        self.memory: Any = SimpleNamespace(require=self._require, attached=lambda number: None)
        self.memory_is_out = False
        connections = ConnectionRequests(
            self.sessions, self.clock, self.found.append, self.lines.append, incarnation=INCARNATION
        )
        producers = ProducerRequests(self.registry, Attachments(INCARNATION), self.memory, lambda destination: False)
        self.operations: Any = {**connections.operations(), **producers.operations()}
        self.session = self.connected()

    def _require(self, what: str) -> None:
        if self.memory_is_out:
            raise MemoryLowError(what)

    def connected(self) -> FakeSession:
        session = FakeSession(self.executor)
        self.sessions.open[session.client] = None
        return session

    def ask(self, operation: str, session: FakeSession | None = None, **args: Any) -> Any:
        session = session or self.session
        self.operations[operation](session, 5, args)
        ((_, request, answer),) = session.peer.take("reply")
        assert request == 5
        return answer


def test_a_greeting_names_the_connection_and_is_answered_with_the_incarnation() -> None:
    world = Asking()
    now_ms = world.clock.now_ms()
    answer = world.ask("hello", client_id="me", connection="c1", started=False, now_ms=now_ms + SKEW_MS_MAX)
    assert answer == {"incarnation": INCARNATION}
    client = world.session.client
    assert (client.client_id, client.connection, world.session.started) == ("me", "c1", False)
    assert (world.found, world.lines) == (["c1"], [])


@pytest.mark.parametrize("skew_ms", [SKEW_MS_MAX + 1, -SKEW_MS_MAX - 1])
def test_a_clock_that_differs_is_written_to_the_log(skew_ms: int) -> None:
    world = Asking()
    world.ask("hello", client_id="me", now_ms=world.clock.now_ms() + skew_ms)
    (line,) = world.lines
    assert line.startswith(f"[B2102] the clock of client me differs from the broker's by {skew_ms} ms")
    assert world.found == [], "a connection without an id is nobody's"


def test_a_client_id_belongs_to_one_connection_with_all_its_sessions() -> None:
    world = Asking()
    world.ask("hello", client_id="me", connection="c1")
    world.ask("hello", world.connected(), client_id="me", connection="c1")
    with pytest.raises(InvalidClientIDError, match="'me' is in use"):
        world.ask("hello", world.connected(), client_id="me", connection="c2")


def test_a_producer_gets_its_epoch_and_what_it_has_to_check() -> None:
    world = Asking()
    world.add(duplicateWindowMs=1000)
    answer = world.ask("open_producer", handle=1, name="q", type="queue", producer=9, generation=2)
    attachment = world.session.producers[1]
    assert (answer["epoch"], answer["dedup"]) == (attachment.number, True)
    assert world.session.performed == [cmd.AttachProducer(attachment.number, 9, 2)]
    assert world.session.producer_ids == {1: 9}
    for _ in range(2):
        assert world.ask("close_producer", handle=1) is None
    assert world.session.performed[1:] == [cmd.DetachProducer(attachment.number, forget=True)]


def test_a_refused_producer_leaves_nothing() -> None:
    world = Asking()
    world.add()
    world.session.refuses = IllegalStateError("no")
    with pytest.raises(IllegalStateError):
        world.ask("open_producer", handle=1, name="q", type="queue", producer=9)
    assert (world.session.producers, world.session.producer_ids) == ({}, {})


@pytest.mark.parametrize("producer", [-1, 1 << 64])
def test_a_producer_is_a_number_of_64_bits(producer: int) -> None:
    world = Asking()
    world.add()
    with pytest.raises(ProtocolError, match="64 bits"):
        world.ask("open_producer", handle=1, name="q", type="queue", producer=producer)


def test_without_memory_only_producers_that_were_there_before_are_opened() -> None:
    world = Asking()
    world.add()
    world.ask("open_producer", handle=1, name="q", type="queue", producer=7)
    world.memory_is_out = True
    world.ask("open_producer", handle=2, name="q", type="queue", producer=7)
    with pytest.raises(MemoryLowError, match="no producer for queue q can be opened"):
        world.ask("open_producer", handle=3, name="q", type="queue", producer=8)
    assert list(world.session.producers) == [1, 2]


def test_a_destination_of_metrics_has_no_producers() -> None:
    world = Asking()
    world.add("mq.metrics.jvm", "topic")
    with pytest.raises(SecurityError, match="only brokers send to it"):
        world.ask("open_producer", handle=1, name="mq.metrics.jvm", type="topic", producer=1)


def test_starting_and_stopping_change_the_flow_of_the_session() -> None:
    world = Asking()
    world.ask("stop")
    world.ask("start")
    assert world.session.flow == [False, True]


def test_checks_are_only_those_that_the_attributes_ask_for() -> None:
    plain = destination_attributes({"limitBehavior": "REJECT_NEWEST"}, type="queue")
    assert "xml" not in checks_of(plain)
    assert "dedup" not in checks_of(plain)
    schemas = destination_attributes(
        {"validateXMLSchemaEnabled": True, "XMLSchemaURIList": "a.xsd  b.xsd"}, type="queue"
    )
    assert checks_of(schemas)["xml"] == {"schemas": ["a.xsd", "b.xsd"], "reload": schemas.reloadXMLSchemaOnFailure}
