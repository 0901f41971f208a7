"""How many bytes of messages a gateway holds for its clients, over a store in memory and one on disk."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker.client.consumer.consumer import ConsumerCore
from raybroker.client.consumer.message import ReceivedDelivery
from raybroker.model.sizes import KIB, MIB
from raybroker.services.gateways.prefetch_room import SHARE_BYTES_MIN
from tests.contracts.stomp_rig import Bare
from tests.contracts.test_rest import Served, until

PREFETCH = 16 * MIB
"""raybroker.service.prefetch_bytes_max."""
AT_REST = 10
"""Looks that find the same."""
SHARE = PREFETCH // 16
"""Of one subscription."""


@pytest.fixture(autouse=True)
def _what_was_there_before_is_not_looked_at() -> None:
    """Deliveries that what pytest keeps of a failure may hold, and so many objects that each look would take long.

    It stays so: among what is frozen is all that was collected, which later searches for cycles would go through.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(params=["memory", "file"])
def served(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Served]:
    with ExitStack() as opened:
        made = Served(
            tmp_path,
            opened,
            store=tmp_path / "store" if request.param == "file" else None,
            **{
                "imq.service.activelist": "httpjms,stomp",
                "raybroker.service.answer_bytes_max": 4 * MIB,
                "raybroker.service.prefetch_bytes_max": PREFETCH,
            },
        )
        yield made


def fill(served: Served, count: int, size: int, queue: str = "q") -> None:
    """Messages of random bytes, which are as large on their way; in one block each."""
    served.admin.create_destination("queue", queue, maxNumMsgs=-1, maxTotalMsgBytes=-1, maxBytesPerMsg=-1)
    producer = served.inside.session().producer(queue)
    for number in range(count):
        producer.send(os.urandom(size), {"number": number})


def deliveries() -> list[ReceivedDelivery]:
    """All that were made since the test began; what only lies in cycles is not held."""
    gc.collect()
    return [one for one in gc.get_objects() if type(one) is not type and isinstance(one, ReceivedDelivery)]


def held_bytes() -> int:
    """Of bodies that consumers of gateways have in memory, taken from their buffers or not."""
    blocks = {
        id(one.block): one.block.bodies_bytes
        for one in deliveries()
        if hasattr(one, "block") and isinstance(one.consumer, ConsumerCore)
    }
    return sum(blocks.values())


@contextmanager
def watched() -> Iterator[list[int]]:
    """What is held meanwhile, looked at again and again."""
    seen, over = [0], threading.Event()

    def look() -> None:
        while not over.wait(0.005):
            seen.append(held_bytes())

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()


def at_rest() -> int:
    """What is held when that does not change any more."""
    last = same = 0
    for _ in range(400):
        time.sleep(0.05)
        now = held_bytes()
        same = same + 1 if now == last > 0 else 0
        if same == AT_REST:
            return now
        last = now
    raise AssertionError("it changes for ever, or nothing comes")


def test_a_stomp_client_that_does_not_read_has_few_bytes_ahead(served: Served) -> None:
    fill(served, 60, 300 * KIB)
    client = Bare(served.ports["stomp"]).login()
    client.send("SUBSCRIBE", {"destination": "/queue/q", "id": 1, "ack": "client-individual", "prefetch-count": 1000})
    assert at_rest() <= SHARE + 300 * KIB  # One is being written.
    client.close()
    until(lambda: held_bytes() == 0)


@pytest.mark.parametrize("size", [300 * KIB, 3 * MIB])
def test_subscriptions_of_one_stomp_client_share_the_room(served: Served, size: int) -> None:
    for number in range(20):
        fill(served, 10 * MIB // size // 2, size, f"q{number}")
    client = Bare(served.ports["stomp"]).login()
    with watched() as seen:
        for number in range(20):
            client.send("SUBSCRIBE", {"destination": f"/queue/q{number}", "id": number, "ack": "client"})
        at_rest()
    assert max(seen) <= PREFETCH + size + 20 * max(SHARE_BYTES_MIN, size if size <= MIB else 0)
    client.close()


def test_what_a_stomp_client_has_not_acknowledged_is_not_kept(served: Served) -> None:
    """It reads all that its prefetch allows, and acknowledges them at once at the end."""
    fill(served, 40, 500 * KIB)
    client = Bare(served.ports["stomp"]).login()
    client.send("SUBSCRIBE", {"destination": "/queue/q", "id": 1, "ack": "client", "prefetch-count": 40})
    frames = [client.expect("MESSAGE") for _ in range(40)]
    assert [int(frame.headers["number"]) for frame in frames] == list(range(40))
    until(lambda: held_bytes() == 0)
    client.done("ACK", {"id": frames[-1].headers["ack"]})
    until(lambda: not served.messages())
    client.close()


def test_messages_of_all_sizes_come_to_a_stomp_client_in_order(served: Served) -> None:
    sizes = [10, 2 * MIB, 100 * KIB, 5 * MIB, 1, SHARE, SHARE + 1, 900 * KIB, 0, 3 * MIB, 50 * KIB] * 3
    served.admin.create_destination("queue", "q", maxNumMsgs=-1, maxTotalMsgBytes=-1, maxBytesPerMsg=-1)
    producer = served.inside.session().producer("q")
    for size in sizes:
        producer.send(os.urandom(size))
    client = Bare(served.ports["stomp"]).login()
    client.send("SUBSCRIBE", {"destination": "/queue/q", "id": 1, "ack": "auto"})
    assert [len(client.expect("MESSAGE").body) for _ in sizes] == sizes
    client.close()


@pytest.mark.parametrize(("size", "count"), [(300 * KIB, 60), (3 * MIB, 24)])
def test_receives_of_one_user_over_http_share_the_room(served: Served, size: int, count: int) -> None:
    """Twelve at once, whose answers have some of the messages each."""
    fill(served, count, size)
    with watched() as seen, ThreadPoolExecutor(12) as several:
        served.ann.get("/health")
        answers = list(several.map(lambda _: served.ann.post("/queues/q/receive?max=20&wait_ms=3000"), range(12)))
        found = [row for answer in answers for row in rows_of(answer)]
    numbers = [row["properties"]["number"] for row in found]
    assert len(set(numbers)) == len(numbers) >= 1
    assert {row["delivery_count"] for row in found} == {1}
    assert max(seen) <= PREFETCH + size + 12 * max(SHARE_BYTES_MIN, size if size <= MIB else 0)
    until(lambda: held_bytes() == 0)
    for row in found:
        assert served.ann.post("/queues/q/acknowledge", json={"receipts": [row["receipt"]]}).status_code == 200
    while len(numbers) < count:
        rows = rows_of(served.ann.post("/queues/q/receive?max=20&wait_ms=20000"))
        assert {row["delivery_count"] for row in rows} == {1}
        numbers += [row["properties"]["number"] for row in rows]
        receipts = [row["receipt"] for row in rows]
        assert served.ann.post("/queues/q/acknowledge", json={"receipts": receipts}).status_code == 200
    assert sorted(numbers) == list(range(count))


def rows_of(answer: Any) -> list[Any]:
    assert answer.status_code == 200, answer.text[:500]
    found: list[Any] = answer.json()["messages"]
    return found


def test_a_message_that_a_page_has_no_room_for_was_seen_by_nobody(served: Served) -> None:
    fill(served, 18, 900 * KIB)
    pages: list[list[int]] = []
    while sum(map(len, pages)) < 18:
        rows = rows_of(served.ann.post("/queues/q/receive?max=10&wait_ms=20000"))
        pages.append([row["properties"]["number"] for row in rows])
        assert [row["delivery_count"] for row in rows] == [1] * len(rows)
        receipts = [row["receipt"] for row in rows]
        assert served.ann.post("/queues/q/acknowledge", json={"receipts": receipts}).status_code == 200
    assert [number for page in pages for number in page] == list(range(18))
    assert max(map(len, pages)) == 4 * MIB // (900 * KIB)


def test_messages_that_are_held_over_http_are_not_kept_and_may_be_given_back(served: Served) -> None:
    fill(served, 30, MIB)
    receipts = []
    while len(receipts) < 30:
        receipts += [row["receipt"] for row in rows_of(served.ann.post("/queues/q/receive?max=3"))]
    until(lambda: held_bytes() == 0)
    assert served.ann.post("/queues/q/release", json={"receipts": receipts}).status_code == 200
    rows = rows_of(served.ann.post("/queues/q/receive?max=3"))
    assert {row["delivery_count"] for row in rows} == {2}


@pytest.mark.parametrize("options", [{}, {"prefetch": 1000}, {"prefetch": 1000, "threshold": 50}, {"prefetch": 0}])
def test_a_program_may_bound_what_comes_ahead_of_it_too(options: dict[str, Any]) -> None:
    with rb.loopback(properties={"raybroker.client.buffer_bytes": MIB}) as connection:
        connection.start()
        connection.admin().create_destination("queue", "q", maxBytesPerMsg=-1, maxTotalMsgBytes=-1)
        session = connection.session(ack="client")
        sizes = [300 * KIB, 10, 2 * MIB, 100 * KIB, 0, MIB, MIB + 1] * 6
        producer = session.producer("q")
        for size in sizes:
            producer.send(bytes(size))
        with watched() as seen:
            consumer = session.consumer("q", **options)
            messages = []
            for size in sizes:
                message = consumer.receive(20)
                assert message is not None
                assert len(message.body) == size
                message.drop_content()  # Else this program has them all.
                messages.append(message)
        assert max(seen) <= MIB // 4 + 4 * MIB  # The largest two, one of which is in hand, may lie side by side.
        messages[-1].acknowledge()
        assert consumer.receive(0.1) is None


def test_what_was_bounded_goes_on_after_recover() -> None:
    with rb.loopback(properties={"raybroker.client.buffer_bytes": MIB}) as connection:
        connection.start()
        connection.admin().create_destination("queue", "q", maxBytesPerMsg=-1, maxTotalMsgBytes=-1)
        session = connection.session(ack="client")
        producer, consumer = session.producer("q"), session.consumer("q")
        for number in range(20):
            producer.send(bytes(300 * KIB), {"number": number})
        for start in range(3):
            assert [consumer.receive(20).properties["number"] for _ in range(5)] == list(range(5)), start
            session.recover()
        assert [consumer.receive(20).properties["number"] for _ in range(20)] == list(range(20))
