"""The consumer behind every face: the prefetch buffer, and what was handed out and not acknowledged.

Blocks arrive on the IO loop and are opened in the thread that receives, so ``receive`` from a filled buffer is a few
operations under a lock and no call to anybody (R-05, F-01).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from raybroker.client.channel import Channel, ended_by
from raybroker.client.flow import CreditFlow, PrefetchFlow
from raybroker.client.io import fulfil
from raybroker.client.message import Delivery, Message
from raybroker.model.errors import BrokerError, IllegalStateError
from raybroker.wire import frames as wire

if TYPE_CHECKING:
    from raybroker.client.connection import ConnectionCore
    from raybroker.client.session import SessionCore


class ConsumerCore:
    """``limit``, ``percent``: see client.flow; with ``style`` "prefetch" the limit counts unacknowledged messages."""

    def __init__(
        self, session: SessionCore, name: str, *, style: str, limit: int, percent: int, unpickles: bool
    ) -> None:
        self.session = session
        self.name = name
        self.unpickles = unpickles
        self.style = style
        self.limit = limit
        self.percent = percent
        self.epoch = 0
        self.closed = False
        self.recovered_at = 0.0
        self.active = True
        self.listener: Callable[[Message], object] | None = None
        self._connection: ConnectionCore = session.connection
        self._lock = threading.Lock()
        self._arrival = threading.Condition(self._lock)
        self._deliveries: deque[Delivery] = deque()
        self._at = 0
        """How many messages of the first delivery are handed out."""
        self._async_waiters: list[Future[None]] = []
        self._waiting = 0
        self._flow: CreditFlow | PrefetchFlow = CreditFlow(limit, percent)
        self._channel: Channel | None = None
        self._handle = 0
        self._failure: BrokerError | None = None
        self._min_tag = 0
        self.consumed: list[list[int]] = []
        """Handed out and not acknowledged: [first tag, last tag, serial of the first], ascending."""

    # ---- the application's threads ---------------------------------------------------------------------------------

    def take(self, most: int) -> list[Message]:
        """Up to ``most`` messages from the buffer, without waiting."""
        found: list[Message] = []
        if not self._connection.started:
            return found
        with self._lock:
            deliveries = self._deliveries
            while deliveries and len(found) < most:
                delivery, start = deliveries[0], self._at
                end = min(start + most - len(found), delivery.block.count)
                found.extend([Message(delivery, index) for index in range(start, end)])
                self._book(delivery, start, end)
            if not found and self._failure is not None:
                raise self._failure
        return found

    def take_one(self) -> Message | None:
        """The next message of the buffer, or None; the hot path of ``receive``."""
        if not self._connection.started:
            return None
        with self._lock:
            if not self._deliveries:
                if self._failure is not None:
                    raise self._failure
                return None
            delivery, index = self._deliveries[0], self._at
            self._book(delivery, index, index + 1)
        return Message(delivery, index)

    def _book(self, delivery: Delivery, start: int, end: int) -> None:
        """Messages start … end - 1 of the first delivery are handed out: note it, and ask for more when it is time."""
        if end == delivery.block.count:
            self._deliveries.popleft()
            self._at = 0
        else:
            self._at = end
        count = end - start
        ask = self._flow.consumed(count)
        if ask:
            self._connection.io.post(self._send_credit, ask, self.epoch)
        session = self.session
        if session.keeps_track:
            first, last = delivery.tag + start, delivery.tag + end - 1
            serial = session.handed_out(count)
            consumed = self.consumed
            if consumed and consumed[-1][1] + 1 == first and serial - consumed[-1][2] == first - consumed[-1][0]:
                consumed[-1][1] = last
            else:
                consumed.append([first, last, serial])
        self._connection.handed_out(count)

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until something is in the buffer, or the consumer has ended; False when the time is over."""
        with self._lock:
            if self._has_something():
                return True
            self._waiting += 1
            self._poll()
            try:
                return self._arrival.wait_for(self._has_something, timeout_s)
            finally:
                self._waiting -= 1

    def arrival_future(self) -> Future[None]:
        """Done when :meth:`wait` would return True."""
        future: Future[None] = Future()
        with self._lock:
            if self._has_something():
                future.set_result(None)
            else:
                self._poll()
                self._async_waiters.append(future)
        return future

    def _has_something(self) -> bool:
        if self._failure is not None or self.closed:
            return True
        return bool(self._deliveries) and self._connection.started

    @property
    def buffered(self) -> int:
        """Messages here that were not handed out."""
        return self._flow.buffered

    def settle(self, up_to: int | None) -> tuple[int, list[tuple[int, int]]]:
        """Take what was consumed, up to a serial if one is given, out of the books: (epoch, ranges of tags)."""
        with self._lock:
            rows, kept = self.consumed, []
            ranges: list[tuple[int, int]] = []
            for first, last, serial in rows:
                end = last if up_to is None else min(last, first + up_to - serial)
                if end >= first:
                    ranges.append((first, end))
                if end < last:
                    start = max(end + 1, first)
                    kept.append([start, last, serial + start - first])
            self.consumed = kept
            return self.epoch, ranges

    def settle_one(self, message: Message) -> list[tuple[int, int]]:
        """Take one message out of the books; empty when it was not in them."""
        with self._lock:
            if message._delivery.epoch != self.epoch:
                return []
            tag = message.tag
            for index, (first, last, serial) in enumerate(self.consumed):
                if first <= tag <= last:
                    pieces = []
                    if first < tag:
                        pieces.append([first, tag - 1, serial])
                    if tag < last:
                        pieces.append([tag + 1, last, serial + tag + 1 - first])
                    self.consumed[index : index + 1] = pieces
                    return [(tag, tag)]
        return []

    def serial_of(self, message: Message) -> int | None:
        """The serial of a message that is in the books, or None."""
        with self._lock:
            if message._delivery.epoch == self.epoch:
                for first, last, serial in self.consumed:
                    if first <= message.tag <= last:
                        return serial + message.tag - first
        return None

    def acknowledge(self, epoch: int, ranges: list[tuple[int, int]], confirmed: Future[int] | None) -> None:
        """Send an acknowledgement; without a connection it fails, and the messages will come again."""
        self._connection.io.post(self._send_ack, epoch, ranges, confirmed)

    # ---- the IO loop -----------------------------------------------------------------------------------------------

    def _poll(self) -> None:
        if isinstance(self._flow, PrefetchFlow):
            wanted = self._flow.wanted()
            if wanted:
                self._connection.io.post(self._send_credit, wanted, self.epoch)

    def _send_credit(self, credit: int, epoch: int) -> None:
        if self._channel is not None and not self._channel.lost and epoch == self.epoch:
            self._channel.link.write(wire.credit(self._handle, epoch, credit))

    def _send_ack(self, epoch: int, ranges: list[tuple[int, int]], confirmed: Future[int] | None) -> None:
        channel = self._channel
        if channel is None or epoch != self.epoch:
            if confirmed is not None:
                fulfil(confirmed, sum(last - first + 1 for first, last in ranges))
            return
        channel.acknowledge(self._handle, epoch, ranges, confirmed)

    @property
    def attached(self) -> bool:
        return self._channel is not None and not self._channel.lost

    async def attach(self, channel: Channel) -> None:
        """Open on a channel, with an empty buffer."""
        handle = channel.new_handle(self)
        args = {
            "handle": handle, "name": self.name, "flow": self.style, "limit": self.limit,
            "no_ack": self.session.mode == "none",
        }  # fmt: skip
        self._handle = handle
        self._channel = channel
        with self._lock:
            self._forget()
        try:
            await channel.call("open_consumer", args, self._opened)
        except BaseException:
            channel.endpoints.pop(handle, None)
            self._channel = None
            raise

    def _opened(self, answer: dict[str, Any]) -> None:
        with self._lock:
            limit = answer["limit"]
            self._flow = CreditFlow(limit, self.percent) if self.style == "credit" else PrefetchFlow(limit)
            self.epoch = answer["epoch"]
            self.active = answer["active"]
            if self._waiting or self._async_waiters:
                self._poll()

    def _forget(self) -> None:
        """The buffer and the books are void: the broker will deliver everything unacknowledged again."""
        self._deliveries.clear()
        self._at = 0
        self.consumed.clear()
        self._connection.handed_out(self._flow.buffered)
        self._flow.restart()
        self._min_tag = 0
        self.epoch = 0

    def on_frame(self, frame: wire.Frame) -> None:
        if isinstance(frame, wire.Deliver):
            self._deliver(frame)
        elif isinstance(frame, wire.Promoted):
            self.active = True
        elif isinstance(frame, wire.Event):
            self._connection.end(self, ended_by(frame, self.name))

    def _deliver(self, frame: wire.Deliver) -> None:
        count = frame.block.count
        if self.closed or frame.tag < self._min_tag:
            self._connection.meter(count)
            return
        delivery = Delivery(frame.block, self, frame.epoch, frame.tag, frame.attempt)
        with self._lock:
            self._deliveries.append(delivery)
            ask = self._flow.arrived(count)
            self._tell()
        self._connection.arrived(count)
        if ask:
            self._send_credit(ask, frame.epoch)

    def _tell(self) -> None:
        self._arrival.notify()
        for future in self._async_waiters:
            fulfil(future, None)
        self._async_waiters.clear()
        if self.listener is not None:
            self.session.wake_listeners()

    async def release(self) -> None:
        """Give everything unacknowledged back and start again (recover)."""
        channel = self._channel
        if channel is None or channel.lost:
            return
        with self._lock:
            epoch = self.epoch
            limit = self._flow.limit
            self._deliveries.clear()
            self._at = 0
            self.consumed.clear()
            self._min_tag = 1 << 62

        def released(next_tag: int) -> None:
            with self._lock:
                self._connection.handed_out(self._flow.buffered)
                self._flow.restart()
                self._min_tag = next_tag
                if self._waiting or self._async_waiters:
                    self._poll()

        await channel.call("release", {"handle": self._handle, "epoch": epoch, "credit": limit}, released)

    def started(self) -> None:
        """The connection was started: what is in the buffer may be handed out."""
        with self._lock:
            if self._deliveries:
                self._tell()

    def on_writable(self) -> None:
        """A consumer writes little enough not to care."""

    def has_ended(self) -> bool:
        """True once the application has closed it."""
        return self.closed

    def on_lost(self) -> None:
        self._channel = None
        with self._lock:
            self._forget()
        if not self.closed:
            self._connection.recover(self)

    def fail(self, error: BrokerError) -> None:
        with self._lock:
            self._failure = error
            self._arrival.notify_all()
            self._tell()

    def shut(self) -> None:
        """No more messages for the application; whoever waits is woken."""
        with self._lock:
            self.closed = True
            self._failure = self._failure or IllegalStateError(f"the consumer of {self.name} is closed")
            self._arrival.notify_all()
            self._tell()
            self._deliveries.clear()
            self._at = 0

    async def close(self) -> None:
        """Detach on the host: what is not acknowledged goes back (F-25)."""
        channel, self._channel = self._channel, None
        self._connection.handed_out(self._flow.buffered)
        self._flow.restart()
        self.session.forget(self)
        if channel is not None and not channel.lost:
            await channel.call("close_consumer", {"handle": self._handle})
            channel.endpoints.pop(self._handle, None)

    def info(self) -> dict[str, Any]:
        """For people who look: name, limit, messages buffered, and consumed but not acknowledged."""
        waiting = sum(last - first + 1 for first, last, _ in self.consumed)
        return {"destination": self.name, "limit": self._flow.limit, "buffered": self.buffered, "consumed": waiting}
