"""Transactions over two queues of a host."""

from __future__ import annotations

from typing import Any

from tests.unit.engine.rig import Client, Rig

KEY = b"k" * 16
OTHER = b"o" * 16


class Pair:
    """A client that sends to ``out`` and consumes from ``in``; one message waits there for it."""

    def __init__(self, rig: Rig, **more: Any) -> None:
        self.rig = rig
        self.client = Client(rig, "c", "conn", **more)
        self.producer = self.client.producer("out")
        self.consumer = self.client.consumer("in")

    def work(self, txn: int = 1) -> dict[str, Any]:
        """Send x and y and consume a in the transaction; returns what a commit says about it."""
        feed(self.rig, "a")
        assert "a" in self.client.got()
        self.client.send(self.producer, "x", txn=txn)
        self.client.send(self.producer, "y", txn=txn)
        return {"txn": txn, "acks": self.client.acks(self.consumer, "a")}


def feed(rig: Rig, *bodies: str) -> None:
    sender = Client(rig)
    sender.send(sender.producer("in", number=50), *bodies, first=rig.destination("in").block_index.next_ordinal * 10)
    rig.sync()
    sender.session.close()


def rig_of(**config: Any) -> Rig:
    rig = Rig(**config)
    rig.create("in")
    rig.create("out")
    return rig


def counts(rig: Rig) -> tuple[int, int]:
    return rig.held("in"), rig.held("out")
