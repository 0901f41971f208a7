"""What becomes of dead messages: they go to the error destination or the dead message queue, or nowhere.

A dead message stays held where it died until it is stored where it goes.  On the same host both become durable
together; to another host it is sent first and settled after, so that a crash in between can double it and cannot lose
it.  What the target does not take is tried again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from raybroker.core import command as cmd
from raybroker.core.blocks import message_mask as pk
from raybroker.core.destination import Destination
from raybroker.core.outcome import DeadLetter
from raybroker.engine.block_reader import BlockReader
from raybroker.engine.destination_registry import DMQ, DestinationRegistry
from raybroker.engine.executor import Executor, Step, unawaited
from raybroker.engine.life_cycle import LifeCycle
from raybroker.engine.own_sends import OwnSends
from raybroker.engine.ports import Clock, Codec, Death, Forward
from raybroker.engine.subscription_keys import subscription_key
from raybroker.engine.wakeups import Retries
from raybroker.model.block import Block
from raybroker.model.failure import parted
from raybroker.model.settings import ConfigView


class DeadLetters:
    """Takes dead messages out of their destinations.

    broker   its name, for what is written on dead messages
    forward  the way to destinations of other hosts
    life     the log of messages' lives
    refused  what no target has taken yet
    """

    def __init__(
        self,
        executor: Executor,
        registry: DestinationRegistry,
        blocks: BlockReader,
        own: OwnSends,
        codec: Codec,
        clock: Clock,
        config: ConfigView,
        *,
        broker: str,
        forward: Forward | None,
        life: LifeCycle,
        refused: Retries[tuple[Destination, DeadLetter]],
        report: Callable[[str], None],
    ) -> None:
        self._executor = executor
        self._registry = registry
        self._blocks = blocks
        self._own = own
        self._codec = codec
        self._clock = clock
        self._config = config
        self._broker = broker
        self._forward = forward
        self._life = life
        self._not_taken = refused
        self._report = report

    def died(self, home: Destination, effect: DeadLetter) -> None:
        """The effect: messages of ``home`` have died."""
        self._executor.later(partial(self.bury, home, effect))

    def bury(self, home: Destination, effect: DeadLetter, *, again: bool = False) -> None:
        """Move dead messages; ``again``: they were told before, and no target took them yet."""
        queue = home.queues.get(effect.queue)
        if queue is None or not self._registry.has(home):
            return
        if not queue.dead_letters.masks.get(effect.ordinal, 0) & effect.mask:
            return
        block = self._blocks.read(home, effect.ordinal)
        if block is None:
            return
        if not again:
            home.counters.expired += effect.mask.bit_count() if effect.reason == "EXPIRED" else 0
            self._log(home, effect, block)
            if self._life.wanted(home):
                self._life.died(home, effect, block)
        for target, mask, truncate in self._sorted(home, effect, block):
            part = effect._replace(mask=mask)
            if target is None:
                self._done(home, part)
            else:
                self._send(home, part, block, target, truncate)

    def _done(self, home: Destination, effect: DeadLetter) -> None:
        if self._registry.has(home):
            self._executor.perform(home, cmd.SettleDeadLetters(effect.queue, effect.ordinal, effect.mask))

    # ---- where to --------------------------------------------------------------------------------------------------

    def _sorted(self, home: Destination, effect: DeadLetter, block: Block) -> list[tuple[str | None, int, bool]]:
        """The messages by where they go and whether their bodies are cut."""
        usual = self._target(home, effect.reason)
        cut = bool(self._config["imq.destination.DMQ.truncateBody"])
        groups: dict[tuple[str | None, bool], int] = {}
        for index in pk.indexes(effect.mask):
            keep, _, truncate = self._codec.wish(block, index)
            target = usual
            if home.name == DMQ:
                target = None
            elif keep is not None and (target is None) == keep:
                target = DMQ if keep else None
            key = target, cut if truncate is None else truncate
            groups[key] = groups.get(key, 0) | 1 << index
        return [(target, mask, truncate) for (target, truncate), mask in groups.items()]

    def _target(self, home: Destination, reason: str) -> str | None:
        attributes = home.attributes
        dmq = DMQ if attributes.useDMQ else None
        error = attributes.errorDestination
        if error and (home.kind, home.name) == ("queue", error):  # A default for all queues may be one of them.
            error, own = "", dmq
        else:
            own = None
        if reason == "EXPIRED":
            policy = attributes.expirationPolicy
            if policy == "Redirect":
                return error or own
            return dmq if policy == "Default" else None
        if reason in ("UNDELIVERABLE", "ERROR"):
            return error or dmq
        return dmq

    def _log(self, home: Destination, effect: DeadLetter, block: Block) -> None:
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

    # ---- the way there ---------------------------------------------------------------------------------------------

    def _send(self, home: Destination, effect: DeadLetter, block: Block, name: str, truncate: bool) -> None:
        target = self._registry.destinations.get(("queue", name))
        sizes = [block.lengths[index] for index in pk.indexes(effect.mask)]
        if target is not None and len(sizes) > 1 and not target.admission.would_take(sizes):
            for index in pk.indexes(effect.mask):
                self._send(home, effect._replace(mask=1 << index), block, name, truncate)
            return
        identity = self._own.identity
        own = effect.reason in ("UNDELIVERABLE", "ERROR")  # Of other reasons a message dies for all subscriptions.
        death = Death(
            effect.reason, effect.comment, effect.attempts, (home.kind, home.name), self._broker, effect.failure,
            subscription_key(home, home.queues[effect.queue], identity) if own else "",
        )  # fmt: skip
        data = self._codec.dead_block(
            block, effect.mask, death, producer=identity, first_seq=self._own.take_seqs(effect.mask.bit_count()),
            now_ms=self._clock.now_ms(), truncate=truncate,
        )  # fmt: skip
        if target is not None:
            if not self._here(home, effect, target, Block(data)):
                self._refused(home, effect, f"queue {name} does not take it now")
        elif self._forward is not None:
            self._forward("queue", name, data, partial(self._forwarded, home, effect, name))
        elif name == DMQ:
            self._done(home, effect)
        else:
            self._refused(home, effect, f"queue {name} does not exist")

    def _here(self, home: Destination, effect: DeadLetter, target: Destination, block: Block) -> bool:
        if not self._executor.has_room(block.view.nbytes) or not target.admission.would_take(block.lengths):
            return False
        settled = cmd.SettleDeadLetters(effect.queue, effect.ordinal, effect.mask)
        self._executor.perform_all([self._own.step(target, block), Step(home, settled)], (), unawaited)
        return True

    def _forwarded(self, home: Destination, effect: DeadLetter, name: str, ok: bool) -> None:
        if ok:
            self._done(home, effect)
        else:
            self._refused(home, effect, f"{name} was not reached")

    def _refused(self, home: Destination, effect: DeadLetter, why: str) -> None:
        """The error destination is full or missing: what is persistent stays, and is offered again."""
        block = home.block_index.held.get(effect.ordinal)
        if block is None:
            return
        self._report(f"dead messages of {home.kind} {home.name} cannot be moved: {why}")
        if block.persistent:
            self._not_taken.add((home, effect))
        else:
            self._done(home, effect)

    def tick(self, now_ms: int) -> None:
        """Offer again what was not taken."""
        for home, effect in self._not_taken.due(now_ms):
            self.bury(home, effect, again=True)


def _why(effect: DeadLetter) -> str:
    """In one line: what the destination says, and what the consumer said of the last attempt."""
    summary = parted(effect.failure)[0]
    return effect.comment if summary in ("", effect.comment) else f"{effect.comment}: {summary}"
