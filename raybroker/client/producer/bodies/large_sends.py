"""Large sends: a producer's messages whose bodies go to the host in pieces, ahead of the message itself.

Nothing else of the producer leaves meanwhile, so that the order stays; other producers of the connection do not wait.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from raybroker.client.connection.channel import Channel
from raybroker.client.connection.shared_body import ReferredBody
from raybroker.client.connection.whole_body import WholeBody
from raybroker.client.destinations import Destination
from raybroker.client.io.tasks import Tasks
from raybroker.client.producer.pacing.send_room import SendRoom
from raybroker.client.producer.producer_state import ProducerState, SendBatch
from raybroker.client.producer.settlement import complete, refuse_all, unknown_outcome
from raybroker.model.blocks.block import headers_bytes_of
from raybroker.model.blocks.large_block import pieces_of
from raybroker.model.bounds import MESSAGE_BYTES_MAX
from raybroker.model.errors import BrokerError, ConnectionLostError, MessageTooLargeError
from raybroker.wire.native import frames as wire

AHEAD: Final = 4
"""Pieces of a body that are sent before the first of them is answered."""


async def upload(
    channel: Channel, kind: str, name: str, body: WholeBody, headers_bytes: int, *, persistent: bool = True
) -> int:
    """The number of the body on the connection, once the host has all of it; ``kind`` and ``name``: where it goes.

    ``headers_bytes``: what its message has of headers, so that one that is too large is refused before it is sent;
    ``persistent``: whether its message is, for a body that goes by reference.

    Raises what the host answers, and ConnectionLostError.
    """
    async with channel.uploads:
        if type(body) is ReferredBody:
            facts = {"headers": headers_bytes, "type": kind, "name": name, "persistent": persistent}
            number = await _refer(channel, body, facts)
            if number:
                return number
        number = channel.new_body()
        asked: deque[asyncio.Future[Any]] = deque()
        try:
            begin = {"body": number, "bytes": body.nbytes, "headers": headers_bytes, "type": kind, "name": name}
            await channel.request("begin_body", begin)
            for piece in range(pieces_of(body.nbytes)):
                if len(asked) == AHEAD:
                    await asked.popleft()
                asked.append(channel.request("body_piece", {"body": number, "data": body.piece(piece)}))
            while asked:
                await asked.popleft()
        except BaseException:
            for future in asked:
                future.add_done_callback(lambda done: done.cancelled() or done.exception())
            if not channel.lost:
                channel.tell("drop_body", {"body": number})
            raise
    return number


async def _refer(channel: Channel, body: ReferredBody, facts: dict[str, Any]) -> int:
    """The number of a body that went by reference; 0: it has to go in pieces, as it may unless it is too large."""
    why: BrokerError | None = None
    if channel.pieces:
        number = channel.new_body()
        try:
            token = await body.objects.give(
                body.shared, channel.place.key.partition("@")[0], body.nbytes, facts["persistent"]
            )
        except BrokerError as error:
            why = error
        else:
            refer = {"body": number, "bytes": body.nbytes, "token": token, **facts}
            try:
                await channel.request("refer_body", refer)
            except (MessageTooLargeError, ConnectionLostError):
                raise
            except BrokerError as error:
                why = error
            except BaseException:
                if not channel.lost:
                    channel.tell("drop_body", {"body": number})
                raise
            else:
                return number
    if body.nbytes > MESSAGE_BYTES_MAX:
        raise MessageTooLargeError(
            f"a body of {body.nbytes} bytes cannot go by reference"
            f" ({why or 'its host keeps no bodies in files'}), and one that goes in pieces has at most"
            f" {MESSAGE_BYTES_MAX} bytes"
        )
    return 0


class LargeSends:
    """The large sends of a producer, on the IO loop. ``state`` and ``room`` are the producer's, and ``lock`` guards
    them.

    flush         writes what waited behind a body
    given_up      counts messages that are not sent any more, because of an error
    note_refusal  tells the transactions of its session, if that is transacted
    """

    def __init__(
        self,
        destination: Destination,
        state: ProducerState,
        lock: threading.Lock,
        room: SendRoom,
        tasks: Tasks,
        flush: Callable[[], None],
        given_up: Callable[[Sequence[SendBatch], BrokerError], None],
        *,
        note_refusal: Callable[[BrokerError], None] | None = None,
    ) -> None:
        self._destination = destination
        self._state = state
        self._lock = lock
        self._room = room
        self._tasks = tasks
        self._flush = flush
        self._given_up = given_up
        self._note_refusal = note_refusal
        self._channel: Channel | None = None
        """Where a body is going."""

    def under_way(self, channel: Channel) -> bool:
        """Whether the producer has to wait for a body on this connection."""
        return self._channel is channel

    def send_in_pieces(self, channel: Channel, handle: int, batch: SendBatch, txn: int = 0) -> bool:
        """Send a block that has just become unsettled, if its body goes in pieces; False: it goes as it is.

        ``txn``: number of its transaction on the connection, 0 for none.
        """
        if batch.large is None or not (channel.pieces or batch.large.nbytes > MESSAGE_BYTES_MAX):
            return False
        self._channel = channel
        self._tasks.spawn(self._send(channel, handle, batch, txn))
        return True

    async def _send(self, channel: Channel, handle: int, batch: SendBatch, txn: int) -> None:
        assert batch.large is not None
        failure: BrokerError | None = None
        try:
            to, headers_bytes = self._destination, headers_bytes_of(batch.data)
            body = await upload(
                channel, to.kind, to.name, batch.large, headers_bytes, persistent=batch.shared.persistent
            )
            with self._lock:
                wanted = batch in self._state.unsettled
                if channel.lost:
                    raise ConnectionLostError(f"the connection of the producer for {self._destination.name} was lost")
                if wanted:
                    batch.large.sent = True
                    channel.link.write(*wire.send_large(handle, batch.floor, txn, body, batch.data))
            if not wanted:  # Its producer has given it up.
                channel.tell("drop_body", {"body": body})
        except BrokerError as error:
            wanted, failure = True, error
        except asyncio.CancelledError:
            wanted = False
            raise
        finally:
            if self._channel is channel:
                self._channel = None
        if failure is not None:
            self._failed(batch, failure)
        elif wanted:
            self._sent(batch)
        self._flush()

    def _sent(self, batch: SendBatch) -> None:
        """The message has left, as any other would have."""
        state, transacted = self._state, self._note_refusal is not None
        with self._lock:
            told = transacted or not (batch.shared.persistent or state.answered)
            if transacted or not state.awaits(batch):
                state.settle_block(batch.first_seq)
            if transacted:
                batch.drop_content()
            self._room.changed()
        if told:
            complete(batch, state.producer, ())
            batch.leave()

    def _failed(self, batch: SendBatch, error: BrokerError) -> None:
        """The host did not take the body, or the connection was lost before the message left."""
        lost = isinstance(error, ConnectionLostError)
        if lost and self._note_refusal is None and batch.shared.persistent:
            return  # It is sent again on the next connection.
        if batch.large is not None and batch.large.sent:
            error = unknown_outcome(error)
        with self._lock:
            known = self._state.settle_block(batch.first_seq)
            if not lost and self._note_refusal is not None:
                self._note_refusal(error)
                self._room.stop(error)
            self._room.changed()
        if known is not None:
            refuse_all((batch,), error)
            self._given_up((batch,), error)
