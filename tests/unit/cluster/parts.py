"""What the parts of a member machine are made of, without the machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from raybroker.cluster.change_record import Change, ChangeRecord
from raybroker.cluster.events import Action, Persist, SendEnvelope
from raybroker.cluster.member_messages import MemberMessage
from raybroker.cluster.member_state import MemberContext, MemberEvent, MemberSettings
from raybroker.cluster.record_application import Applier
from raybroker.cluster.saved_record import Saved
from raybroker.cluster.term import Leadership

NOW = 10_000
_A = TypeVar("_A", bound=Action)


def queue(name: str) -> Change:
    return Change("create_destination", ("queue", name))


class Parts:
    """Broker b1 with an empty record r of cluster c, replaying; what it carries out and writes is done by the test."""

    def __init__(self, *, master: str = "b1", **settings: Any) -> None:
        options = MemberSettings("c", ("b1", "b2", "b3"), master, **settings)
        self.life = MemberContext("b1", options, Saved(record=ChangeRecord("r", "c", 1)), NOW)
        self.life.claim = Leadership(1, master, "r")
        self.life.happens(MemberEvent.KEEP)
        self.applier = Applier(self.life)

    def greeted(self, name: str, incarnation: int = 5) -> None:
        """Another broker is heard, and was greeted."""
        self.life.membership.heard(name, incarnation, self.life.now_ms, joined=1, operating=True)
        self.life.matched[name] = incarnation

    def took(self, kind: type[_A]) -> list[_A]:
        """Take out the actions of one kind."""
        found = [action for action in self.life.out if isinstance(action, kind)]
        self.life.out[:] = [action for action in self.life.out if not isinstance(action, kind)]
        return found

    def said(self) -> list[tuple[str, MemberMessage]]:
        return [(action.to, action.envelope.message) for action in self.took(SendEnvelope)]

    def write(self) -> list[bytes]:
        """All that was to be written is on disk; returns it."""
        frames = []
        for action in self.took(Persist):
            frames += action.frames
            self.life.persisted(action.token)
        return frames

    def carry_out(self, failure: str = "") -> None:
        """The record is carried out here as far as it is on disk."""
        self.applier.pump(0)
        self.applier.done(self.life.durable.number, failure)


def collector() -> tuple[list[str], Callable[[str], None]]:
    found: list[str] = []
    return found, found.append
