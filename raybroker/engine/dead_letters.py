"""What becomes of dead messages: they go to the error destination or the dead message queue, or nowhere.

A dead message stays held where it died until it is stored where it goes.  On the same host both become durable
together; to another host it is sent first and settled after, so that a crash in between can double it and cannot lose
it.  What the target does not take is tried again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from raybroker.core import command as cmd
from raybroker.core.blocks import message_mask as pk
from raybroker.core.destination import Destination
from raybroker.core.outcome import DeadLetter
from raybroker.engine.destination_registry import DMQ
from raybroker.engine.executor import Step
from raybroker.engine.overrides import columns_of, in_default_unit
from raybroker.engine.ports import Death
from raybroker.engine.subscription_keys import subscription_key
from raybroker.model.block import Block
from raybroker.model.errors import StoreDamagedError, StoreError
from raybroker.model.failure import parted

if TYPE_CHECKING:
    from raybroker.engine.host import Host

AGAIN_MS: Final = 5_000
"""How long to wait before offering dead messages again that were not taken."""


class Burial:
    """``waiting``: what no target has taken yet."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._next_seq = 1
        self._again_at_ms = 0
        self.waiting: list[tuple[Destination, DeadLetter]] = []

    def bury(self, home: Destination, effect: DeadLetter, *, again: bool = False) -> None:
        """Messages of ``home`` have died; ``again``: that was told before, and no target took them yet."""
        host = self._host
        queue = home.queues.get(effect.queue)
        if host.destinations.get((home.kind, home.name)) is not home or queue is None:
            return
        if not queue.dead_letters.masks.get(effect.ordinal, 0) & effect.mask:
            return
        try:
            block = host.payloads.get(home.number, effect.ordinal)
        except StoreDamagedError as error:
            host.halt(home, error)
            return
        except StoreError as error:
            host.fail(error)
            return
        if not again:
            home.counters.expired += effect.mask.bit_count() if effect.reason == "EXPIRED" else 0
            self._log(home, effect, block)
            if host.meters.life.wanted(home):
                host.meters.life.died(home, effect, block)
        for target, mask, truncate in self._sorted(home, effect, block):
            part = effect._replace(mask=mask)
            if target is None:
                self._done(home, part)
            else:
                self._send(home, part, block, target, truncate)

    def _done(self, home: Destination, effect: DeadLetter) -> None:
        if self._host.destinations.get((home.kind, home.name)) is home:
            self._host.perform(home, cmd.SettleDeadLetters(effect.queue, effect.ordinal, effect.mask))

    # ---- where to --------------------------------------------------------------------------------------------------

    def _sorted(self, home: Destination, effect: DeadLetter, block: Block) -> list[tuple[str | None, int, bool]]:
        """The messages by where they go and whether their bodies are cut."""
        usual = self._target(home, effect.reason)
        cut = bool(self._host.config["imq.destination.DMQ.truncateBody"])
        groups: dict[tuple[str | None, bool], int] = {}
        for index in pk.indexes(effect.mask):
            keep, _, truncate = self._host.codec.wish(block, index)
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
        always = bool(self._host.config["imq.destination.logDeadMsgs"])
        for index in pk.indexes(effect.mask):
            if logging:
                policy = home.attributes.expirationLoggingPolicy
                self._host.report(self._host.codec.expiry_record(block, index, policy, home.name))
            wish = self._host.codec.wish(block, index)[1]
            if always if wish is None else wish:
                id_ = self._host.codec.content(block).header(index, "JMSMessageID")
                named = id_ or f"without an id, {index} of block {effect.ordinal},"
                text = f"[B2148] message {named} of {home.kind} {home.name} is dead: {effect.reason} {_why(effect)}"
                self._host.report(text.rstrip())

    # ---- the way there ---------------------------------------------------------------------------------------------

    def _send(self, home: Destination, effect: DeadLetter, block: Block, name: str, truncate: bool) -> None:
        host = self._host
        target = host.destinations.get(("queue", name))
        sizes = [block.lengths[index] for index in pk.indexes(effect.mask)]
        if target is not None and len(sizes) > 1 and not target.admission.would_take(sizes):
            for index in pk.indexes(effect.mask):
                self._send(home, effect._replace(mask=1 << index), block, name, truncate)
            return
        origin = home.kind, home.name
        own = effect.reason in ("UNDELIVERABLE", "ERROR")  # Of other reasons a message dies for all subscriptions.
        death = Death(
            effect.reason, effect.comment, effect.attempts, origin, host.broker, effect.failure,
            subscription_key(home, home.queues[effect.queue], host.identity) if own else "",
        )  # fmt: skip
        seq = self.take_seqs(effect.mask.bit_count())
        data = host.codec.dead_block(
            block, effect.mask, death, producer=host.identity, first_seq=seq, now_ms=host.clock.now_ms(),
            truncate=truncate,
        )  # fmt: skip
        self.deliver(home, effect, "queue", name, Block(data))

    def take_seqs(self, count: int) -> int:
        """Sequence numbers for ``count`` messages that the host itself sends."""
        seq = self._next_seq
        self._next_seq += count
        return seq

    def deliver(self, home: Destination, effect: DeadLetter, kind: str, name: str, block: Block) -> None:
        """Put ``block`` into a destination, in place of the messages of ``effect``."""
        host = self._host
        target = host.destinations.get((kind, name))
        if target is not None:
            if not self._here(home, effect, target, block):
                self._refused(home, effect, f"{kind} {name} does not take it now")
        elif host.forward is not None:
            host.forward(kind, name, bytes(block.view), lambda ok: self._forwarded(home, effect, name, ok))
        elif name == DMQ:
            self._done(home, effect)
        else:
            self._refused(home, effect, f"{kind} {name} does not exist")

    def _here(self, home: Destination, effect: DeadLetter, target: Destination, block: Block) -> bool:
        host = self._host
        if not host.has_room(block.view.nbytes) or not target.admission.would_take(block.lengths):
            return False
        settled = cmd.SettleDeadLetters(effect.queue, effect.ordinal, effect.mask)
        host.perform_all([own_send(host, target, block), Step(home, settled)], (), _nobody)
        return True

    def _forwarded(self, home: Destination, effect: DeadLetter, name: str, ok: bool) -> None:
        if ok:
            self._done(home, effect)
        else:
            self._refused(home, effect, f"{name} was not reached")

    def _refused(self, home: Destination, effect: DeadLetter, why: str) -> None:
        """The error destination is full or missing: what is persistent stays, and is offered again."""
        host = self._host
        block = home.block_index.held.get(effect.ordinal)
        if block is None:
            return
        host.report(f"dead messages of {home.kind} {home.name} cannot be moved: {why}")
        if not block.persistent:
            self._done(home, effect)
            return
        self.waiting.append((home, effect))
        if not self._again_at_ms:
            self._again_at_ms = host.clock.now_ms() + AGAIN_MS
            host.wake(0, self._again_at_ms)

    def again(self, now_ms: int) -> None:
        """Offer again what was not taken."""
        if not self._again_at_ms or now_ms < self._again_at_ms:
            return
        self._again_at_ms = 0
        waiting, self.waiting = self.waiting, []
        for home, effect in waiting:
            self.bury(home, effect, again=True)


def _why(effect: DeadLetter) -> str:
    """In one line: what the destination says, and what the consumer said of the last attempt."""
    summary = parted(effect.failure)[0]
    return effect.comment if summary in ("", effect.comment) else f"{effect.comment}: {summary}"


def own_send(
    host: Host, target: Destination, block: Block, *, moved: bool = True, only: int | None = None
) -> Step:
    """The host itself puts a block into one of its destinations; ``moved``, ``only``: as in command.Send."""
    codec = host.codec
    block = in_default_unit(codec, target.attributes, target.kind, target.name, block)
    persistent = block.persistent and host.definition(target).owner is None
    send = cmd.Send(
        0, 0, 1, block.lengths, persistent, 0, True, columns_of(codec, block), codec.content(block), confirm=False,
        moved=moved, only=only,
    )
    return Step(target, send, block)


def _nobody() -> None:
    """Nobody waits for it."""
