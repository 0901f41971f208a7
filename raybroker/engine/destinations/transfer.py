"""Messages that are handed over to a destination of another host: there once and here no more, whatever fails.

    here                                        there
    set aside: nobody gets them any more
                                                taken: held for the transaction of that key, which is prepared
    given: gone, in one batch with the note
    that the transaction is committed
                                                committed

Messages keep their ids, headers and times; how often they were delivered is counted anew, unless the destination has
resetDeliveryCountOnForward=false: then their headers carry the count so far.  The host that gives is the
transaction's coordinator.  When it stops before it has given them they are here again, and the other host, which asks
what became of the transaction, rolls back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from raybroker.core import command as cmd
from raybroker.core.blocks import message_mask as pk
from raybroker.core.destination import Destination
from raybroker.engine.destinations.destination_registry import DestinationRegistry
from raybroker.engine.memory.block_cache import BlockCache
from raybroker.engine.path.executor import DISK_FULL, DestinationStep, Done, Executor, unawaited
from raybroker.engine.path.own_sends import OwnSends
from raybroker.engine.path.wakeups import Durations
from raybroker.engine.ports import Codec
from raybroker.engine.transactions import transaction_log
from raybroker.engine.transactions.transactions import Transactions
from raybroker.model.blocks.block import Block
from raybroker.model.errors import IllegalStateError, ResourceAllocationError

WAITING: Final = ("waiting",)
MOVABLE: Final = ("waiting", "delayed", "hidden")
"""States of messages that no consumer and no transaction has."""
PATIENCE_MS: Final = 60_000
"""What was set aside and nobody asks for any more is here again after so long."""


class _Aside(NamedTuple):
    """Messages of one destination, as (delivery queue, block, message mask)."""

    destination: Destination
    rows: list[tuple[int, int, int]]
    until_ms: int


class MessageTransfer:
    """What this host gives and takes. Transactions are known by keys that nobody else has."""

    def __init__(
        self,
        executor: Executor,
        registry: DestinationRegistry,
        transactions: Transactions,
        cache: BlockCache,
        own: OwnSends,
        durations: Durations,
        codec: Codec,
    ) -> None:
        self._executor = executor
        self._registry = registry
        self._transactions = transactions
        self._cache = cache
        self._own = own
        self._durations = durations
        self._codec = codec
        self._aside: dict[bytes, _Aside] = {}

    # ---- here ------------------------------------------------------------------------------------------------------

    def set_aside(
        self, destination: Destination, key: bytes, messages_max: int, bytes_max: int, *, whole: bool = False
    ) -> list[bytes]:
        """The first messages that wait and have no unit of order, up to both limits but at least one; as blocks.

        whole  the destination is to be elsewhere: those of units of order as well, and behind what waits what is
               delayed or hidden; each with how often it was delivered
        """
        if key in self._aside:
            raise IllegalStateError("messages were set aside under that key already")
        held = destination.block_index.held
        chosen: dict[int, int] = {}
        size, found = 0, []
        for state, run in destination.queues[0].contents():
            if state not in (MOVABLE if whole else WAITING) or messages_max <= 0 or size >= bytes_max:
                break
            block = held[run.ordinal]
            mask = run.mask if whole else run.mask & ~block.ordered
            mask = pk.lowest(mask, messages_max) if mask else 0
            if mask:
                messages_max -= mask.bit_count()
                size += block.bytes_of(mask)
                chosen[run.ordinal] = chosen.get(run.ordinal, 0) | mask
                data = b"".join(self._cache.get(destination.number, run.ordinal).pick(mask))
                anew = destination.attributes.resetDeliveryCountOnForward and not whole
                carried = 0 if anew else run.attempts
                found.append(self._codec.delivered(data, carried) if carried else data)
        if chosen:
            self._executor.perform(destination, cmd.Remove(chosen, aside=True))
            until_ms = self._durations.now_ms() + PATIENCE_MS
            self._aside[key] = _Aside(destination, [(0, ordinal, mask) for ordinal, mask in chosen.items()], until_ms)
            self._durations.wake(until_ms)
        return found

    def give(self, key: bytes, done: Done) -> None:
        """The other host has taken them; ``done`` when that is durable. Raises IllegalStateError for what is not set
        aside any more."""
        aside = self._aside.pop(key, None)
        if aside is None or not self._registry.has(aside.destination):
            raise IllegalStateError("the messages are not set aside any more")
        self._transactions.log.remember(key, True, shared=True)
        steps = [DestinationStep(aside.destination, cmd.SettleDeadLetters(*row, dead=False)) for row in aside.rows]
        self._executor.perform_all(steps, (transaction_log.decided(0, key, True, True),), done)

    def keep(self, key: bytes, done: Done) -> None:
        """The other host has not taken them, as far as is known, and never will: they wait here again."""
        aside = self._aside.pop(key, None)
        if self._transactions.log.outcome(key) is not None:
            self._executor.append([], done)
            return
        if aside is not None and self._registry.has(aside.destination):
            for row in aside.rows:
                self._executor.perform(aside.destination, cmd.ReturnDeadLetters(*row))
        self._transactions.decide(key, False, done)

    def keep_overdue(self) -> None:
        now_ms = self._durations.now_ms()
        for key in [key for key, aside in self._aside.items() if aside.until_ms <= now_ms]:
            self.keep(key, unawaited)

    # ---- there -----------------------------------------------------------------------------------------------------

    def take_over(
        self, destination: Destination, key: bytes, coordinator: str, blocks: Sequence[Block], done: Done
    ) -> None:
        """Hold messages of the host ``coordinator`` for its transaction, all of them; ``done`` when that is durable.

        Raises ResourceAllocationError when they do not all fit, IllegalStateError when the transaction has ended.
        """
        if self._transactions.find(key) is not None:
            self._executor.append([], done)
            return
        if self._transactions.log.outcome(key) is not None:
            raise IllegalStateError("the transaction that hands the messages over has ended")
        sizes = [size for block in blocks for size in block.lengths]
        nbytes = sum(block.nbytes for block in blocks)
        if not destination.admission.would_take(sizes) or not self._executor.has_room(nbytes):
            why = destination.admission.fitting(sizes)[1] or DISK_FULL
            raise ResourceAllocationError(
                f"{destination.kind} {destination.name} does not take {len(sizes)} more messages now: {why}"
            )
        transaction = self._transactions.begin_transaction(None, key)
        transaction.destinations[destination] = None
        for block in blocks:
            command, own = self._own.send(destination, block)
            self._executor.perform(destination, command._replace(txn=transaction.number), own)
        self._transactions.prepare(transaction, key, coordinator, lambda vote: done())

    def take_ids(self, destination: Destination, ids: Sequence[tuple[str, int, bool]], done: Done) -> None:
        """Know deduplication ids that the other host knew: each with when it was taken by the wall clock, and whether
        that outlives a restart; ``done`` when that is durable."""
        self._executor.perform(destination, cmd.TakeKnownIds(ids))
        self._executor.append([], done)
