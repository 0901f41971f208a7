"""The lines and events that the logs get of dead messages."""

from __future__ import annotations

from collections.abc import Callable

from raybroker.core.blocks import message_mask as pk
from raybroker.core.destination import Destination
from raybroker.core.outcome import DeadLetter
from raybroker.engine.life_cycle import LifeCycle
from raybroker.engine.ports import Codec, Governed, Named
from raybroker.model.block import Block
from raybroker.model.failure import parted
from raybroker.model.settings import ConfigView


class DeadLetterLog:
    """``life``: the log of messages' lives; ``report``: takes a line for the log of the host."""

    def __init__(self, codec: Codec, config: ConfigView, life: LifeCycle, report: Callable[[str], None]) -> None:
        self._codec = codec
        self._config = config
        self._life = life
        self._report = report

    def died(self, home: Destination, effect: DeadLetter, block: Block) -> None:
        """Messages of a block have died: told once, also when no target takes them yet."""
        self._tell(home, effect, block)
        if self._life.wanted(home):
            self._life.died(home, effect, block)

    def refused(self, home: Named, why: str) -> None:
        """Dead messages of a destination stay there for now."""
        self._report(f"dead messages of {home.kind} {home.name} cannot be moved: {why}")

    def _tell(self, home: Governed, effect: DeadLetter, block: Block) -> None:
        logging = effect.reason == "EXPIRED" and home.attributes.expirationPolicy == "Log"
        always = bool(self._config["imq.destination.logDeadMsgs"])
        for index in pk.indexes(effect.mask):
            if logging:
                policy = home.attributes.expirationLoggingPolicy
                self._report(self._codec.expiry_record(block, index, policy, home.name))
            wish = self._codec.wish(block, index)[1]
            if always if wish is None else wish:
                id_ = self._codec.content(block).header(index, "JMSMessageID")
                named = id_ or f"without an id, {index} of block {effect.ordinal},"
                text = f"[B2148] message {named} of {home.kind} {home.name} is dead: {effect.reason} {_why(effect)}"
                self._report(text.rstrip())


def _why(effect: DeadLetter) -> str:
    """In one line: what the destination says, and what the consumer said of the last attempt."""
    summary = parted(effect.failure)[0]
    return effect.comment if summary in ("", effect.comment) else f"{effect.comment}: {summary}"
