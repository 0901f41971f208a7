"""Part of a transaction that waits at one destination until the transaction ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from raybroker.core.delivery.consumers import Delivery
from raybroker.core.selector.content import Content


class StagedBlock(NamedTuple):
    """Messages ``mask`` of a held block wait for their transaction. ``first_seq``, ``producer``: as they were sent.

    ``attachment``: their producer's, 0 after a restart. ``ids``: the deduplication id of each message of the block, if
    any has one; None after a restart too, when ``content`` is None and the headers have to be read again.
    ``moved``: as in command.Send.
    """

    ordinal: int
    mask: int
    producer: int
    first_seq: int
    content: Content | None
    origin: tuple[str, str]
    persistent: bool
    attachment: int = 0
    ids: Sequence[str | None] | None = None
    moved: bool = False


class StagedState(NamedTuple):
    """A checkpoint of one message of a delivery queue."""

    queue: int
    ordinal: int
    mask: int
    state: bytes


@dataclass(slots=True)
class StagedTransaction:
    """``acks``: (delivery queue, delivery) in the order of staging. ``prepared``: all of it is written down.
    ``states``: the checkpoints that it leaves.

    ``claims``: block → which delivery queues are owed what of it, as it was when that was written down.
    """

    blocks: list[StagedBlock] = field(default_factory=list)
    acks: list[tuple[int, Delivery]] = field(default_factory=list)
    states: list[StagedState] = field(default_factory=list)
    prepared: bool = False
    claims: dict[int, dict[int, int]] = field(default_factory=dict)

    @property
    def messages(self) -> int:
        return sum(block.mask.bit_count() for block in self.blocks)

    @property
    def acknowledged(self) -> int:
        return sum(delivery.count for _, delivery in self.acks)


def stage(staged: dict[int, StagedTransaction], txn: int) -> StagedTransaction:
    """What that transaction does at a destination, of which these are the open ones."""
    return staged.setdefault(txn, StagedTransaction())
