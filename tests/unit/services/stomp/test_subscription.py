"""A subscription alone: deliveries become MESSAGE frames, and acknowledgements find them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raybroker.model.errors import ProtocolError
from raybroker.services.stomp import subscription as module
from raybroker.services.stomp.subscription import StompSubscription
from raybroker.wire.stomp.frame import StompFrame, Version
from tests.unit.services.stomp.parts import Client, Session, message, subscription


def delivered(one: StompSubscription, version: Version = "1.2") -> tuple[list[StompFrame], Client]:
    async def run() -> Client:
        client = Client(version)
        await one.deliver(client)
        return client

    client = asyncio.run(run())
    return client.frames(), client


def test_messages_that_are_there_leave_in_one_write() -> None:
    frames, client = delivered(subscription("client", message(1), message(2), message(3)))
    assert [(frame.command, frame.body, frame.headers["ack"]) for frame in frames] == [
        ("MESSAGE", b"m1", "1-1"),
        ("MESSAGE", b"m2", "1-2"),
        ("MESSAGE", b"m3", "1-3"),
    ]
    assert client.writes == 1
    assert frames[0].headers["destination"] == "/queue/q"


def test_a_batch_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH_BYTES", 1)
    frames, client = delivered(subscription("client", message(1), message(2), message(3)))
    assert (len(frames), client.writes) == (3, 3)


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_only_1_2_names_deliveries_and_not_with_ack_auto(version: Version) -> None:
    for ack in ("auto", "client"):
        (frame,), _ = delivered(subscription(ack, message(1), version=version), version)
        assert ("ack" in frame.headers) == (version == "1.2" and ack == "client")


def test_with_ack_auto_the_batch_is_acknowledged_and_nothing_waits() -> None:
    session = Session()
    one = subscription("auto", message(1), message(2), session=session)
    delivered(one)
    assert session.flushed == 1
    with pytest.raises(ProtocolError, match="waits for an acknowledgement"):
        one.take_unacknowledged(1)


def test_a_body_that_cannot_be_written_is_dead_and_the_next_one_goes() -> None:
    session, loop = Session(), []  # type: ignore[var-annotated]
    loop.append(loop)
    frames, _ = delivered(subscription("client", message(1, body=loop), message(2), session=session))
    assert [frame.body for frame in frames] == [b"m2"]
    assert session.asked[0].startswith("reject")


def test_a_destination_to_answer_is_told_as_the_client_writes_it() -> None:
    for reply_to, told in (("topic:news", "/topic/news"), ("q2", "/queue/q2")):
        (frame,), _ = delivered(subscription("auto", message(1, reply_to=reply_to)))
        assert frame.headers["reply-to"] == told


@pytest.mark.parametrize(("ack", "taken"), [("client", [1, 2]), ("client-individual", [2])])
def test_what_an_acknowledgement_is_about(ack: str, taken: list[int]) -> None:
    one = subscription(ack, *map(message, (1, 2, 3)))
    delivered(one)
    assert list(one.take_unacknowledged(2)) == taken
    with pytest.raises(ProtocolError, match=r"no message 1-2 of subscription 's'"):
        one.take_unacknowledged(2)
    assert one.serial_of("id-2") is None
    assert one.serial_of("id-3") == 3


def test_of_two_deliveries_of_one_message_the_later_is_meant_by_its_id() -> None:
    one = subscription("client-individual", message(1), message(1), message(2), version="1.1")
    delivered(one, "1.1")
    assert one.serial_of("id-1") == 2
    one.take_unacknowledged(1)
    assert one.serial_of("id-1") == 2


def test_a_message_without_an_id_is_known_by_its_delivery() -> None:
    one = subscription("client", message(1, id=""), version="1.1")
    (frame,), _ = delivered(one, "1.1")
    assert one.serial_of(frame.headers["message-id"]) == 1
    taken = one.take_unacknowledged(1)
    one.lent += 1
    one.restore(taken)
    assert one.serial_of(frame.headers["message-id"]) == 1


def test_a_cumulative_acknowledgement_is_one_unless_a_transaction_has_some() -> None:
    session = Session()
    one = subscription("client", *map(message, range(1, 6)), session=session)
    delivered(one)
    one.acknowledge(one.take_unacknowledged(2))
    assert session.asked == ["up to m2"]
    one.lent = 1
    one.acknowledge(one.take_unacknowledged(4))
    assert session.asked[1:] == ["m3", "m4"]


def test_what_was_restored_is_acknowledged_in_the_order_of_deliveries() -> None:
    one = subscription("client", *map(message, range(1, 4)))
    delivered(one)
    first = one.take_unacknowledged(1)
    one.lent = 1
    one.restore(first)
    assert (one.lent, list(one.take_unacknowledged(3))) == (0, [1, 2, 3])


def test_a_nack_fails_or_kills() -> None:
    session = Session()
    one = subscription("client-individual", *map(message, (1, 2)), session=session)
    delivered(one)
    one.refuse(one.take_unacknowledged(1), dead=False)
    one.refuse(one.take_unacknowledged(2), dead=True)
    assert session.asked == ["fail m1", "reject m2"]


def test_a_closed_subscription_knows_no_messages() -> None:
    session = Session()
    one = subscription("client", message(1), session=session)
    delivered(one)
    asyncio.run(one.close())
    assert (session.asked, one.serial_of("id-1")) == (["close"], None)


def test_who_writes_a_batch_has_the_turn() -> None:
    async def run() -> list[Any]:
        client, order = Client(), []
        slow = asyncio.Event()

        async def flushed() -> None:
            order.append("written")
            await slow.wait()
            order.append("flushed")

        client.flushed = flushed  # type: ignore[method-assign]
        tasks = [asyncio.create_task(subscription("auto", message(n), number=n).deliver(client)) for n in (1, 2)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        slow.set()
        await asyncio.gather(*tasks)
        return order

    assert asyncio.run(run()) == ["written", "flushed", "written", "flushed"]
