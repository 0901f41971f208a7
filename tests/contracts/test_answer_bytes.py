"""How much memory answers take: messages that their sender has compressed are counted before they are whole again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from raybroker.model.sizes import KIB, MIB
from raybroker.system.memory import give_back_memory
from raybroker.system.process_memory import resident_bytes
from tests.contracts.stomp_rig import Bare
from tests.contracts.test_rest import Served

LARGE = 600 * KIB
HUGE = 12 * MIB
MANY = 20
"""Messages of HUGE bytes: they would take a quarter of a gigabyte."""
HELD_MS = 600_000
"""A lease that is not over before all of them are held, however slow the machine is."""
PEAK_BYTES_MAX = 8 * HUGE
"""What a few of them take that are being sent."""


def resident() -> int:
    """What this process uses, without what the clients' answers leave in cycles."""
    give_back_memory(thorough=True)
    return resident_bytes()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with ExitStack() as opened:
        made = Served(
            tmp_path,
            opened,
            **{
                "imq.service.activelist": "httpjms,stomp",
                "raybroker.service.answer_bytes_max": MIB,
                "raybroker.service.answers_bytes_max": 16 * MIB,
            },
        )
        made.admin.create_destination("queue", "q", maxNumMsgs=-1, maxTotalMsgBytes=-1, maxBytesPerMsg=-1)
        yield made


def sent(served: Served, count: int, size: int) -> None:
    """Messages of so many zeros, which are small on their way, with numbers."""
    producer = served.inside.session().producer("q")
    for number in range(count):
        producer.send(bytes(size), {"JMS_SUN_COMPRESS": True, "number": number})


def numbers(answer: Any) -> list[int]:
    assert answer.status_code == 200, answer.text[:500]
    return [row["properties"]["number"] for row in answer.json()["messages"]]


def test_a_browse_over_http_ends_before_it_has_too_much(served: Served) -> None:
    sent(served, 4, LARGE)
    served.send("small")
    answer = served.ann.get("/queues/q/messages?max=20")
    assert (numbers(answer), answer.json()["more"]) == ([0], True)
    answer = served.ann.get("/queues/q/messages", params={"max": 20, "selector": "number IS NULL"})
    assert [row["body"] for row in answer.json()["messages"]] == ["small"]


def test_what_a_receive_over_http_has_no_room_for_comes_with_the_next_one(served: Served) -> None:
    sent(served, 4, LARGE)
    for number in range(4):
        answer = served.ann.post("/queues/q/receive?max=10")
        assert numbers(answer) == [number]
        (row,) = answer.json()["messages"]
        assert row["delivery_count"] == 1  # There was no room for it before, and nobody has seen it.
        assert served.ann.post("/queues/q/acknowledge", json={"receipts": [row["receipt"]]}).status_code == 200
    assert served.messages() == {}


def test_a_message_that_is_larger_than_an_answer_comes_alone(served: Served) -> None:
    sent(served, 2, 3 * MIB)
    answer = served.ann.post("/queues/q/receive?max=10")
    assert numbers(answer) == [0]
    assert len(answer.json()["messages"][0]["body"]) == 4 * MIB


def test_many_messages_of_one_size_fill_an_answer(served: Served) -> None:
    sent(served, 40, 100 * KIB)
    assert numbers(served.ann.post("/queues/q/receive?max=40")) == list(range(10))


def test_messages_that_are_held_are_kept_as_they_came(served: Served) -> None:
    sent(served, MANY, HUGE)
    before = resident()
    for number in range(MANY):
        assert numbers(served.ann.post(f"/queues/q/receive?max=1&lease_ms={HELD_MS}")) == [number]
    assert resident() - before < PEAK_BYTES_MAX


def test_unacknowledged_messages_of_a_stomp_client_are_kept_as_they_came(served: Served) -> None:
    sent(served, MANY, HUGE)
    before = resident()
    client = Bare(served.ports["stomp"]).login()
    client.send("SUBSCRIBE", {"destination": "/queue/q", "id": 1, "ack": "client-individual"})
    for _ in range(MANY):
        assert len(client.expect("MESSAGE").body) == HUGE
    assert resident() - before < PEAK_BYTES_MAX
    client.close()


def test_stomp_clients_that_do_not_read_share_the_room_for_large_messages(served: Served) -> None:
    """A client of another user gets its own meanwhile."""
    sent(served, 1, HUGE)
    before = resident()
    served.admin.create_destination("topic", "t", maxNumMsgs=-1, maxTotalMsgBytes=-1, maxBytesPerMsg=-1)
    silent = [Bare(served.ports["stomp"]).login() for _ in range(12)]
    for client in silent:
        client.done("SUBSCRIBE", {"destination": "/topic/t", "id": 1})
    served.inside.session().producer("topic:t").send(bytes(HUGE), {"JMS_SUN_COMPRESS": True})
    assert len(silent[0].expect("MESSAGE").body) == HUGE
    small = served.ann.post("/topics/t/messages", json={"body": "x"})
    assert small.status_code == 201
    assert resident() - before < PEAK_BYTES_MAX
    for client in silent[1:]:
        assert len(client.expect("MESSAGE").body) == HUGE
        client.close()


def test_a_page_for_an_administrator_ends_after_some_megabytes(served: Served) -> None:
    sent(served, 20, MIB)
    page = served.admin.browse_messages("queue", "q", max=1000, body_bytes_max=MIB)
    assert (len(page["messages"]), page["next"]) == (8, 8)
    found: list[int] = []
    start: Any = None
    while True:
        page = served.admin.browse_messages("queue", "q", max=1000, body_bytes_max=MIB, start=start)
        found += [row["properties"]["number"] for row in page["messages"]]
        start = page["next"]
        if start is None:
            break
    assert found == list(range(20))


def test_a_browser_is_given_some_megabytes_at_a_time(served: Served) -> None:
    producer = served.inside.session().producer("q")
    for number in range(30):
        producer.send(bytes([number]) * MIB)
    session = served.inside.session()
    with session.browser(session.queue("q")) as browser:
        assert [message.body[0] for message in browser] == list(range(30))
