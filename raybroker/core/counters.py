"""Totals of a destination. Those that are LASTING go on over restarts of its host.

A snapshot holds the lasting totals, and what the log says after it is added to them when the destination is recovered:
messages and bytes that came in and went out, as far as they are stored.  What leaves no record (non-persistent
messages, refusals, redeliveries, deaths) and came after the last snapshot is not counted any more after a crash.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

LASTING: Final = (
    "messages_in",
    "messages_out",
    "bytes_in",
    "bytes_out",
    "redelivered",
    "refused",
    "expired",
    "dead",
    "duplicates",
    "moved_in",
    "recalled",
    "batches",
    "batched",
    "batches_due",
    "batch_wait_ms",
)
"""Totals that are in snapshots, each by its place here: new ones are added at the end."""


FORMED: Final = ("batches", "batched", "batches_due", "batch_wait_ms")
"""Those of FormedBatches."""


class FormedBatches:
    """``batches``: formed and handed out, of ``batched`` messages in all; ``batches_due`` of them were not full and
    had waited for long enough; ``batch_wait_ms``: how long their oldest messages had waited, together."""

    __slots__ = ("batch_wait_ms", "batched", "batches", "batches_due")

    def __init__(self) -> None:
        self.batches = self.batched = self.batches_due = self.batch_wait_ms = 0

    def count_batch(self, messages: int, waited_ms: int, *, full: bool) -> None:
        """A batch was handed out."""
        self.batches += 1
        self.batched += messages
        self.batches_due += not full
        self.batch_wait_ms += waited_ms


class SlowTimes:
    """Times for which producers were told to wait: so many ``episodes``, ``ms`` in all of those that are over, and
    ``since_ms`` of the latest one."""

    __slots__ = ("episodes", "ms", "since_ms")

    def __init__(self) -> None:
        self.episodes = self.ms = self.since_ms = 0


class Counters:
    """Bytes are body bytes; ``slow``: times of slow producers.

    ``moved_in``: messages that came from elsewhere, see command.Send; those of a transaction count when it commits.
    ``failed``: cause → deliveries that have failed by it since the host started.
    ``recalled``: messages that consumers were asked for and gave back, since their applications had not begun them.
    ``formed``: batches for consumers of such.
    ``removed``: messages that REMOVE_OLDEST or REMOVE_LOW_PRIORITY discarded; ``refusals``: code → messages refused
    for that reason, and the text of the latest refusal.

    ``recovered``: lasting totals as the host had them when it started; ``base``: as they were when an administrator
    set them to zero; ``since_ms``: when that was, or when the destination was made, milliseconds, 0 when not known.
    """

    __slots__ = (
        "base",
        "bytes_in",
        "bytes_out",
        "dead",
        "duplicates",
        "expired",
        "failed",
        "formed",
        "messages_in",
        "messages_out",
        "moved_in",
        "recalled",
        "recovered",
        "redelivered",
        "refusals",
        "refused",
        "removed",
        "since_ms",
        "slow",
    )

    def __init__(self) -> None:
        self.messages_in = self.messages_out = self.bytes_in = self.bytes_out = self.redelivered = self.refused = 0
        self.dead = self.duplicates = self.expired = self.removed = self.moved_in = self.recalled = 0
        self.formed = FormedBatches()
        self.slow = SlowTimes()
        self.failed: dict[str, int] = {}
        self.refusals: dict[str, tuple[int, str]] = {}
        self.recovered: Mapping[str, int] = {}
        self.base: Mapping[str, int] = {}
        self.since_ms = 0

    def lasting(self) -> dict[str, int]:
        """The lasting totals."""
        return {name: getattr(self.formed if name in FORMED else self, name) for name in LASTING}

    def since_start(self, name: str) -> int:
        """A total as the host has counted it since it started."""
        value: int = getattr(self.formed if name in FORMED else self, name)
        return value - self.recovered.get(name, 0)

    def restore(self, lasting: Mapping[str, int], base: Mapping[str, int], since_ms: int) -> None:
        """Go on from these totals."""
        for name in LASTING:
            setattr(self.formed if name in FORMED else self, name, lasting.get(name, 0))
        self.base, self.since_ms = dict(base), since_ms

    def count_received(self, messages: int, nbytes: int, *, moved: bool) -> None:
        """Messages are here for good."""
        if moved:
            self.moved_in += messages
        else:
            self.messages_in += messages
            self.bytes_in += nbytes

    def refuse(self, code: str, count: int, text: str) -> None:
        """``count`` messages were not taken."""
        self.refused += count
        self.refusals[code] = self.refusals.get(code, (0, ""))[0] + count, text
