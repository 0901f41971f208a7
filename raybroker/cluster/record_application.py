"""Application of the record on this broker: step by step, and as a whole at first and after a failure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from raybroker.cluster.events import Apply
from raybroker.cluster.member_state import MemberContext, MemberState

CHANGES_MAX: Final = 100
"""Changes of one Apply, which bounds one step of the shell."""


class WhoWaits(NamedTuple):
    """``then`` is called once entry ``number`` is carried out, at ``until_ms`` in any case."""

    number: int
    until_ms: int
    then: Callable[[str], None]


class Applier:
    """``applied``: the entry up to which everything is carried out here; -1 before the first time."""

    def __init__(self, life: MemberContext) -> None:
        self._life = life
        self.applied = -1
        self.failure = ""
        self._whole = True
        self._busy: int | None = None
        self._retry_ms = 0
        self._waiting: list[WhoWaits] = []

    def whole(self) -> None:
        """The state of this broker is not known: bring all of it in line with the record."""
        self._whole = True
        self._retry_ms = 0

    def when(self, number: int, then: Callable[[str], None]) -> None:
        """Call ``then`` with "" once entry ``number`` is carried out, or with the reason why it is not yet, which is
        after carry_out_ms at the latest."""
        if number <= self.applied and not self._whole:
            then("")
        else:
            self._waiting.append(WhoWaits(number, self._life.now_ms + self._life.settings.carry_out_ms, then))

    def tell_late(self) -> None:
        """Tell those who have waited too long."""
        now_ms, waited_s = self._life.now_ms, self._life.settings.carry_out_ms / 1000
        late = [one for one in self._waiting if one.until_ms <= now_ms]
        self._waiting = [one for one in self._waiting if one.until_ms > now_ms]
        for one in late:
            one.then(self.failure or f"broker {self._life.name} is still at it after {waited_s:g} s")

    def anew(self, why: str) -> None:
        """Another record replaces the one that was applied: its entry numbers, and those waited for, are void."""
        self.applied = -1
        self.whole()
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.then(why)

    @property
    def settled(self) -> bool:
        """Nothing is left to do."""
        life = self._life
        return self._busy is None and not self._whole and not life.queue and self.applied >= 0

    def pump(self, target: int) -> None:
        """Ask for the next step if it is time; the first one waits for the record to reach ``target``."""
        life = self._life
        waiting = (MemberState.STARTING, MemberState.WAITING_FOR_MASTER, MemberState.STOPPED)
        if self._busy is not None or life.state in waiting or life.now_ms < self._retry_ms:
            return
        number = life.durable.number
        if self._whole:
            if number < target:
                return
            self._whole = False
            life.queue.clear()
            self._busy = number
            life.out.append(Apply(number, (), life.agreed.copy()))
        elif life.queue:
            entries = [life.queue.popleft() for _ in range(min(CHANGES_MAX, len(life.queue)))]
            self._busy = entries[-1].number
            life.out.append(Apply(self._busy, tuple(entry.change for entry in entries)))

    def done(self, number: int, failure: str, *, partly: bool = False) -> None:
        """The shell carried out a step; ``partly``: but for what waits for a host, so that what the record destroyed
        may still be there."""
        if number != self._busy:
            return
        self._busy = None
        overtaken = self._whole
        self.failure = failure
        if failure:
            self._life.note(
                f"entry {number} of the configuration record is not carried out here: {failure}", warning=True
            )
            self._whole = True
            self._retry_ms = self._life.now_ms + self._life.settings.retry_ms
        if overtaken:
            return  # All of it is carried out anew, perhaps out of another record.
        if not failure:
            self.applied = number
            if number == self._life.record.number and not partly:
                self._life.forget_past()
        due = [one for one in self._waiting if one.number <= number]
        self._waiting = [one for one in self._waiting if one.number > number]
        for one in due:
            one.then(failure)
