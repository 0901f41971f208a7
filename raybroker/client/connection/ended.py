"""The end of a connection for good, from the broker's side: it does not come back, and its handles say why."""

from __future__ import annotations

from collections.abc import Callable

from raybroker.model.errors import BrokerError


class Ended:
    """``error``: why, None while it goes on; ``listeners`` are called with it once, on the IO loop."""

    def __init__(self) -> None:
        self.error: BrokerError | None = None
        self.listeners: list[Callable[[BrokerError], None]] = []

    def by(self, error: BrokerError) -> bool:
        """It has ended; False when it had already."""
        if self.error is not None:
            return False
        self.error = error
        for listener in list(self.listeners):
            listener(error)
        return True

    def require_going_on(self) -> None:
        """Raises why it has ended."""
        if self.error is not None:
            raise type(self.error)(*self.error.args)
