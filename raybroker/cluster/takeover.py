"""Takeovers in clusters that share a store: one broker's part in who takes a lost broker's messages over, and when.

Every broker gives the shared store a sign of life each ``interval_ms`` and looks at the signs of the others then.  A
broker is taken over when it is silent both ways: no other broker that looks has its heartbeats, and its row shows no
new sign in ``threshold`` looks that follow each other.  So a broker that is cut off from the others alone keeps its
messages, as does one whose database is away: a look that failed counts for nobody.

The eldest broker does it; each younger one waits ``threshold`` looks longer, in case that the elder ones have no way to
the store.  Two that begin at the same time are one: the store gives the next tenure to the first.  Of one broker two
takeovers begin ``APART_MS`` apart at least, by the store's clock, unless an administrator asks.

The steps of a takeover follow each other: the row is taken, then whoever wrote the messages is kept from it, and only
then is the broker started.  Meanwhile the taker gives signs of life in its name.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from raybroker.model.errors import ConfigError, IllegalStateError
from raybroker.model.shared_store import MEANT_TO_RUN, SharedRow, SharedView, StoreState

APART_MS: Final = 30_000
"""Between two takeovers of one broker, so that one that cannot live anywhere is not carried round the cluster."""


class TakeoverStep(Enum):
    """A step of a takeover."""

    TAKE = "take its row"
    HAND_OVER = "keep whoever wrote its messages from them"
    START = "start it"


@dataclass(frozen=True, slots=True)
class Takeover:
    """A step to carry out; ``tenure``: the one before, and ``beats``: what its row showed when it was found silent."""

    name: str
    tenure: int
    beats: int
    step: TakeoverStep

    @property
    def next_tenure(self) -> int:
        return self.tenure + 1


@dataclass(frozen=True, slots=True)
class TakeoverSettings:
    """How often brokers look, and how many looks without a sign of life there are before a takeover."""

    interval_ms: int
    threshold: int

    @property
    def silence_ms(self) -> int:
        return self.interval_ms * self.threshold


@dataclass(slots=True)
class _Sign:
    """What a row showed when it was looked at last, and how many looks ago it changed."""

    shown: tuple[int, int]
    looks: int = 0


class Takeovers:
    """The part of broker ``me``.  ``work``: the step that it is at, one takeover at a time."""

    def __init__(self, me: str, settings: TakeoverSettings) -> None:
        self.me = me
        self.work: Takeover | None = None
        self.settings = settings
        self._signs: dict[str, _Sign] = {}
        self._looked_ms: int | None = None

    # ---- looks

    def looked(self, view: SharedView, live: Sequence[str], heard: Collection[str], now_ms: int) -> Takeover | None:
        """The rows as they are now; a step to carry out, if there is one.

        live   brokers that operate as far as this one knows, the eldest first
        heard  those whose heartbeats come, operating or not
        """
        self._count(view, now_ms)
        if self.work is not None or self.me not in live:
            return None
        patience = self.settings.threshold * (1 + live.index(self.me))
        for row in view.rows:
            if self._is_lost(row, heard, patience) and view.now_ms - row.taken_ms >= APART_MS:
                return self._begin_takeover(row)
        return None

    def missed(self) -> None:
        """The store could not be looked at: nobody's silence counts, since signs could not come either."""
        self._signs.clear()
        self._looked_ms = None

    def silent(self, name: str) -> bool:
        """Whether a broker's row has shown no sign of life for the time after which it may be lost."""
        found = self._signs.get(name)
        return found is not None and found.looks >= self.settings.threshold

    def _count(self, view: SharedView, now_ms: int) -> None:
        counts = self._looked_ms is None or now_ms - self._looked_ms >= self.settings.interval_ms // 2
        if counts:
            self._looked_ms = now_ms
        for row in view.rows:
            shown, found = (row.tenure, row.beats), self._signs.get(row.name)
            if found is None or found.shown != shown:
                self._signs[row.name] = _Sign(shown)
            elif counts:
                found.looks += 1
        for name in self._signs.keys() - {row.name for row in view.rows}:
            del self._signs[name]

    def _is_lost(self, row: SharedRow, heard: Collection[str], patience: int) -> bool:
        if row.name == self.me or row.name in heard or row.state not in MEANT_TO_RUN:
            return False
        return self._signs[row.name].looks >= patience

    # ---- the steps

    def request_takeover(self, name: str, view: SharedView, heard: Collection[str]) -> Takeover:
        """An administrator wants a broker to be taken over here and now; the first step.

        Raises ConfigError for one that the store does not know, and IllegalStateError for one that lives, or while this
        broker is at another.
        """
        row = view.row_of(name)
        if row is None:
            known = ", ".join(row.name for row in view.rows) or "none"
            raise ConfigError(f"the shared store has no broker {name!r}; it has {known}")
        if name in heard or name == self.me:
            raise IllegalStateError(
                f"broker {name} is up, and nobody takes over what lives: raybroker shutdown bkr -b {name} stops it"
            )
        silent_ms = view.now_ms - row.beat_ms
        if row.state is not StoreState.BROKER_DOWN and silent_ms < self.settings.silence_ms:
            by = f"; {row.taker} takes it over" if row.state is StoreState.TAKEOVER_STARTED else ""
            raise IllegalStateError(
                f"broker {name} gave the shared store a sign of life {max(silent_ms, 0)} ms ago, and is"
                f" {row.state}{by}: it counts as lost after {self.settings.silence_ms} ms without one"
                " (imq.cluster.monitor.interval and .threshold)"
            )
        if not row.tenure:
            raise IllegalStateError(f"broker {name} was never started: raybroker up starts it")
        if self.work is not None:
            raise IllegalStateError(f"broker {self.me} takes over {self.work.name} now; ask again when it has done so")
        return self._begin_takeover(row)

    def _begin_takeover(self, row: SharedRow) -> Takeover:
        self.work = Takeover(row.name, row.tenure, row.beats, TakeoverStep.TAKE)
        return self.work

    def done(self, work: Takeover) -> Takeover | None:
        """A step is carried out; the one after it, None when that was the last."""
        if work != self.work:
            return None
        after = {TakeoverStep.TAKE: TakeoverStep.HAND_OVER, TakeoverStep.HAND_OVER: TakeoverStep.START}.get(work.step)
        self.work = None if after is None else replace(work, step=after)
        return self.work

    def ended(self, work: Takeover) -> None:
        """The takeover goes no further: a step has failed, or somebody else has the next tenure."""
        if self.work is not None and (self.work.name, self.work.tenure) == (work.name, work.tenure):
            self.work = None

    @property
    def vicarious(self) -> tuple[str, int] | None:
        """(broker, tenure) in whose name a sign of life is due beside the own one."""
        work = self.work
        return None if work is None or work.step is TakeoverStep.TAKE else (work.name, work.next_tenure)
