"""Batching of a transacted listener: up to so many calls share one transaction.

A batch ends when it is full or when no next message is at hand; it never waits.  When a call raises, the batch is
rolled back, and the messages it held are tried again one to a transaction, so that one bad message does not take the
good ones with it.
"""

from __future__ import annotations


class Batching:
    """``most``: calls in one transaction (maxMessagesInTransaction)."""

    __slots__ = ("alone", "calls", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self.calls = 0
        """Calls that the open transaction holds."""
        self.alone = 0
        """Calls to come that have a transaction of their own."""

    def called(self) -> bool:
        """One more call has returned; True when it is time to commit."""
        self.calls += 1
        if self.alone:
            self.alone -= 1
            return True
        return self.calls >= self.most

    def committed(self) -> None:
        self.calls = 0

    def failed(self, *, in_call: bool) -> None:
        """A call raised, or the commit did: everything that the transaction held comes again."""
        self.alone = max(self.alone, self.calls + in_call)
        self.calls = 0
