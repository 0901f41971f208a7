"""What happened, as operations on values; runs of messages are kept together until somebody wants them one by one.

A value is one message: its producer and sequence number in one integer.  ``fail`` means that it certainly did not
happen, ``info`` that nobody knows; an unknown is never called a failure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

SEQ_BITS = 32


class Op(NamedTuple):
    """``type`` is invoke | ok | fail | info. ``f``:

    enqueue    a send: invoke when the application sends; ok, fail or info when it hears of it
    commit     the host has the message on disk
    deliver    the host wrote the message to a connection; ``attempt`` counts deliveries
    dequeue    the application got the message
    settle     an acknowledgement was confirmed
    destroy    the destination that had taken the message was destroyed; what comes again comes to another one
    discard    an administrator, or a consumer without acknowledgements, made the message go
    consume    the application is done with the message and has said so; fail: that was taken back
    crash      the host lost its memory
    revive     with it, that the message was dead: what became of it was not settled, so it comes back

    ``where``: 0 for queues; SENDS for what producers know of topics; else a delivery queue of a topic, as
    :func:`queue_id`.
    """

    time: int
    process: int
    type: str
    f: str
    value: int
    attempt: int = 0
    persistent: bool = True
    where: int = 0


class History:
    """Collects operations; ``fingerprint`` is the same for two runs only if the same things happened."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, str, str, int, int, int, bool, int]] = []
        self.fingerprint = 0

    def add(
        self,
        time: int,
        process: int,
        type: str,
        f: str,
        first: int,
        count: int,
        attempt: int = 0,
        persistent: bool = True,
        where: int = 0,
    ) -> None:
        """Values first … first + count - 1 went through ``f``."""
        self._rows.append((time, process, type, f, first, count, attempt, persistent, where))
        codes = _CODES[f], _CODES[type]
        self.fingerprint = hash((self.fingerprint, time, process, codes, first, count, attempt, where))

    def __len__(self) -> int:
        return len(self._rows)

    def ops(self) -> Iterator[Op]:
        """One operation for each value."""
        for time, process, kind, f, first, count, attempt, persistent, where in self._rows:
            for value in range(first, first + count):
                yield Op(time, process, kind, f, value, attempt, persistent, where)


_WORDS = (
    "enqueue",
    "commit",
    "deliver",
    "dequeue",
    "settle",
    "discard",
    "destroy",
    "crash",
    "revive",
    "consume",
    "invoke",
    "ok",
    "fail",
    "info",
    "unsee",
)
_CODES = {word: code for code, word in enumerate(_WORDS)}
"""Numbers, because the hash of a text differs from process to process."""


SENDS = -1


PASSING_SHIFT = 56
"""Above this bit, a delivery queue that ends with its consumers says in which life of the host it was."""


def queue_id(number: int, queue: int) -> int:
    return number << SEQ_BITS | queue


def value_of(producer: int, seq: int) -> int:
    return producer << SEQ_BITS | seq
