"""Message-driven consumers: a function and where its messages come from (the seeds' message-driven beans)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from raybroker.client.options import Queue
from raybroker.model.errors import ConfigError, NotSupportedError

BATCH_MAX = 10_000


@dataclass(frozen=True)
class Listener:
    """What ``rb.deploy`` needs: still callable as the plain function it was."""

    function: Callable[[Any], object]
    queue: str
    prefetch: int | None
    batch: int
    serializer: str | None = None

    def __call__(self, message: Any) -> object:
        return self.function(message)


def listener(
    *,
    queue: str,
    prefetch: int | None = None,
    batch: int = 1,
    transacted: bool = False,
    serializer: str | None = None,
) -> Callable[[Callable[[Any], object]], Listener]:
    """Make a function a message-driven consumer for :func:`raybroker.deploy`.

    queue     where its messages come from
    prefetch  as for ``session.consumer``
    batch     1: called with one message; more: with a list of up to so many
    A message is acknowledged when the function returns; when it raises, its messages come again, flagged.
    """
    if transacted:
        raise NotSupportedError("transacted listeners are not built yet")
    if not isinstance(batch, int) or not 1 <= batch <= BATCH_MAX:
        raise ConfigError(f"batch={batch!r}; it is 1 to {BATCH_MAX}")
    name = Queue.checked(queue).name

    def mark(function: Callable[[Any], object]) -> Listener:
        return Listener(function, name, prefetch, batch, serializer)

    return mark
