"""Holding dispatch until enough consumers are there.

A queue with consumersBeforeDispatch hands nothing out before so many consumers are attached, backups included, or
delayBeforeDispatch has passed since the first of them came.  Then it goes on until the last one has left; raising the
number does not stop it before.  A restart begins anew: consumers come back one by one.
"""

from __future__ import annotations

from raybroker.model.settings.settings import DestinationAttributes


class DispatchGate:
    """``dispatching``: enough consumers have come, or it took too long.  ``since_ms``: when the first one came."""

    __slots__ = ("dispatching", "since_ms")

    def __init__(self) -> None:
        self.dispatching = False
        self.since_ms: int | None = None

    def is_open_for(self, consumers: int, attributes: DestinationAttributes, now_ms: int) -> bool:
        """Whether messages are handed out, now that so many consumers are there."""
        if not consumers:
            self.dispatching, self.since_ms = False, None
            return False
        if self.since_ms is None:
            self.since_ms = now_ms
        until_ms = self.until_ms(attributes)
        late = until_ms is not None and now_ms >= until_ms
        self.dispatching = self.dispatching or late or consumers >= attributes.consumersBeforeDispatch
        return self.dispatching

    def until_ms(self, attributes: DestinationAttributes) -> int | None:
        """Return when the wait is over whoever has come by then; None when there is no wait, or no end of it."""
        if self.dispatching or self.since_ms is None or attributes.delayBeforeDispatch < 0:
            return None
        return self.since_ms + attributes.delayBeforeDispatch
