"""Duplicate deliveries after the failover of a producer: recognised by the connection that got the first.

A producer that has lost its broker sends what was not confirmed to another one, marked as what may come twice.  Where
the lost broker had stored it after all, its own copy comes when it is back, and knows nothing of the other.  The
connection remembers the marked messages that it was given, and takes a later copy as delivered again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from raybroker.content.headers import decode_header
from raybroker.model.blocks.block import Block

MESSAGES_MAX: Final = 100_000
"""Marked messages that a connection remembers; the oldest are forgotten first."""


class DuplicateDeliveries:
    """The duplicate deliveries of one connection; called on the IO loop."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[int, int], None] = OrderedDict()

    def again(self, block: Block) -> bool:
        """Whether one of a delivered block's messages has come before as a marked one; remembers marked ones."""
        header = block.header(0)
        if header and decode_header(header).doubtful:
            for index in range(block.count):
                self._known[block.producer, block.seq_of(index)] = None
            while len(self._known) > MESSAGES_MAX:
                self._known.popitem(last=False)
            return False
        known, producer = self._known, block.producer
        return bool(known) and any((producer, block.seq_of(index)) in known for index in range(block.count))
