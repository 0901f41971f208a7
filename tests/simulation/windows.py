"""The flow rules once more, counted differently: totals since the last start instead of what is left."""

from __future__ import annotations


class TwinCredit:
    """Sent never exceeds granted; -1 grants everything."""

    def __init__(self, credit: int) -> None:
        self.restart(credit)

    def restart(self, credit: int) -> None:
        self.unlimited = credit < 0
        self.total_granted = max(credit, 0)
        self.total_sent = 0

    def room(self) -> int:
        return 1 << 62 if self.unlimited else self.total_granted - self.total_sent

    def sent(self, count: int) -> None:
        self.total_sent += count

    def granted(self, count: int) -> None:
        self.unlimited = self.unlimited or count < 0
        self.total_granted += max(count, 0)

    def settled(self, count: int) -> None: ...

    def left(self) -> int:
        return 0 if self.unlimited else self.total_granted - self.total_sent


class TwinDrain(TwinCredit):
    """Everything that is granted is sent in the step that brings it, or void."""

    def __init__(self, void: int) -> None:
        super().__init__(0)
        self.void = void
        self.asked_for_nothing = False

    def granted(self, count: int) -> None:
        super().granted(count)
        self.asked_for_nothing = count == 0

    def end_of_step(self) -> int | None:
        """What the consumer is told that it need not expect any more; None: nothing."""
        unused = self.void + self.room()
        told = unused > 0 or self.asked_for_nothing
        self.void = self.total_granted = self.total_sent = 0
        self.asked_for_nothing = False
        return unused if told else None


class TwinPrefetch:
    """Never more than ``limit`` unsettled; after reaching it nothing until at least half is settled (F-18, F-20)."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.restart(0)

    def restart(self, credit: int) -> None:
        self.out = 0
        self.stopped = False
        self.settled_since = 0
        self.polls = 0

    def room(self) -> int:
        if self.limit == 0:
            return self.polls
        if self.limit < 0:
            return 1 << 62
        return 0 if self.stopped else self.limit - self.out

    def sent(self, count: int) -> None:
        self.out += count
        if self.limit == 0:
            self.polls -= count
        if 0 < self.limit == self.out:
            self.stopped = True
            self.settled_since = 0

    def granted(self, count: int) -> None:
        self.polls += max(count, 0)

    def settled(self, count: int) -> None:
        self.out -= count
        self.settled_since += count
        if self.stopped and self.settled_since >= self.limit / 2:
            self.stopped = False

    def left(self) -> int:
        return self.polls if self.limit == 0 else max(self.limit - self.out, 0)

    def take_over(self, out: int) -> None:
        self.out = out
        self.stopped = 0 < self.limit <= out
        self.settled_since = self.limit - out if self.stopped else 0


def make_twin_window(flow: str, limit: int) -> TwinCredit | TwinPrefetch:
    return TwinCredit(limit) if flow == "credit" else TwinPrefetch(limit)
