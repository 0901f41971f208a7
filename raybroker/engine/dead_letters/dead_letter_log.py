"""The lines and events that the logs get of dead messages."""

from __future__ import annotations

from collections.abc import Callable

from raybroker.core.blocks import message_mask as pk
from raybroker.core.destination import Destination
from raybroker.core.outcome import DeadLetter
from raybroker.engine.counted_lines import CountedLines
from raybroker.engine.measuring.life_cycle import LifeCycle
from raybroker.engine.ports import Codec, Governed, Named
from raybroker.model.blocks.block import Block
from raybroker.model.failure import parted
from raybroker.model.settings.settings import ConfigView


class DeadLetterLog:
    """``life``: the log of messages' lives; ``report``: takes a line for the log of the host.

    ``lines``: takes those that many messages have in common.
    """

    def __init__(
        self, codec: Codec, config: ConfigView, life: LifeCycle, report: Callable[[str], None], lines: CountedLines
    ) -> None:
        self._codec = codec
        self._config = config
        self._life = life
        self._report = report
        self._lines = lines

    def died(self, destination: Destination, effect: DeadLetter, block: Block) -> None:
        """Messages of a block have died: told once, also when no target takes them yet."""
        self._tell(destination, effect, block)
        if self._life.wanted(destination):
            self._life.died(destination, effect, block)

    def count_refused(self, destination: Named, count: int, why: str, *, kept: bool) -> None:
        """Note that so many dead messages of a destination cannot be moved: they stay there for now, or are dropped."""
        where, end = f"{destination.kind} {destination.name}", "kept, and offered again" if kept else "dropped"

        def text(count: int) -> str:
            what = "1 dead message" if count == 1 else f"{count} dead messages"
            return f"[B2175] {what} of {where} cannot be moved: {why}; {end}"

        self._lines.note((destination.kind, destination.name, why, kept), count, text)

    def _tell(self, destination: Governed, effect: DeadLetter, block: Block) -> None:
        logging = effect.reason == "EXPIRED" and destination.attributes.expirationPolicy == "Log"
        always = bool(self._config["imq.destination.logDeadMsgs"])
        for index in pk.indexes(effect.mask):
            if logging:
                policy = destination.attributes.expirationLoggingPolicy
                self._report(self._codec.expiry_record(block, index, policy, destination.name))
            wish = self._codec.wish(block, index)[1]
            if always if wish is None else wish:
                id_ = self._codec.content(block).header(index, "JMSMessageID")
                named = id_ or f"without an id, {index} of block {effect.ordinal},"
                where = f"{destination.kind} {destination.name}"
                text = f"[B2148] message {named} of {where} is dead: {effect.reason} {_why(effect)}"
                self._report(text.rstrip())


def _why(effect: DeadLetter) -> str:
    """Say in one line why it is dead: what the destination says, and what the consumer said of the last attempt."""
    summary = parted(effect.failure)[0]
    return effect.comment if summary in ("", effect.comment) else f"{effect.comment}: {summary}"
