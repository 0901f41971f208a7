"""Blocks for the dead message queue: dead messages with their death written on them, and records of damaged blocks."""

from __future__ import annotations

from raybroker.core.outcome import DeadLetter
from raybroker.engine.path.own_sends import OwnSends
from raybroker.engine.ports import Clock, Codec, Death, Named
from raybroker.model.blocks.block import Block


class DeathRecords:
    """``broker``: its name, which stands on each of them. Their producer is the host itself."""

    def __init__(self, own: OwnSends, codec: Codec, clock: Clock, broker: str) -> None:
        self._own = own
        self._codec = codec
        self._clock = clock
        self._broker = broker

    def dead_block(
        self, destination: Named, effect: DeadLetter, block: Block, subscription: str, *, truncate: bool
    ) -> bytes:
        """The dead messages of a block, encoded.

        ``subscription``: key of the one that they died for, "" for all; ``truncate``: without their bodies.
        """
        death = Death(
            effect.reason,
            effect.comment,
            effect.attempts,
            (destination.kind, destination.name),
            self._broker,
            effect.failure,
            subscription,
            effect.cause,
        )
        return self._codec.dead_block(
            block,
            effect.mask,
            death,
            producer=self._own.identity,
            first_seq=self._own.take_seqs(effect.mask.bit_count()),
            now_ms=self._clock.now_ms(),
            truncate=truncate,
        )

    def quarantined(self, destination: Named, raw: bytes, mask: int, error: str, body_bytes_max: int) -> bytes:
        """The record of a damaged block, encoded: ``raw`` is what is in its place, ``mask`` its messages."""
        return self._codec.quarantined(
            raw,
            mask,
            (destination.kind, destination.name),
            error,
            broker=self._broker,
            producer=self._own.identity,
            seq=self._own.take_seqs(1),
            now_ms=self._clock.now_ms(),
            body_bytes_max=body_bytes_max,
        )
