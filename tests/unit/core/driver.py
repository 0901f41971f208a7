"""Drives one queue with random commands that make sense, and keeps what it recorded; the simulation's twin looks on."""

from __future__ import annotations

from random import Random

from hypothesis import strategies as st

from raybroker.core import command as cmd
from raybroker.core.invariants import check
from raybroker.core.outcome import Outcome
from raybroker.core.queue import Queue
from raybroker.model.errors import ResourceAllocationError
from raybroker.model.record import Entry
from raybroker.model.settings import DestinationAttributes
from tests.simulation.twin import Twin


def seeds() -> st.SearchStrategy[int]:
    return st.integers(0, 2**32 - 1)


class Driver:
    """``log``: every record, in order; ``outcomes``: every outcome."""

    def __init__(self, seed: int, attributes: DestinationAttributes | None = None) -> None:
        self.rng = rng = Random(seed)
        self.queue = Queue(
            1, "q",
            attributes or DestinationAttributes(
                maxNumMsgs=rng.choice((-1, 5, 20)),
                maxTotalMsgBytes=rng.choice((-1, 40)),
                maxNumActiveConsumers=rng.choice((-1, 1, 2)),
                maxNumBackupConsumers=rng.choice((0, -1)),
            ),
        )  # fmt: skip
        self.twin = Twin(self.queue)
        self.log: list[Entry] = []
        self.outcomes: list[Outcome] = []
        self.consumers: list[int] = []
        self.next_seq = 1
        self._next_attachment = 100
        self._sent: list[cmd.Send] = []
        self.do(cmd.AttachProducer(1, 7))

    def do(self, command: cmd.Command) -> Outcome:
        out = self.queue.step(command, now_ms=0)
        self.twin.step(command, out)
        check(self.queue) if len(self.log) < 1000 else None
        self.log += out.records
        self.outcomes.append(out)
        return out

    def send(self, count: int, *, persistent: bool, size: int = 4) -> Outcome:
        command = cmd.Send(1, 7, self.next_seq, [size] * count, persistent, max(self.next_seq - 30, 1))
        self.next_seq += count
        self._sent.append(command)
        return self.do(command)

    def attach_consumer(self, *, limit: int, flow: str = "credit", no_ack: bool = False) -> int:
        self._next_attachment += 1
        self.do(cmd.AttachConsumer(self._next_attachment, flow, limit, no_ack, held=False))
        self.consumers.append(self._next_attachment)
        return self._next_attachment

    def detach_consumer(self, number: int) -> None:
        self.consumers.remove(number)
        self.do(cmd.DetachConsumer(number))

    def acknowledge(self, ranges: list[tuple[int, int]]) -> Outcome:
        return self.do(cmd.Acknowledge(self.consumers[-1], ranges, 1))

    def act(self) -> None:
        """One random command."""
        rng, consumers = self.rng, self.consumers
        roll = rng.randrange(14)
        if roll < 4:
            self.send(rng.randrange(1, 6), persistent=rng.random() < 0.8, size=rng.randrange(6))
        elif roll == 4 and self._sent:
            last = self._sent[-1]
            if last.persistent:
                self.do(last)
        elif roll == 5:
            try:
                flow = rng.choice(("credit", "prefetch"))
                self.attach_consumer(limit=rng.choice((-1, 1, 2, 5)), flow=flow, no_ack=rng.random() < 0.1)
            except ResourceAllocationError:
                pass
        elif roll == 13:
            self.do(cmd.Purge() if rng.random() < 0.3 else cmd.Tick())
        elif consumers:
            self._consume(rng.choice(consumers), roll)

    def _consume(self, number: int, roll: int) -> None:
        rng = self.rng
        if roll == 6 and rng.random() < 0.5:
            self.detach_consumer(number)
        elif roll == 7:
            self.do(cmd.Release(number, rng.randrange(1, 5), 1))
        elif roll == 8:
            self.do(cmd.Grant(number, rng.randrange(1, 5)))
        elif roll == 9:
            self.do(rng.choice((cmd.Hold, cmd.Proceed))(number))
        else:
            tags = sorted(self.twin.holders[number].unsettled)
            chosen = [tag for tag in tags if rng.random() < 0.6]
            self.do(cmd.Acknowledge(number, [(tag, tag) for tag in chosen], rng.randrange(2)))
