"""Whatever happens, what is handed out comes before everything that still waits (B-21)."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import given, settings

from raybroker.core import command as cmd
from raybroker.core.blocks import message_mask as pk
from raybroker.core.outcome import DeadLetter, Deliver, Outcome
from tests.unit.core.driven_destination import DrivenDestination, columns, of
from tests.unit.core.driver import seeds

Key = tuple[int, int, int]
"""Minus the priority, block, index: the order of delivery without selectors, delays and transactions."""


class Ordered(DrivenDestination):
    """A queue with random producers and consumers; looks at every delivery."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.level: dict[tuple[int, int], int] = {}
        self.consumers: list[int] = []
        super().__init__(redeliveryLimit=self.rng.choice((-1, 1)))
        self.me = self.producer()

    def do(self, command: cmd.Command) -> Outcome:
        out = super().do(command)
        for effect in out.immediate:
            if isinstance(effect, DeadLetter):
                super().do(cmd.SettleDeadLetters(effect.queue, effect.ordinal, effect.mask))
        return out

    def keys(self, ordinal: int, mask: int) -> list[Key]:
        return [(-self.level[ordinal, index], ordinal, index) for index in pk.indexes(mask)]

    def look(self, out: Outcome) -> None:
        given: dict[int, list[Key]] = {}
        for item in sorted(of(out, Deliver), key=lambda item: item.tag):
            given.setdefault(item.attachment, []).extend(self.keys(item.ordinal, item.mask))
        for keys in given.values():
            assert keys == sorted(keys), "one consumer gets them in order"
        waiting = [key for run in self.queue.plain.backlog.runs() for key in self.keys(run.ordinal, run.mask)]
        assert waiting == sorted(waiting)
        if given and waiting:
            assert max(max(keys) for keys in given.values()) < waiting[0], "nothing is passed over"

    def act(self) -> None:
        rng, roll = self.rng, self.rng.randrange(10)
        if roll < 3:
            self.look(self.send_some(rng.randrange(1, 6)))
        elif roll == 3 or not self.consumers:
            number, out = self.open(rng.choice((1, 2, 3, -1)), rng.choice(("credit", "prefetch")))
            self.consumers.append(number)
            self.look(out)
        else:
            self.look(self.do(self.word(rng.choice(self.consumers), roll)))

    def send_some(self, count: int) -> Outcome:
        levels = [self.rng.choice((4, 4, 4, 9, 1)) for _ in range(count)]
        ordinal = self.core.block_index.next_ordinal
        self.level |= {(ordinal, index): level for index, level in enumerate(levels)}
        persistent = self.rng.random() < 0.7
        return self.send(self.me, [1] * count, persistent=persistent, columns=columns(count, priorities=levels))

    def word(self, number: int, roll: int) -> cmd.Command:
        rng = self.rng
        consumer: Any = self.queue.consumers.by_attachment[number]
        tags = [t for item in consumer.unsettled for t in range(item.tag, item.tag + item.count) if rng.random() < 0.4]
        ranges = [(tag, tag) for tag in tags]
        if roll == 4:
            self.consumers.remove(number)
            return cmd.DetachConsumer(number, lost=rng.random() < 0.5)
        if roll == 5:
            return cmd.Settle(number, ranges, 1, rng.choice(("release", "fail", "reject")))
        if roll == 6:
            return cmd.Release(number, rng.randrange(4), 1, rng.randrange(3))
        if roll == 7:
            return cmd.Grant(number, rng.randrange(1, 4))
        return cmd.Acknowledge(number, ranges, 0)


@settings(max_examples=40)
@given(seeds())
def test_nothing_is_passed_over(seed: int) -> None:
    queue = Ordered(seed)
    for _ in range(80):
        queue.act()
