"""Requests of consumers and browsers: what is checked, what the core is asked, and what the client hears."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.core import command as cmd
from raybroker.engine.sessions.attachments import Attachments, Outbox
from raybroker.engine.sessions.consumer_requests import NAME_CHARS_MAX, ConsumerRequests
from raybroker.engine.sessions.drained_nodes import NodeDrains
from raybroker.engine.sessions.sessions import ClientSession
from raybroker.model.errors import IllegalStateError, InvalidDestinationError, ProtocolError
from tests.unit.engine.parts import Desk
from tests.unit.engine.rig import RecordingPeer, text_of


class FakeSession:
    """A session that performs at once. ``performed``: commands, in order."""

    def __init__(self, executor: Any, connection: str = "me") -> None:
        self.executor = executor
        self.peer = RecordingPeer()
        self.client = ClientSession(self.peer)
        self.client.connection = connection
        self.outbox = Outbox()
        self.consumers: dict[int, Any] = {}
        self.browsers: dict[int, Any] = {}
        self.delivering = True
        self.performed: list[cmd.Command] = []

    def new_handle(self, args: Any) -> int:
        return int(args["handle"])

    def perform_attach(self, attachment: Any, command: cmd.Command) -> None:
        self.perform(attachment, command)

    def perform(self, attachment: Any, command: cmd.Command) -> None:
        self.performed.append(command)
        self.executor.perform(attachment.destination, command)

    def detach(self, attachment: Any, command: cmd.Command) -> None:
        self.perform(attachment, command)

    def consumer(self, handle: int, epoch: int) -> Any:
        found = self.consumers.get(handle)
        return found if found is not None and found.number == epoch else None


class Asking(Desk):
    """``metered``: brokers that consumers came from."""

    def __init__(self) -> None:
        super().__init__()
        self.metered: list[str] = []
        meters: Any = SimpleNamespace(attached=lambda attachment, broker: self.metered.append(broker))
        attachments = Attachments(1)
        drained = NodeDrains(attachments, self.executor, self.clock)
        requests = ConsumerRequests(
            self.registry, attachments, self.executor, meters, self.codec, self.clock, drained, broker="b1"
        )
        self.operations: Any = requests.operations()
        self.session = FakeSession(self.executor)

    def ask(self, operation: str, **args: Any) -> Any:
        """The answer."""
        self.operations[operation](self.session, 5, {"handle": 1, "name": "q"} | args)
        (answer,) = [row[2] for row in self.session.peer.take("reply") if row[1] == 5]
        return answer

    def open(self, **args: Any) -> Any:
        return self.ask("open_consumer", **{"flow": "prefetch", "limit": 10, "no_ack": False} | args)


def test_the_smaller_limit_holds_and_delivery_begins_after_the_answer() -> None:
    world = Asking()
    world.add(consumerFlowLimit=4)
    answer = world.open()
    assert (answer["limit"], answer["active"], answer["broker"]) == (4, True, "b1")
    attach, proceed = world.session.performed
    assert isinstance(attach, cmd.AttachConsumer)
    assert (attach.limit, attach.held, attach.remote) == (4, True, False)
    assert proceed == cmd.Proceed(answer["epoch"])
    assert world.metered == [""]


def test_a_connection_that_has_not_started_gets_nothing_yet() -> None:
    world = Asking()
    world.add()
    world.session.delivering = False
    world.open()
    assert [type(command) for command in world.session.performed] == [cmd.AttachConsumer]


def test_a_consumer_at_home_on_another_broker_is_remote() -> None:
    world = Asking()
    world.add()
    world.open(home="b2", consumer="c1", lease_ms=500)
    attach: Any = world.session.performed[0]
    attachment = world.session.consumers[1]
    assert (attach.remote, attach.lease_ms) == (True, 500)
    assert (attachment.broker, attachment.consumer, attachment.leased) == ("b2", "c1", True)


def test_a_temporary_queue_is_consumed_by_its_connection_alone() -> None:
    world = Asking()
    world.add(owner="you")
    with pytest.raises(InvalidDestinationError, match="only the connection that made it"):
        world.open()
    world.session.client.connection = "you"
    assert world.open()["active"]


@pytest.mark.parametrize(
    "args",
    [
        {"flow": "push"},
        {"limit": -2},
        {"lease_ms": -1},
        {"type": "heap"},
        {"selector": 7},
        {"owner": "x" * (NAME_CHARS_MAX + 1)},
        {"home": 7},
    ],
)
def test_what_is_not_understood_is_refused_before_anything_happens(args: dict[str, Any]) -> None:
    world = Asking()
    world.add()
    with pytest.raises(ProtocolError):
        world.open(**args)
    assert (world.session.performed, world.session.consumers) == ([], {})


def test_closing_detaches_once_and_answers_always() -> None:
    world = Asking()
    world.add()
    epoch = world.open()["epoch"]
    assert world.ask("close_consumer") is None
    assert world.ask("close_consumer") is None
    assert [c for c in world.session.performed if isinstance(c, cmd.DetachConsumer)] == [
        cmd.DetachConsumer(epoch, seen=-1)
    ]


def test_only_the_present_attachment_gives_back() -> None:
    world = Asking()
    world.add()
    epoch = world.open()["epoch"]
    with pytest.raises(InvalidDestinationError, match="not attached any more"):
        world.ask("release", epoch=epoch + 1, credit=0)
    with pytest.raises(ProtocolError, match="a credit of -2"):
        world.ask("release", epoch=epoch, credit=-2)
    world.operations["release"](world.session, 9, {"handle": 1, "epoch": epoch, "credit": 3, "delay_ms": -5})
    release: Any = world.session.performed[-1]
    assert (release.credit, release.request, release.delay_ms) == (3, 9, 0)


def test_a_browser_is_read_in_parts_until_it_is_closed() -> None:
    world = Asking()
    destination = world.add()
    world.put(destination, "a", "b", "c")
    assert world.ask("open_browser") == {"messages": 3}
    assert world.ask("browse", max=2) == {"more": True}
    assert world.ask("browse", max=2) == {"more": False}
    blocks = [row[4] for row in world.session.peer.take("deliver")]
    assert [text_of(block, index) for block in blocks for index in range(block.count)] == ["a", "b", "c"]
    world.ask("close_browser")
    with pytest.raises(IllegalStateError, match="browser is closed"):
        world.ask("browse", max=1)
    world.add("t", "topic")
    with pytest.raises(InvalidDestinationError, match="cannot be browsed"):
        world.ask("open_browser", name="t", type="topic")
