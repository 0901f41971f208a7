"""One-way sends: which non-persistent messages a producer waits for.

OneWaySendMode decides; a send that waits for the broker's decision is *two-way*, another one *one-way*.

    buffered    every non-persistent send returns as soon as the message is handed over, within the producer's buffer.
                This is the default, and what raybroker does without the documents' mode
    disabled    every one is two-way
    enabled     every OneWaySendWindowSize-th one is two-way, so that no more than that are ever unanswered; 1: all
    topicOnly   the same for topics; to queues every one is two-way

Two-way without being asked, whatever the window says: a message with a unit of order or part of a unit of work, and all
of a distributed destination.  A persistent message is two-way in every mode, and what is sent in a transaction is
answered by its commit; the sessions of an XA connection send in transactions only.  A producer is always connected to
the host that has its destination, so nothing depends on that.

But in mode buffered the broker answers every block, also of one-way messages: what it refuses is counted by ``refused``
and told to ``connection.on_event``, and from then on sends are two-way, so that the next one raises the error if it
still holds, until one is taken.  What was on its way when a connection is lost is told in the same way; the producer
goes on with the next connection.

In modes enabled and topicOnly with a window of more than 1 flow control by rate does not hold for the connection: the
window regulates the producer.
"""

from __future__ import annotations

from itertools import count
from typing import Final

from raybroker.content.unit_of_work import WORK_UNIT
from raybroker.model.settings.settings import ConfigView

MODE: Final = "OneWaySendMode"
WINDOW: Final = "OneWaySendWindowSize"
BUFFERED: Final = "buffered"
_PART: Final = WORK_UNIT.encode()


class OneWay:
    """The sends of one producer in any mode but buffered. ``window``: one of so many that are not persistent waits."""

    __slots__ = ("_sent", "refusing", "window")

    def __init__(self, window: int) -> None:
        self.window = window
        self.refusing = False
        """The last block that was answered had messages which were refused."""
        self._sent = count(1)

    def is_two_way(self, unit: str | None, header: bytes) -> bool:
        """Whether a non-persistent message waits for the broker's decision; in any thread, once a message.

        unit    of order
        header  of the message, encoded
        """
        due = next(self._sent) % self.window == 0
        return due or self.refusing or unit is not None or _PART in header


def one_way_sends(attributes: ConfigView, kind: str, *, transacted: bool) -> OneWay | None:
    """Make what a producer of a destination of type ``kind`` needs for sends that are not answered; None where no
    non-persistent send waits."""
    mode = attributes[MODE]
    if mode == BUFFERED or transacted:
        return None
    one_way = mode == "enabled" or (mode == "topicOnly" and kind == "topic")
    return OneWay(attributes[WINDOW] if one_way else 1)


def regulates(attributes: ConfigView) -> bool:
    """Whether the window takes the place of flow control by rate."""
    return attributes[MODE] in ("enabled", "topicOnly") and attributes[WINDOW] > 1
