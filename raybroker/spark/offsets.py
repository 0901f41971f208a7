"""Offsets of a stream: which messages a batch has, by their ids; a pure account.

The position of a stream is not a number, since the subscription at the broker is what knows which messages are left: it
is which messages were taken and are not acknowledged.  Spark writes an offset down before the batch runs.

    batch   number of the batch that ends here
    ids     the messages of that batch
    owed    messages of batches before it, which were not acknowledged when this one was made: they may come again, and
            are acknowledged then, and not given to Spark a second time

Ids are ``ID:PRODUCER-NUMBER``; numbers that follow each other are one range, so that an offset is short.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

OWED_MAX: Final = 200_000
"""Messages that an offset remembers as owed; the oldest are forgotten first: what expired or was removed at the broker
never comes again."""


class MessageIds:
    """A set of message ids, oldest first, that is short when it is written down."""

    __slots__ = ("_ids",)

    def __init__(self, ids: Iterable[str] = ()) -> None:
        self._ids: dict[str, None] = dict.fromkeys(ids)

    def __contains__(self, one: str) -> bool:
        return one in self._ids

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def add(self, ids: Iterable[str]) -> None:
        self._ids.update(dict.fromkeys(ids))

    def remove(self, ids: Iterable[str]) -> None:
        for one in ids:
            self._ids.pop(one, None)

    def forget_oldest(self, most: int) -> None:
        """Keep the last ``most``."""
        for one in list(self._ids)[: max(0, len(self._ids) - most)]:
            del self._ids[one]

    def written(self) -> dict[str, list[int]]:
        """The ids as values of JSON: for each producer first and last numbers, one after another."""
        found: dict[str, list[int]] = {}
        for one in self._ids:
            producer, _, number = one.rpartition("-")
            ranges = found.setdefault(producer, [])
            if ranges and ranges[-1] + 1 == int(number):
                ranges[-1] += 1
            else:
                ranges += [int(number)] * 2
        return found

    @staticmethod
    def parse(written: Mapping[str, list[int]]) -> MessageIds:
        """The ids that ``written`` gave."""
        return MessageIds(
            f"{producer}-{number}"
            for producer, ranges in written.items()
            for first, last in zip(ranges[::2], ranges[1::2], strict=True)
            for number in range(first, last + 1)
        )


class StreamOffset(NamedTuple):
    """See the module."""

    batch: int
    ids: MessageIds
    owed: MessageIds

    def written(self) -> dict[str, Any]:
        """The offset as Spark stores it."""
        return {"batch": self.batch, "ids": self.ids.written(), "owed": self.owed.written()}

    @staticmethod
    def parse(written: Mapping[str, Any]) -> StreamOffset:
        return StreamOffset(written["batch"], MessageIds.parse(written["ids"]), MessageIds.parse(written["owed"]))


BEGIN = StreamOffset(0, MessageIds(), MessageIds())
