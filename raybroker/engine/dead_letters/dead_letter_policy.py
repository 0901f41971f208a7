"""The policy of dead letters: the error destination, the dead message queue or nowhere, with or without the body."""

from __future__ import annotations

from typing import Final

from raybroker.core.blocks import message_mask as pk
from raybroker.core.outcome import DeadLetter
from raybroker.engine.destinations.destination_registry import DMQ
from raybroker.engine.ports import Codec, Governed
from raybroker.model.blocks.block import Block
from raybroker.model.causes import parse_destinations
from raybroker.model.settings.settings import ConfigView
from raybroker.model.staleness import DISCARD
from raybroker.model.staleness import REASON as STALE

ROUNDS_MAX: Final = 10
"""Deaths of a message in an error destination after which it does not go there again, so that error destinations that
lead back turn no message for ever; creating or updating a destination refuses those that it can see."""


class DeadLetterPolicy:
    """Decides by the attributes of the destination, the configuration, and what each message asks for itself."""

    def __init__(self, codec: Codec, config: ConfigView) -> None:
        self._codec = codec
        self._config = config

    def sort(self, destination: Governed, effect: DeadLetter, block: Block) -> list[tuple[str | None, int, bool]]:
        """(name of a queue or None for nowhere, messages that go there, whether their bodies are cut)."""
        usual = self._target(destination, effect.reason)
        by_cause = parse_destinations(destination.attributes.errorDestinationByCause) if effect.cause else {}
        if effect.cause in by_cause and (destination.kind, destination.name) != ("queue", by_cause[effect.cause]):
            usual = by_cause[effect.cause]
        cut = bool(self._config["imq.destination.DMQ.truncateBody"])
        groups: dict[tuple[str | None, bool], int] = {}
        for index in pk.indexes(effect.mask):
            keep, _, truncate = self._codec.wish(block, index)
            target = usual
            if usual not in (None, DMQ) and self._codec.deaths(block, index, usual) >= ROUNDS_MAX:
                target = DMQ if destination.attributes.useDMQ else None
            if destination.name == DMQ:
                target = None
            elif keep is not None and (target is None) == keep:
                target = DMQ if keep else None
            key = target, cut if truncate is None else truncate
            groups[key] = groups.get(key, 0) | 1 << index
        return [(target, mask, truncate) for (target, truncate), mask in groups.items()]

    def _target(self, destination: Governed, reason: str) -> str | None:
        attributes = destination.attributes
        dmq = DMQ if attributes.useDMQ else None
        error = attributes.errorDestination
        if error and (destination.kind, destination.name) == (
            "queue",
            error,
        ):  # A default for all queues may be one of them.
            error, own = "", dmq
        else:
            own = None
        if reason == "EXPIRED":
            policy = attributes.expirationPolicy
            if policy == "Redirect":
                return error or own
            return dmq if policy == "Default" else None
        if reason == STALE:
            return None if attributes.stalenessPolicy == DISCARD else dmq
        if reason in ("UNDELIVERABLE", "ERROR"):
            return error or dmq
        return dmq
