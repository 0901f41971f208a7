"""Message-driven consumers: a function and where its messages come from (the seeds' message-driven beans)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from raybroker.client.destinations import Queue
from raybroker.model.errors import ConfigError

BATCH_MAX = 10_000


@dataclass(frozen=True)
class Listener:
    """What ``rb.deploy`` needs: still callable as the plain function it was."""

    function: Callable[[Any], object]
    queue: str
    prefetch: int | None
    batch: int
    serializer: str | None = None
    transacted: bool = False
    selector: str | None = None

    def __call__(self, message: Any) -> object:
        return self.function(message)


def listener(
    *,
    queue: str,
    prefetch: int | None = None,
    batch: int = 1,
    transacted: bool = False,
    serializer: str | None = None,
    selector: str | None = None,
) -> Callable[[Callable[[Any], object]], Listener]:
    """Make a function a message-driven consumer for :func:`raybroker.deploy`.

    queue       where its messages come from
    prefetch    as for ``session.consumer``; so is ``selector``
    batch       1: called with one message; more: with a list of up to so many
    transacted  called with one message at a time; up to ``batch`` calls are one transaction, which ends earlier when
                no next message is at hand (W-42)
    A message is acknowledged when the function returns; when it raises, its messages come again, flagged. Those of a
    transaction that is rolled back are tried again one to a transaction.
    """
    if not isinstance(batch, int) or not 1 <= batch <= BATCH_MAX:
        raise ConfigError(f"batch={batch!r}; it is 1 to {BATCH_MAX}")
    name = Queue.checked(queue).name

    def mark(function: Callable[[Any], object]) -> Listener:
        return Listener(function, name, prefetch, batch, serializer, bool(transacted), selector)

    return mark
