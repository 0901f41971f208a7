"""Heartbeats between brokers in datagrams, as long as those come through.

A beat tells the receiver also which of its own beats came last, so each side knows what arrives.  A beat counts as
carried only while nothing that was sent before is without such an answer for longer than UNANSWERED_MS; otherwise the
caller carries it in another way as well.  So a network that carries no datagrams costs time of the processor, not a
sign of life, and a broker that came back is found by asking it where it listens.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, fields
from typing import Any, Final

from raybroker.cluster.member_messages import Beat, Envelope, Position
from raybroker.cluster.membership import HEARTBEAT_MS
from raybroker.cluster.term import Leadership
from raybroker.engine.ports import Clock
from raybroker.model.errors import BrokerError
from raybroker.system.supervision import Supervisor
from raybroker.transport.datagrams import PAYLOAD_BYTES_MAX, Datagrams, Number

UNANSWERED_MS: Final = HEARTBEAT_MS * 3 // 2
"""A beat is answered by the next one of the other side, half a second later at most; one may be late."""
LEARN_APART_MS: Final = 2000
"""A broker is asked so often at most where it listens."""
NONE: Final = Number()
OPEN_MAX: Final = 16
"""Beats without an answer that are remembered."""

log = logging.getLogger("raybroker.cluster")

Place = tuple[str, int, bytes]
"""Address, port and key of a broker's datagrams."""


@dataclass
class _Way:
    """The way to one other broker. ``heard``: number of its last beat; ``open``: of ours that are not answered, with
    times."""

    place: Place | None = None
    heard: Number = NONE
    answered: bool = False
    open: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=OPEN_MAX))
    asked_ms: int | None = None
    asking: asyncio.Task[None] | None = None


class Beats:
    """``learn`` asks a broker where it listens; ``receive`` takes what comes."""

    def __init__(
        self,
        datagrams: Datagrams,
        clock: Clock,
        learn: Callable[[str], Awaitable[Place | None]],
        receive: Callable[[Envelope], None],
        *,
        prefix: bytes = b"",
    ) -> None:
        """``prefix``: what payloads of beats begin with; those that are taken come without."""
        self._datagrams = datagrams
        self._prefix = prefix
        self._clock = clock
        self._learn = learn
        self._receive = receive
        self._ways: dict[str, _Way] = {}
        self._loops = Supervisor("signs of life")

    def send(self, to: str, envelope: Envelope) -> bool:
        """Send a beat; False when it has to be carried in another way too."""
        way = self._ways.setdefault(to, _Way())
        now_ms = self._now_ms()
        if way.place is None:
            self._learn_place(to, way, now_ms)
            return False
        payload = self._prefix + encoded(envelope, way.heard)
        if len(payload) > PAYLOAD_BYTES_MAX:
            return False
        ip, port, key = way.place
        proven = way.answered and not (way.open and now_ms - way.open[0][1] > UNANSWERED_MS)
        way.open.append((self._datagrams.send((ip, port), key, payload).number, now_ms))
        if not proven:
            self._learn_place(to, way, now_ms)
        return proven

    def receive_beat(self, sender: str, number: Number, payload: bytes) -> None:
        """A beat of another broker; what cannot be read was made by another version, and is not answered."""
        try:
            envelope, answer = decoded(payload)
        except (ValueError, TypeError, RecursionError) as error:
            log.debug("a beat of broker %s cannot be read: %s", sender, error)
            return
        if envelope.sender != sender:
            return
        way = self._ways.setdefault(sender, _Way())
        way.heard = number
        if answer.life == self._datagrams.life:
            while way.open and way.open[0][0] <= answer.number:
                way.open.popleft()
                way.answered = True
        self._receive(envelope)

    def _now_ms(self) -> int:
        return self._clock.monotonic_ns() // 1_000_000

    def _learn_place(self, broker: str, way: _Way, now_ms: int) -> None:
        """Find out where a broker listens, if that has not just been tried."""
        if way.asking is None and (way.asked_ms is None or now_ms - way.asked_ms >= LEARN_APART_MS):
            way.asked_ms = now_ms
            way.asking = self._loops.once(f"where broker {broker} listens", self._find(broker, way))

    async def _find(self, broker: str, way: _Way) -> None:
        try:
            place = await self._learn(broker)
        except BrokerError:
            place = None  # It is down, or busy; it will be asked again.
        finally:
            way.asking = None
        if place is not None and place != way.place:
            way.place, way.answered = place, False
            way.open.clear()

    def close(self) -> None:
        self._loops.close()


def encoded(envelope: Envelope, answer: Number) -> bytes:
    """A beat as bytes, with the number of the last one that came from its receiver."""
    beat = envelope.message
    assert isinstance(beat, Beat)
    return json.dumps(
        [
            answer,
            envelope.sender,
            envelope.incarnation,
            envelope.to,
            _row(beat.claim),
            _row(beat.position),
            beat.joined,
            beat.operating,
        ]
    ).encode()


def decoded(payload: bytes) -> tuple[Envelope, Number]:
    """Raises ValueError, TypeError or RecursionError for what is no beat."""
    answer, sender, incarnation, to, claim, position, joined, operating = json.loads(payload)
    beat = Beat(_made(Leadership, claim), _made(Position, position), _of(int, joined), _of(bool, operating))
    return Envelope(_of(str, sender), _of(int, incarnation), _of(int, to), beat), Number(*map(_int, answer))


def _row(value: Any) -> list[Any]:
    return [getattr(value, column.name) for column in fields(value)]


def _made(kind: Any, row: list[Any]) -> Any:
    """Each column has the type that the class says."""
    columns = fields(kind)
    if len(row) != len(columns):
        raise ValueError(f"{kind.__name__} has {len(columns)} columns, not {len(row)}")
    return kind(*(_of({"int": int, "str": str}[str(c.type)], value) for c, value in zip(columns, row, strict=True)))


def _int(value: Any) -> int:
    return int(_of(int, value))


def _of(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise ValueError(f"{value!r} is no {kind.__name__}")
    return value
