"""The session behind every face: one acknowledgement mode, and the consumers that share it (R-04, R-07 … R-10).

    auto     what was received is acknowledged, and confirmed, when the application comes back for more, closes, or its
             listener returns: after a failure at most the last message (or the last ``receive_many``) comes again
    client   the application acknowledges: all, this one, or up to this one
    dups_ok  acknowledged without confirmation every DUPS_OK_MESSAGES messages or DUPS_OK_S seconds
    none     the broker counts a message as acknowledged when it hands it to the connection
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from raybroker.client.consumer import ConsumerCore
from raybroker.client.message import Message
from raybroker.model.errors import IllegalStateError

if TYPE_CHECKING:
    from raybroker.client.connection import ConnectionCore

MODES: Final = ("auto", "client", "dups_ok", "none")
DUPS_OK_MESSAGES: Final = 10
DUPS_OK_S: Final = 7.0

Confirmations = list[Future[int]]


class SessionCore:
    """``finish`` is how this face waits for confirmations: blocking, or by returning something to await."""

    def __init__(self, connection: ConnectionCore, mode: str, finish: Callable[[Confirmations], Any]) -> None:
        self.connection = connection
        self.mode = mode
        self.keeps_track = mode != "none"
        self.finish = finish
        self.consumers: list[ConsumerCore] = []
        self.unsettled = 0
        """Messages handed out since the last acknowledgement ("auto" and "dups_ok")."""
        self.wake_listeners: Callable[[], None] = lambda: None
        self._serial = 0
        self._lazy = False

    def handed_out(self, count: int) -> int:
        """``count`` messages leave a buffer; returns the serial of the first, in the order of the whole session."""
        serial = self._serial + 1
        self._serial += count
        self.unsettled += count
        if self.mode == "dups_ok":
            if self.unsettled >= DUPS_OK_MESSAGES:
                self.connection.io.post(self.flush_lazily)
            elif not self._lazy:
                self._lazy = True
                self.connection.io.post(self._arm)
        return serial

    def _arm(self) -> None:
        def over() -> None:
            self._lazy = False
            self.flush_lazily()

        self.connection.io.loop.call_later(DUPS_OK_S, over)

    def flush_lazily(self) -> None:
        """Acknowledge without asking for a confirmation (R-09)."""
        self.unsettled = 0
        for consumer in list(self.consumers):
            epoch, ranges = consumer.settle(None)
            if ranges:
                consumer.acknowledge(epoch, ranges, None)

    def settle(self, up_to: int | None = None) -> Confirmations:
        """Acknowledge what was consumed, up to a serial if one is given; returns what to wait for (B-06)."""
        self.unsettled = 0
        confirmations: Confirmations = []
        for consumer in list(self.consumers):
            epoch, ranges = consumer.settle(up_to)
            if ranges:
                confirmed: Future[int] = Future()
                consumer.acknowledge(epoch, ranges, confirmed)
                confirmations.append(confirmed)
        return confirmations

    # ---- called through messages -----------------------------------------------------------------------------------

    def acknowledge(self, up_to: Message | None) -> Any:
        """All that the session has consumed, or up to a message; ignored in other modes than "client" (R-08)."""
        if self.mode != "client":
            return self.finish([])
        if up_to is None:
            return self.finish(self.settle())
        serial = up_to._delivery.consumer.serial_of(up_to)
        return self.finish(self.settle(serial) if serial is not None else [])

    def acknowledge_one(self, message: Message) -> Any:
        if self.mode != "client":
            return self.finish([])
        consumer = message._delivery.consumer
        ranges = consumer.settle_one(message)
        if not ranges:
            return self.finish([])
        confirmed: Future[int] = Future()
        consumer.acknowledge(message._delivery.epoch, ranges, confirmed)
        return self.finish([confirmed])

    # ---- the IO loop -----------------------------------------------------------------------------------------------

    async def recover(self) -> None:
        """Stop, give everything unacknowledged back, start with the oldest of it (R-11)."""
        if self.mode == "none":
            raise IllegalStateError("recover() in a session that does not acknowledge")
        self.unsettled = 0
        for consumer in list(self.consumers):
            await consumer.release()

    def forget(self, consumer: ConsumerCore) -> None:
        if consumer in self.consumers:
            self.consumers.remove(consumer)
