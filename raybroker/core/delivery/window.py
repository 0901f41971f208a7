"""Windows: how many messages may be on their way to a consumer; two rules, one face.

``CreditWindow`` is the rule of MQ: the consumer grants a number, the broker sends that many and is then
silent until the next grant; what counts at the consumer is what it handed to the application.  ``PrefetchWindow`` is
the rule of ActiveMQ: at most ``limit`` dispatched and unacknowledged; once full, nothing more until half
of the limit is acknowledged.  ``DrainWindow`` is for a consumer of several brokers: what one of them has no message for
is void at once, so that the consumer can grant it to another.  ``BatchWindow`` is for a consumer of batches, which asks
for one after the other.  None of them knows messages, only counts.
"""

from __future__ import annotations

from typing import Final, Protocol

from raybroker.model.batch import Batch

UNLIMITED: Final = 1 << 62
"""Stands for "no limit" in ``room``: more than there can ever be messages."""
CREDIT_MAX: Final = (1 << 31) - 1
"""Largest finite limit."""


class Window(Protocol):
    def room(self) -> int:
        """How many messages may be sent now."""
        ...

    def sent(self, count: int) -> None: ...

    def settled(self, count: int) -> None:
        """``count`` messages were acknowledged or given back."""
        ...

    def granted(self, count: int) -> None:
        """The consumer asked for ``count`` more."""
        ...

    def restart(self, credit: int) -> None:
        """The consumer holds nothing any more and begins anew."""
        ...

    def left(self) -> int:
        """Messages that the consumer thinks may still be sent; 0 also when it counts none, since there is no limit."""
        ...


class CreditWindow:
    """RUNNING while credit is left, then PAUSED until a grant; a credit of -1 is unlimited."""

    __slots__ = ("credit",)

    def __init__(self, credit: int) -> None:
        self.credit = credit

    def room(self) -> int:
        return UNLIMITED if self.credit < 0 else self.credit

    def sent(self, count: int) -> None:
        if self.credit >= 0:
            assert count <= self.credit, "sent more than the consumer granted"
            self.credit -= count

    def settled(self, count: int) -> None:
        """Acknowledgements do not matter here: the consumer asks by what it has consumed."""

    def granted(self, count: int) -> None:
        if count < 0:
            self.credit = -1
        elif self.credit >= 0:
            self.credit = min(self.credit + count, CREDIT_MAX)

    def restart(self, credit: int) -> None:
        self.credit = credit

    def left(self) -> int:
        return max(self.credit, 0)


class PrefetchWindow:
    """A window of at most ``limit`` unacknowledged; full is full until half is acknowledged; limit 0 is polled."""

    __slots__ = ("full", "limit", "outstanding", "polls")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.outstanding = 0
        self.full = False
        self.polls = 0

    def room(self) -> int:
        if self.limit == 0:
            return self.polls
        if self.limit < 0:
            return UNLIMITED
        return 0 if self.full else self.limit - self.outstanding

    def sent(self, count: int) -> None:
        assert count <= self.room(), "sent more than the prefetch limit allows"
        self.outstanding += count
        if self.limit == 0:
            self.polls -= count
        elif self.outstanding >= self.limit > 0:
            self.full = True

    def settled(self, count: int) -> None:
        self.outstanding -= count
        assert self.outstanding >= 0
        if self.full and self.outstanding * 2 <= self.limit:
            self.full = False

    def granted(self, count: int) -> None:
        if self.limit == 0:
            self.polls = min(self.polls + max(count, 0), CREDIT_MAX)

    def restart(self, credit: int) -> None:
        self.outstanding = 0
        self.full = False
        self.polls = 0

    def left(self) -> int:
        return self.polls if self.limit == 0 else max(self.limit - self.outstanding, 0)

    def take_over(self, outstanding: int) -> None:
        """Begin with messages that were sent under another rule; there may be more than the limit."""
        self.outstanding = outstanding
        self.full = 0 < self.limit <= outstanding


class DrainWindow:
    """Credit for this very step: what is not used by its end is void (:meth:`forfeit`).

    ``taken``: what the consumer could still count on when it went over to this rule; that is void as well.
    """

    __slots__ = ("credit", "must_tell", "taken")

    def __init__(self, taken: int = 0) -> None:
        self.credit = 0
        self.taken = taken
        self.must_tell = False
        """The consumer waits for an answer, whatever is void."""

    def room(self) -> int:
        return self.credit

    def sent(self, count: int) -> None:
        assert count <= self.credit, "sent more than the consumer granted"
        self.credit -= count

    def settled(self, count: int) -> None:
        """Acknowledgements do not matter here."""

    def granted(self, count: int) -> None:
        self.credit = min(self.credit + max(count, 0), CREDIT_MAX)
        self.must_tell = count <= 0

    def restart(self, credit: int) -> None:
        self.credit = max(credit, 0)
        self.taken = 0

    def left(self) -> int:
        return self.credit

    def forfeit(self) -> int | None:
        """Void what is left; returns how many messages the consumer need not expect any more, None: it knows."""
        unused = self.credit + self.taken
        told = unused > 0 or self.must_tell
        self.credit = self.taken = 0
        self.must_tell = False
        return unused if told else None


class BatchWindow:
    """Room for one batch by ``rule`` once it is asked for; whoever forms batches fills it, and for others there is no
    room.

    ``one_by_one``: batches are of one message for now, which the consumer gets as any other does.
    """

    __slots__ = ("asked", "one_by_one", "rule")

    def __init__(self, rule: Batch) -> None:
        self.rule = rule
        self.asked = False
        self.one_by_one = False

    def room(self) -> int:
        return 1 if self.asked and self.one_by_one else 0

    def sent(self, count: int) -> None:
        assert self.asked, "a batch was sent that nobody has asked for"
        if self.one_by_one:
            self.asked = False

    def settled(self, count: int) -> None:
        """Acknowledgements do not matter here."""

    def granted(self, count: int) -> None:
        self.asked = True

    def restart(self, credit: int) -> None:
        self.asked = credit != 0

    def left(self) -> int:
        return 0


def make_window(flow: str, limit: int) -> Window:
    """The window of a new consumer: ``flow`` is "credit" or "prefetch"."""
    assert flow in ("credit", "prefetch")
    assert -1 <= limit <= CREDIT_MAX
    return CreditWindow(limit) if flow == "credit" else PrefetchWindow(limit)
