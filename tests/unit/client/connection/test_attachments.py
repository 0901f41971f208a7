"""Attachments without a connection: endpoints are attached, brought back, or told that it is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from raybroker.client.cluster.directory import DestinationPlace
from raybroker.client.connection.attachments import EndpointAttachments
from raybroker.client.connection.channels import Ended
from raybroker.client.destinations import Destination, Queue
from raybroker.client.io.tasks import Tasks
from raybroker.config import Config
from raybroker.errors import (
    BrokerError,
    BrokerGoneError,
    ConnectionLostError,
    IllegalStateError,
    InvalidDestinationError,
)
from tests.unit.client.fakes import TOKEN, run


class Handle:
    """An endpoint that is attached after ``failures``, and notes what becomes of it."""

    def __init__(self, name: str = "q", *failures: BrokerError, broker: str | None = None) -> None:
        self.destination: Destination = Queue(name)
        self.name, self.broker, self.bound, self.reports_failure = name, broker, broker is not None, True
        self.traits: Any = {}
        self.recovered_at = 0.0
        self.attached = self.ended = False
        self.failures = list(failures)
        self.attempts = 0
        self.failure: BrokerError | None = None
        self.settled = asyncio.Event()

    async def attach(self, channel: object) -> None:
        self.attempts += 1
        if self.failures:
            raise self.failures.pop(0)
        self.attached = True
        self.settled.set()

    def has_ended(self) -> bool:
        return self.ended

    def fail(self, error: BrokerError) -> None:
        self.failure = error
        self.settled.set()


class Rig:
    """A directory, channels, a view of the brokers and events, as far as attachments know them."""

    alone = True

    def __init__(self, *, reconnects: bool = True, **attributes: object) -> None:
        self.tasks = Tasks(
            Config.from_values({"imqReconnectInterval": 1, "raybroker.reconnect.timeout_ms": 2000, **attributes})
        )
        self.place = DestinationPlace("h1", TOKEN, self._dial, traits={"distributed": True})
        self.down: set[str] = set()
        self.ended = Ended()
        self.told: list[object] = []
        self.asked: list[tuple[str, str, bool, str | None]] = []
        self.attachments = EndpointAttachments(
            *(self._as_any() for _ in range(3)), self.tasks, self._as_any(), set(), reconnects=reconnects
        )

    def _as_any(self) -> Any:
        return self

    async def _dial(self, factory: Callable[[], object]) -> object:
        raise AssertionError("nothing is opened here")

    async def locate(self, kind: str, name: str, create: bool, broker: str | None) -> DestinationPlace:
        self.asked.append((kind, name, create, broker))
        return self.place

    async def to(self, place: DestinationPlace) -> Any:
        return self

    def gone(self, broker: str, after_s: float = 0) -> bool:
        return broker in self.down

    def emit(self, name: str, *args: object) -> None:
        self.told.append(name)

    def failed(self, error: BrokerError) -> None:
        self.told.append(error)

    async def attach(self, handle: Any, *, create: bool = True) -> None:
        await self.attachments.attach(handle, create=create)

    async def recovered(self, handle: Any) -> None:
        self.attachments.recover(handle)
        await handle.settled.wait()


def test_it_is_tried_again_until_the_host_takes_it() -> None:
    async def work() -> None:
        rig, handle = Rig(), Handle("q", ConnectionLostError("1"), ConnectionLostError("2"))
        await rig.attach(handle)
        assert (handle.attempts, handle.traits) == (3, {"distributed": True})
        assert rig.asked == [("queue", "q", True, None)] * 3, "it may be somewhere else by now"

    run(work)


def test_what_the_broker_answers_is_raised_at_once() -> None:
    async def work() -> None:
        handle = Handle("q", InvalidDestinationError("no such queue"))
        with pytest.raises(InvalidDestinationError, match="no such queue"):
            await Rig().attach(handle)
        assert handle.attempts == 1

    run(work)


def test_a_closed_handle_is_not_attached() -> None:
    async def work() -> None:
        handle = Handle()
        handle.ended = True
        with pytest.raises(IllegalStateError, match="the handle of q is closed"):
            await Rig().attach(handle)
        assert handle.attempts == 0

    run(work)


def test_a_bound_handle_does_not_wait_for_a_broker_that_is_gone() -> None:
    async def work() -> None:
        rig = Rig()
        rig.alone = False
        rig.down = {"b1"}
        with pytest.raises(BrokerGoneError, match="broker b1 is down"):
            await rig.attach(Handle("q", ConnectionLostError("away"), broker="b1"))
        handle = Handle("q", ConnectionLostError("away"), broker="b2")
        await rig.attach(handle)
        assert handle.attached, "its own broker is there"

    run(work)


def test_a_lost_handle_comes_back_without_creating_its_destination() -> None:
    async def work() -> None:
        rig, handle = Rig(), Handle("q", ConnectionLostError("away"))
        rig.attachments.link_lost("h1")
        await rig.recovered(handle)
        assert {row[2] for row in rig.asked} == {False}
        assert (handle.attempts, handle.failure) == (2, None)

    run(work)


def test_one_that_does_not_come_back_fails_and_the_application_is_told() -> None:
    async def work() -> None:
        rig, handle = Rig(), Handle("q", InvalidDestinationError("destroyed"))
        await rig.recovered(handle)
        assert isinstance(handle.failure, InvalidDestinationError)
        assert rig.told[-1] is handle.failure

    run(work)


def test_without_reconnecting_a_lost_handle_ends_unless_it_was_closed() -> None:
    async def work() -> None:
        rig, handle, closed = Rig(reconnects=False), Handle(), Handle()
        closed.ended = True
        rig.attachments.recover(closed)  # type: ignore[arg-type]
        await rig.recovered(handle)
        assert "imqReconnectEnabled is false" in str(handle.failure)
        assert (handle.attempts, closed.failure) == (0, None)

    run(work)


def test_one_of_several_attachments_fails_without_the_application_being_told() -> None:
    async def work() -> None:
        rig, handle = Rig(), Handle()
        handle.reports_failure = False
        rig.attachments.end_handle(handle, ConnectionLostError("gone"))
        assert (str(handle.failure), rig.told) == ("gone", [])
        rig.attachments.broke(Handle(), ValueError("a fault"))  # type: ignore[arg-type]
        assert "has failed and is closed: ValueError" in str(rig.told[-1])

    run(work)
