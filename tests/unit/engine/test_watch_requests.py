"""Requests that begin and end a watch: what is looked up, and what the client hears."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.engine.sessions.attachments import Outbox
from raybroker.engine.sessions.consumer_watch import WatchRequests
from raybroker.model.errors import InvalidDestinationError
from tests.unit.engine.parts import Desk
from tests.unit.engine.rig import RecordingPeer


class Asking(Desk):
    """``calls``: what the watch was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, ...]] = []
        self.session: Any = SimpleNamespace(
            peer=RecordingPeer(), client=object(), outbox=Outbox(), new_handle=lambda args: int(args["handle"])
        )
        watch: Any = SimpleNamespace(add=self._add, remove=lambda session, handle: self.calls.append(("end", handle)))
        self.operations: Any = WatchRequests(self.registry, watch).operations()

    def _add(self, session: Any, outbox: Any, handle: int, destination: Any) -> bool:
        assert (session, outbox) == (self.session.client, self.session.outbox)
        self.calls.append(("watch", handle, destination.kind, destination.name))
        return destination.kind == "topic"


def test_a_watch_is_answered_with_whether_there_are_consumers() -> None:
    world = Asking()
    world.add()
    world.add("t", "topic")
    world.operations["watch_consumers"](world.session, 5, {"handle": 1, "name": "q"})
    world.operations["watch_consumers"](world.session, 6, {"handle": 2, "name": "t", "type": "topic"})
    assert world.calls == [("watch", 1, "queue", "q"), ("watch", 2, "topic", "t")]
    assert world.session.peer.take("reply") == [("reply", 5, {"ready": False}), ("reply", 6, {"ready": True})]


def test_the_end_of_a_watch_is_answered_too() -> None:
    world = Asking()
    world.operations["unwatch_consumers"](world.session, 7, {"handle": "1"})
    assert (world.calls, world.session.peer.take("reply")) == ([("end", 1)], [("reply", 7, None)])


def test_what_is_not_there_cannot_be_watched() -> None:
    world = Asking()
    with pytest.raises(InvalidDestinationError, match="queue 'q' does not exist"):
        world.operations["watch_consumers"](world.session, 5, {"handle": 1, "name": "q"})
    assert world.calls == []
