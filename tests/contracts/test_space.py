"""Space of a store: it is given back although one old message lives, and although nothing more is sent."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import raybroker as rb
from tests.contracts.handles import until

MESSAGES, BODY, BLOCK = 2_000, b"x" * 100_000, 5
SEGMENT = {"raybroker.store.segment_bytes": 1 << 20, "raybroker.metrics.enabled": False}


def test_one_old_message_keeps_no_more_than_a_few_segments(tmp_path: Path) -> None:
    store = tmp_path / "store"

    def on_disk() -> int:
        found = 0
        for path in store.rglob("*"):
            with suppress(FileNotFoundError):  # The store removes files meanwhile.
                found += path.stat().st_blocks * 512 if path.is_file() else 0
        return found

    with rb.loopback(store, properties=SEGMENT) as connection:
        admin, session = connection.admin(), connection.session(ack="client")
        for name in ("old", "q"):
            admin.create_destination("queue", name)
        session.producer("old").send("it lives")
        producer, consumer = session.producer("q"), session.consumer("q")
        for _ in range(MESSAGES // BLOCK):
            producer.send_many([BODY] * BLOCK)
        payload = MESSAGES * len(BODY)
        assert on_disk() > payload
        taken = 0
        while taken < MESSAGES:
            messages = consumer.receive_many(100, timeout=10)
            assert messages
            messages[-1].acknowledge()
            taken += len(messages)
        until(lambda: on_disk() < payload / 10, "the disk is free again", 30)
        message = session.receive("old", timeout=5)
        assert message is not None
        assert message.body == "it lives"
