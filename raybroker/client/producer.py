"""The producer behind every face: thread safe to feed, and on the IO loop it writes, settles and recovers.

A handle holds at most ``raybroker.producer.buffer_bytes`` of unsettled messages; whoever sends more waits.  Blocks go
out when they are full, when somebody waits for one, or ``raybroker.producer.linger_ms`` after the first message.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any

from raybroker.client.bodies import encode_any
from raybroker.client.channel import Channel, ended_by
from raybroker.client.io import fulfil, refuse
from raybroker.client.message import message_id
from raybroker.client.producing import Batch, Producing, Shared
from raybroker.model.block import BLOCK_BYTES_TARGET
from raybroker.model.errors import (
    BrokerError,
    IllegalStateError,
    MessageTooLargeError,
    from_code,
)
from raybroker.model.record import Buffer
from raybroker.wire import frames as wire
from raybroker.wire.content import encode_body

if TYPE_CHECKING:
    from raybroker.client.connection import ConnectionCore

MANY_MESSAGES = 1024
"""Messages that ``send_many`` takes at a time."""
_ONLY_BYTES = {bytes}


class ProducerCore:
    """See the module. ``shared`` is what messages have unless a send says otherwise."""

    def __init__(self, connection: ConnectionCore, name: str, producer: int, shared: Shared, *, pickles: bool) -> None:
        self.name = name
        self.shared = shared
        self.closed = False
        self.recovered_at = 0.0
        self._connection = connection
        self._encode: Callable[[Any], tuple[int, bytes]] = encode_any if pickles else encode_body
        self._state = Producing(producer)
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._room_waiters: list[Future[None]] = []
        self._idle_waiters: list[Future[None]] = []
        self._scheduled = False
        self._lingering = False
        self._failure: BrokerError | None = None
        self._channel: Channel | None = None
        self._handle = 0
        self._generation = 0
        self._buffer_bytes: int = connection.attributes["raybroker.producer.buffer_bytes"]
        self._window_bytes: int = connection.attributes["raybroker.producer.window_bytes"]
        self._linger_s: float = connection.attributes["raybroker.producer.linger_ms"] / 1000
        self._body_bytes_max: int = connection.message_bytes_max

    # ---- any thread ------------------------------------------------------------------------------------------------

    def put(
        self, body: Any, header: bytes, shared: Shared, waiter: Future[str] | None, *, urgent: bool, block: bool = True
    ) -> str | None:
        """Accept one message; returns its id, or None when there is no room and ``block`` is False."""
        kind, data = self._encode(body)
        if len(data) > self._body_bytes_max:
            raise MessageTooLargeError(
                f"a body of {len(data)} bytes exceeds imq.message.max_size={self._body_bytes_max}; send it in parts"
            )
        with self._lock:
            if not self._wait_for_room(block=block):
                return None
            state = self._state
            seq = state.add(kind, data, header, shared, self._connection.clock.now_ms(), waiter)
            if urgent or state.ready:
                self._schedule()
            elif not self._lingering:
                self._lingering = True
                self._connection.io.post(self._linger)
        return message_id(self._state.producer, seq)

    def put_many(self, bodies: Iterable[Any], shared: Shared) -> Iterator[Future[str]]:
        """Accept messages as full blocks; yields a future for each block, to be waited for."""
        source, encode, most = iter(bodies), self._encode, self._body_bytes_max
        while chunk := list(islice(source, MANY_MESSAGES)):
            kinds: bytes
            if set(map(type, chunk)) == _ONLY_BYTES:
                kinds, data = bytes(len(chunk)), chunk
            else:
                items = [encode(body) for body in chunk]
                kinds, data = bytes([kind for kind, _ in items]), [encoded for _, encoded in items]
            largest = max(map(len, data))
            if largest > most:
                raise MessageTooLargeError(f"a body of {largest} bytes exceeds imq.message.max_size={most}")
            for start, end in _by_bytes(data):
                done: Future[str] = Future()
                with self._lock:
                    self._wait_for_room(block=True)
                    now_ms = self._connection.clock.now_ms()
                    self._state.add_many(kinds[start:end], data[start:end], shared, now_ms, done)
                    self._schedule()
                yield done

    def room_future(self) -> Future[None]:
        """Done when there may be room again."""
        future: Future[None] = Future()
        with self._lock:
            if self._has_room():
                future.set_result(None)
            else:
                self._room_waiters.append(future)
        return future

    @property
    def unsettled(self) -> int:
        """Bytes accepted and not settled."""
        return self._state.held_bytes

    def _has_room(self) -> bool:
        return self._state.held_bytes < self._buffer_bytes or self._failure is not None or self.closed

    def _wait_for_room(self, *, block: bool) -> bool:
        while not self._has_room():
            if not block:
                return False
            self._room.wait()
        if self._failure is not None:
            raise self._failure
        if self.closed:
            raise IllegalStateError(f"the producer for {self.name} is closed")
        return True

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._connection.io.post(self._flush)

    # ---- the IO loop -----------------------------------------------------------------------------------------------

    def _linger(self) -> None:
        self._connection.io.loop.call_later(self._linger_s, self._linger_over)

    def _linger_over(self) -> None:
        self._lingering = False
        self._flush()

    def _flush(self) -> None:
        """Write everything that is ready, as far as the connection takes it."""
        done: list[Batch] = []
        with self._lock:
            self._scheduled = False
            channel, state = self._channel, self._state
            if channel is None or channel.lost:
                return
            state.seal()
            buffers: list[Buffer] = []
            window = self._window_bytes
            while state.ready and state.unsettled_bytes < window and not channel.link.congested:
                floor = state.floor
                batch = state.next_ready()
                assert batch is not None
                buffers.extend(wire.send(self._handle, floor, batch.data))
                if not batch.shared.persistent:
                    done.append(batch)
                if len(buffers) >= 32:
                    channel.link.write(*buffers)
                    buffers.clear()
            if buffers:
                channel.link.write(*buffers)
            if done:
                self._made_room()
        for batch in done:
            _complete(batch, self._state.producer, ())

    def _made_room(self) -> None:
        if self._has_room():
            self._room.notify_all()
            for future in self._room_waiters:
                fulfil(future, None)
            self._room_waiters.clear()
        if not self._state.held_bytes:
            for future in self._idle_waiters:
                fulfil(future, None)
            self._idle_waiters.clear()

    @property
    def attached(self) -> bool:
        return self._channel is not None and not self._channel.lost

    async def attach(self, channel: Channel) -> None:
        """Open on a channel, and send again what the last one left unsettled."""
        handle = channel.new_handle(self)
        self._generation += 1
        args = {
            "handle": handle, "name": self.name, "producer": self._state.producer, "generation": self._generation
        }  # fmt: skip
        try:
            await channel.call("open_producer", args)
        except BaseException:
            channel.endpoints.pop(handle, None)
            raise
        with self._lock:
            self._channel, self._handle = channel, handle
            self._state.send_again()
        self._flush()

    def on_frame(self, frame: wire.Frame) -> None:
        if isinstance(frame, wire.Sent | wire.Refused):
            with self._lock:
                batch = self._state.settle(frame.first_seq)
                self._made_room()
                if self._state.ready:
                    self._schedule()
            if batch is not None:
                _complete(batch, self._state.producer, frame.rows if isinstance(frame, wire.Refused) else ())
        elif isinstance(frame, wire.Event):
            self._connection.end(self, ended_by(frame, self.name))

    def on_writable(self) -> None:
        self._flush()

    def has_ended(self) -> bool:
        """True once the application has closed it."""
        return self.closed

    def on_lost(self) -> None:
        self._channel = None
        if not self.closed:
            self._connection.recover(self)

    def fail(self, error: BrokerError) -> None:
        """It is over: everybody who waits gets ``error``."""
        with self._lock:
            self._failure = error
            batches = self._state.abandon()
            self._made_room()
        for batch in batches:
            for _, waiter in batch.waiters:
                refuse(waiter, error)

    async def close(self) -> None:
        """Close the handle on the host; what is unsettled has been waited for by the caller."""
        channel = self._channel
        with self._lock:
            self.closed = True
            self._made_room()
        if channel is not None and not channel.lost:
            channel.endpoints.pop(self._handle, None)
            await channel.call("close_producer", {"handle": self._handle})
        for batch in self._state.abandon():
            for _, waiter in batch.waiters:
                refuse(waiter, IllegalStateError(f"the producer for {self.name} was closed"))

    def settled_future(self) -> Future[None]:
        """Done when everything accepted so far is settled, or the producer has failed."""
        done: Future[None] = Future()
        with self._lock:
            if not self._state.held_bytes or self._failure is not None:
                done.set_result(None)
            else:
                self._idle_waiters.append(done)
                self._schedule()
        return done


def _by_bytes(bodies: list[bytes]) -> Iterator[tuple[int, int]]:
    """Where to cut a run of bodies, so that no block grows past its target size: (start, end) of each piece."""
    ends = list(accumulate(map(len, bodies)))
    start = before = 0
    while ends[-1] - before > BLOCK_BYTES_TARGET and start < len(bodies) - 1:
        end = max(bisect_right(ends, before + BLOCK_BYTES_TARGET, start), start + 1)
        yield start, end
        start, before = end, ends[end - 1]
    if start < len(bodies):
        yield start, len(bodies)


def _complete(batch: Batch, producer: int, rows: Iterable[tuple[int, int, str, str]]) -> None:
    """Tell everybody who waits for a message of a settled block."""
    refusals = [(start, end, from_code(code, text)) for start, end, code, text in rows]
    for index, waiter in batch.waiters:
        hit = next((e for a, b, e in refusals if a <= index < b or index < 0), None)
        if hit is not None:
            refuse(waiter, hit)
        else:
            fulfil(waiter, message_id(producer, batch.first_seq + max(index, 0)))
