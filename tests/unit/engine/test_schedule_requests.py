"""Requests that make schedules: what is checked, and what the host's schedules are asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.engine.schedules.schedule_log import ScheduleRow
from raybroker.engine.sessions.attachments import Attachments, Outbox
from raybroker.engine.sessions.schedule_requests import ID_CHARS_MAX, REPEAT_MAX, ScheduleRequests
from raybroker.model.errors import InvalidDestinationError, ProtocolError
from raybroker.model.settings.setting import OVERRIDE_MS_MAX
from tests.unit.engine.parts import Desk
from tests.unit.engine.rig import RecordingPeer, made, text_of


class Asking(Desk):
    """``added``: schedules that were asked for, with whom to tell."""

    def __init__(self) -> None:
        super().__init__()
        self.added: list[tuple[Any, ScheduleRow, Any, Any]] = []
        schedules: Any = SimpleNamespace(add=lambda *args: self.added.append(args))
        self.attachments = Attachments(1)
        self.peer = RecordingPeer()
        destination: Any = self.add()
        attachment = self.attachments.attach(destination, self.peer, 1, Outbox())
        self.session: Any = SimpleNamespace(peer=self.peer, producers={1: attachment})
        self.operations: Any = ScheduleRequests(schedules, self.attachments, self.clock).operations()

    def ask(self, *bodies: str, **args: Any) -> None:
        block = made(*(bodies or ("m",)))
        asked = {"handle": 1, "id": "s", "schedule": "@every 1s", "timezone": "UTC", "message": bytes(block.view)}
        self.operations["schedule"](self.session, 5, asked | args)


def test_a_schedule_is_answered_when_it_is_durable() -> None:
    world = Asking()
    world.ask("tick", repeat=3, ttl_ms=10, delay_ms=20, catch_up=True)
    ((destination, row, block, done),) = world.added
    assert (destination.name, text_of(block, 0)) == ("q", "tick")
    now_ms = world.clock.now_ms()
    assert row == ScheduleRow(
        number=0,
        id="s",
        destination=0,
        expression="@every 1s",
        zone="UTC",
        repeat=3,
        catch_up=True,
        ttl_ms=10,
        delay_ms=20,
        created_ms=now_ms,
        fired=0,
        last_ms=now_ms,
    )
    assert world.peer.take() == []
    done()
    assert world.peer.take() == [("reply", 5, {"id": "s"})]


def test_what_is_left_out_is_none_at_all() -> None:
    world = Asking()
    world.ask(repeat=None, ttl_ms=None)
    row = world.added[0][1]
    assert (row.repeat, row.ttl_ms, row.delay_ms, row.catch_up) == (0, 0, 0, False)


@pytest.mark.parametrize(
    ("args", "found"),
    [
        ({"id": ""}, "schedule ''"),
        ({"id": "x" * (ID_CHARS_MAX + 1)}, "is not understood"),
        ({"repeat": -1}, "repeat -1"),
        ({"repeat": REPEAT_MAX + 1}, "is not understood"),
        ({"ttl_ms": -1}, "ttl_ms -1"),
        ({"delay_ms": OVERRIDE_MS_MAX + 1}, f"at most {OVERRIDE_MS_MAX}"),
    ],
)
def test_what_is_out_of_range_is_refused(args: dict[str, Any], found: str) -> None:
    world = Asking()
    with pytest.raises(ProtocolError, match=found):
        world.ask(**args)
    assert world.added == []


def test_a_schedule_has_one_message() -> None:
    with pytest.raises(ProtocolError, match="one message, not 2"):
        Asking().ask("a", "b")
    with pytest.raises(ProtocolError):
        Asking().ask(message=b"no block")


def test_a_producer_that_has_ended_makes_none() -> None:
    world = Asking()
    with pytest.raises(InvalidDestinationError, match="not attached any more"):
        world.ask(handle=2)
    world.attachments.by_number.clear()
    with pytest.raises(InvalidDestinationError, match="not attached any more"):
        world.ask()
    assert world.added == []
