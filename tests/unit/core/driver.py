"""Drives one queue or topic with random commands that make sense; every invariant is checked after each."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import strategies as st

from raybroker.core import command as cmd
from raybroker.core.blocks import message_mask as pk
from raybroker.core.delivery.consumers import Consumer
from raybroker.core.delivery.run import Run
from raybroker.core.destination import Destination
from raybroker.core.outcome import DeadLetter, Outcome
from raybroker.core.subscription import Subscription
from raybroker.core.transaction import StagedTransaction
from raybroker.model.errors import BrokerError
from tests.unit.core.driven_destination import DrivenDestination, columns

SELECTORS = (None, "n > 1", "n = 0 OR n = 3", "s = 'x'", "JMSXDeliveryCount > 1")
SUBSCRIPTIONS = (
    Subscription(),
    Subscription(selector="n > 1"),
    Subscription("c", "d1", True),
    Subscription("c", "d2", True, True),
    Subscription("c", "d3", True, False, "n > 1"),
    Subscription("c", "s1", False, True),
    Subscription("", "", False, False, None, True, "me"),
    Subscription("c", "d1", True, False, "n = 0"),
)


def seeds() -> st.SearchStrategy[int]:
    return st.integers(0, 2**32 - 1)


def limits(rng: Random) -> dict[str, Any]:
    return {
        "maxNumMsgs": rng.choice((-1, -1, 5, 20)),
        "maxTotalMsgBytes": rng.choice((-1, -1, 40)),
        "limitBehavior": rng.choice(("REJECT_NEWEST", "REMOVE_OLDEST", "REMOVE_LOW_PRIORITY", "FLOW_CONTROL")),
        "redeliveryLimit": rng.choice((-1, 0, 2)),
        "redeliveryBackoffPercent": rng.choice((100, 200)),
        "duplicateWindowMs": rng.choice((0, 500)),
    }


class Driver(DrivenDestination):
    """``consumers``: attachments. ``open_txns``: numbers of transactions, and whether they are prepared."""

    def __init__(self, seed: int, kind: str = "queue", **attributes: Any) -> None:
        self.rng = rng = Random(seed)
        if not attributes:
            attributes = limits(rng)
            if kind == "queue":
                attributes |= {
                    "maxNumActiveConsumers": rng.choice((-1, 1, 2)),
                    "maxNumBackupConsumers": rng.choice((0, -1)),
                    "localDeliveryPreferred": rng.random() < 0.3,
                }
        super().__init__(kind, **attributes)
        self.core.expiry.scan_ms = rng.choice((0, 300))
        self.units: tuple[str | None, ...] = rng.choice(((None,), (None,), (None, "a", "b"), ("a",), tuple("abcdefgh")))
        self.consumers: list[int] = []
        self.open_txns: dict[int, bool] = {}
        self.graves: list[DeadLetter] = []
        self._sent: list[cmd.Send] = []
        self._txn = 0
        self.me = self.producer()

    def do(self, command: cmd.Command) -> Outcome:
        out = super().do(command)
        self.graves += [effect for effect in out.immediate if isinstance(effect, DeadLetter)]
        return out

    def act(self) -> None:
        """One random command; what is not allowed is refused and changes nothing."""
        rng = self.rng
        while self.graves and rng.random() < 0.8:
            dead = self.graves.pop()
            self.do(cmd.SettleDeadLetters(dead.queue, dead.ordinal, dead.mask))
        try:
            rng.choice(_ACTS)(self)
        except BrokerError:
            pass

    # ---- producers -------------------------------------------------------------------------------------------------

    def act_send(self) -> None:
        rng, count = self.rng, self.rng.randrange(1, self.rng.choice((6, 6, 6, 30)))
        some = rng.random() < 0.4
        now = self.now_ms
        layout = columns(
            count,
            priority=rng.choice((4, 4, 9)),
            priorities=[rng.randrange(3, 6) for _ in range(count)] if rng.random() < 0.3 else None,
            ttl=[rng.choice((0, 100, 400)) for _ in range(count)] if some else 0,
            delay=[rng.choice((0, 0, 200)) for _ in range(count)] if rng.random() < 0.2 else 0,
            now_ms=now,
            units=[rng.choice(self.units) for _ in range(count)],
        )
        txn = rng.choice([*(n for n, prepared in self.open_txns.items() if not prepared), 0, 0, 0])
        ids = [rng.choice((None, *"abcdefgh")) for _ in range(count)] if rng.random() < 0.3 else None
        self.send(
            self.me,
            [rng.randrange(6) for _ in range(count)],
            persistent=rng.random() < 0.8,
            properties=[{"n": rng.randrange(4), "s": rng.choice("xy")} for _ in range(count)],
            columns=layout,
            txn=txn,
            dedup_ids=ids,
            origin=(rng.choice(("me", "you")), ""),
        )

    def act_send_again(self) -> None:
        rows = [(a, p) for a, p in self.core.producers.attached.items() if p == 7]
        first = max(self.seqs.get(7, 1) - self.rng.randrange(1, 4), 1)
        if rows and first < self.seqs.get(7, 1):
            size = self.seqs[7] - first
            self.send(rows[0][0], [1] * size, first=first, properties=[{"n": 0}] * size)

    def act_reconnect(self) -> None:
        if self.rng.random() < 0.3:
            self.do(cmd.DetachProducer(self.me, forget=False))
        self.me = self.producer()

    # ---- consumers -------------------------------------------------------------------------------------------------

    def act_consume(self) -> None:
        rng = self.rng
        flow = rng.choice(("credit", "prefetch"))
        more: dict[str, Any] = {"no_ack": rng.random() < 0.1, "lease_ms": rng.choice((0, 0, 250))}
        more |= {"drain": rng.random() < 0.3, "remote": rng.random() < 0.5, "owner": rng.choice(("", "s1", "s2"))}
        more["buffer_bytes"] = rng.choice((0, 0, 3, 8))
        if self.core.kind == "queue":
            more["selector"] = rng.choice(SELECTORS) if rng.random() < 0.5 else None
        else:
            more["subscription"] = rng.choice(SUBSCRIPTIONS)
        self.consumers.append(self.consumer(rng.choice((-1, 1, 2, 5, 12)), flow, **more))

    def some_consumer(self) -> Consumer | None:
        """One of the consumers that are attached."""
        if not self.consumers:
            return None
        number = self.rng.choice(self.consumers)
        return self.core.queue_of[number].consumers.by_attachment[number]

    def tags(self, consumer: Consumer) -> list[tuple[int, int]]:
        tags = [tag for item in consumer.unsettled for tag in range(item.tag, item.tag + item.count)]
        return [(tag, tag) for tag in tags if self.rng.random() < 0.6]

    def act_on_consumer(self) -> None:
        consumer, rng = self.some_consumer(), self.rng
        if consumer is None:
            return
        number = consumer.attachment
        roll = rng.randrange(15)
        if roll == 0:
            self.consumers.remove(number)
            self.do(cmd.DetachConsumer(number, lost=rng.random() < 0.5))
        elif roll == 1:
            if rng.random() < 0.5:
                self.do(cmd.TakeBack(number, rng.randrange(4), rng.choice((0, 150))))
            else:
                self.do(cmd.Release(number, rng.randrange(5), 1, rng.randrange(3), rng.choice((0, 150))))
        elif roll == 2:
            self.do(cmd.Grant(number, rng.randrange(1, 5)))
        elif roll == 3:
            self.do(rng.choice((cmd.Hold, cmd.Proceed))(number))
        elif roll == 4:
            outcome = rng.choice(("reject", "release", "fail", "expired"))
            self.do(cmd.Settle(number, self.tags(consumer), 1, outcome, rng.choice((-1, 0, 150))))
        elif roll == 5:
            self.do(cmd.Begun(number, max(consumer.next_tag - rng.randrange(1, 4), 0)))
        elif roll == 6:
            self.do(cmd.Extend(number, self.tags(consumer)))
        elif roll == 12:
            self.do(cmd.Drain(number, rng.choice((0, 1, 2, 5))))
        elif roll == 13:
            self.do(cmd.Missed(number, 1))
        elif roll == 14:
            self.do(cmd.Taken(number, max(consumer.next_tag - rng.randrange(1, 4), 0)))
        elif roll == 7 and not consumer.no_ack:
            txn = rng.choice([n for n, prepared in self.open_txns.items() if not prepared] or [0])
            if txn:
                self.do(cmd.StageAcks(txn, number, self.tags(consumer)))
        else:
            self.do(cmd.Acknowledge(number, self.tags(consumer), rng.randrange(2)))

    # ---- everything else -------------------------------------------------------------------------------------------

    def act_transaction(self) -> None:
        rng = self.rng
        if len(self.open_txns) < 2:
            self._txn += 1
            self.open_txns[self._txn] = False
            return
        txn = rng.choice(list(self.open_txns))
        if rng.random() < 0.4 and not self.open_txns[txn]:
            self.do(cmd.Prepare(txn))
            self.open_txns[txn] = True
        else:
            self.do(cmd.Decide(txn, rng.random() < 0.6, rng.choice((0, 120))))
            del self.open_txns[txn]

    def act_time(self) -> None:
        self.tick(self.rng.choice((0, 50, 150, 400)))

    def act_administer(self) -> None:
        rng, roll = self.rng, self.rng.randrange(5)
        which = rng.choice(("production", "consumption", "insertion"))
        if roll == 0 and rng.random() < 0.3:
            self.do(cmd.Purge())
        elif roll == 1:
            until_ms = rng.choice((0, self.now_ms + 200))
            self.do(cmd.Pause(which, until_ms))
        elif roll == 2 and self.core.block_index.held:
            self._remove(rng.choice(list(self.core.block_index.held)), rng.randrange(1, 32))
        elif roll == 3 and self.core.kind == "topic":
            own = rng.choice(SUBSCRIPTIONS)
            self.do(cmd.Unsubscribe(own.client_id, own.name))
        else:
            self.do(cmd.Resume(which))

    def _remove(self, ordinal: int, mask: int) -> None:
        """Discard messages, or put them aside: then some go elsewhere and the others wait again."""
        before = _taken_aside(self.core, ordinal)
        delayed = [run for queue in self.core.queues.values() for _, run in queue.delayed.runs()]
        resting = any(run.ordinal == ordinal and run.attempts for run in delayed)
        if resting or self.rng.random() < 0.5:  # What rests comes back at once when it was put aside meanwhile.
            self.do(cmd.Remove({ordinal: mask}))
            return
        self.do(cmd.Remove({ordinal: mask}, aside=True))
        for number, now in _taken_aside(self.core, ordinal).items():
            aside, gone = now & ~before[number], self.rng.randrange(32)
            if aside & ~gone:
                self.do(cmd.ReturnDeadLetters(number, ordinal, aside & ~gone))
            if aside & gone:
                self.do(cmd.SettleDeadLetters(number, ordinal, aside & gone))


_ACTS = [
    *[Driver.act_send] * 5,
    Driver.act_send_again,
    Driver.act_reconnect,
    Driver.act_consume,
    Driver.act_consume,
    *[Driver.act_on_consumer] * 6,
    Driver.act_transaction,
    Driver.act_transaction,
    Driver.act_time,
    Driver.act_administer,
]


def _taken_aside(destination: Destination, ordinal: int) -> dict[int, int]:
    """DeliveryQueue → what of a block is dying there."""
    return {number: queue.dead_letters.masks.get(ordinal, 0) for number, queue in destination.queues.items()}


def durable(destination: Destination) -> dict[str, Any]:
    """What of a destination survives a restart, message by message."""
    held = destination.block_index.held
    queues: dict[Any, dict[tuple[int, int], Any]] = {}
    for queue in destination.queues.values():
        if not queue.durable:
            continue
        own = queue.subscription
        rows = queues[None if own is None else own] = {}
        resting = {(run.ordinal, i): due for due, run in queue.delayed.runs() for i in pk.indexes(run.mask)}
        for _, run in queue.contents():
            rows |= _rows(run, held, resting)
        for staged in destination.staged.values():
            if not staged.prepared:
                for _, delivery in (row for row in staged.acks if row[0] == queue.number):
                    rows |= _rows(delivery.run, held, resting)
        for ordinal, mask in queue.dead_letters.masks.items():
            if held[ordinal].stored:
                rows |= {(ordinal, i): "dying" for i in pk.indexes(mask)}
    return {
        "lanes": queues,
        "prepared": {
            n: found for n, s in destination.staged.items() if s.prepared and any(found := _staged(destination, s))
        },
    }


def _rows(run: Run, held: Any, resting: dict[tuple[int, int], int]) -> dict[tuple[int, int], Any]:
    if not held[run.ordinal].stored:
        return {}
    return {
        (run.ordinal, i): (run.priority, run.attempts, run.failures, resting.get((run.ordinal, i), 0))
        for i in pk.indexes(run.mask)
    }


def _staged(destination: Destination, staged: StagedTransaction) -> tuple[Any, ...]:
    """Blocks and acknowledgements of a prepared transaction that are written down."""
    held = destination.block_index.held
    blocks = {}
    for block in staged.blocks:
        if held[block.ordinal].stored:
            claims = staged.claims[block.ordinal]
            queues = {n: destination.queues[n] for n in claims if n in destination.queues}
            owed = {queue.subscription: claims[n] for n, queue in queues.items() if queue.durable}
            if owed:
                blocks[block.ordinal] = owed
    acks: dict[tuple[Any, int, int], tuple[int, int, int]] = {}
    for number, delivery in staged.acks:
        run, queue = delivery.run, destination.queues[number]
        if held[run.ordinal].stored and queue.durable:
            for i in pk.indexes(run.mask):
                acks[queue.subscription, run.ordinal, i] = (run.priority, run.attempts, run.failures)
    return blocks, acks
