"""Units of order and drain mode as a connection sees them, and what waits for a full connection."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.content.headers import decode_header, encode_header
from raybroker.core.invariants import check
from raybroker.engine.measuring.unit_figures import live_units
from raybroker.model.blocks.block import Block
from raybroker.model.naming.units import default_unit
from tests.unit.engine.rig import DMQ, Client, Rig, made


def send(client: Client, handle: int, text: str, **more: Any) -> None:
    """Messages named by their units: a1 is of unit a, -1 of none."""
    words = text.split()
    block = made(*words, producer=7, first_seq=client._next_seq, now_ms=client.rig.clock.ms, **more.pop("block", {}))
    client._next_seq += len(words)
    headers = [encode_header(None, None, None, None, unit=None if w[0] == "-" else w[0]) for w in words]
    client.session.send(handle, 1, block.with_headers(headers), more.get("txn", 0))


def world(**attributes: Any) -> tuple[Rig, Client, int]:
    rig = Rig()
    rig.create(**attributes)
    client = Client(rig)
    return rig, client, client.producer()


def unit_of(block: Block, index: int = 0) -> str | None:
    return decode_header(block.header(index)).unit


# ---- units of order --------------------------------------------------------------------------------------------------


def test_sessions_are_told_apart_by_their_owner() -> None:  # W-81
    _, client, producer = world()
    one, two = client.consumer(limit=1, owner="s"), client.consumer(limit=5, owner="t")
    three = client.consumer(limit=5, owner="s")
    send(client, producer, "a1 a2")
    assert client.got() == ["a1", "a2"]
    assert [(handle, body) for handle, body in client.tags] == [(one, "a1"), (three, "a2")]
    assert two


def test_a_destination_has_a_unit_of_its_own_and_every_message_shows_it() -> None:  # W-79, U17
    rig, client, producer = world(unitOfOrder=True)
    send(client, producer, "a1 -1")
    client.consumer()
    (block,) = client.blocks()
    assert [unit_of(block, 0), unit_of(block, 1)] == ["a", default_unit("queue", "q")]
    again = rig.restart()
    reader = Client(again)
    reader.consumer()
    found = reader.blocks()
    assert [unit_of(b, i) for b in found for i in range(b.count)] == ["a", default_unit("queue", "q")]


def test_a_dead_message_is_in_no_unit() -> None:  # U17
    rig, client, producer = world()
    rig.create(DMQ)
    consumer = client.consumer()
    send(client, producer, "a1")
    assert client.got() == ["a1"]
    client.settle(consumer, "reject", "a1")
    rig.sync()
    looker = Client(rig)
    looker.consumer(DMQ)
    (block,) = looker.blocks()
    assert unit_of(block) is None
    assert live_units(rig.destination(DMQ), ["a", "b"]) == []


def test_a_unit_has_messages_as_long_as_one_is_held_visible_or_not() -> None:  # W-120
    rig, client, producer = world()
    send(client, producer, "a1 b1 c1")
    send(client, producer, "d1", txn=1)
    consumer = client.consumer(limit=1)
    assert client.got() == ["a1"]
    rig.destination()
    names = ["a", "b", "d", "x"]
    assert client.ok("units", type="queue", name="q", names=names) == {"live": ["a", "b", "d"]}
    client.ack(consumer, "a1")
    rig.sync()
    assert client.ok("units", type="queue", name="q", names=names) == {"live": ["b", "d"]}
    client.ok("txn_rollback", txn=1)
    assert client.ok("units", type="queue", name="q", names=names) == {"live": ["b"]}
    assert client.fails("units", type="queue", name="q", names="a") == "protocol"
    assert client.fails("units", type="queue", name="nowhere", names=[]) == "invalid_destination"


def test_administrators_see_how_many_consumers_have_work() -> None:  # W-92
    rig, client, producer = world()
    send(client, producer, "a1 a2 b1")
    client.session.send(
        producer,
        1,
        made("c1", first_seq=client._next_seq, delay=1000, now_ms=rig.clock.ms).with_headers(
            [encode_header(None, None, None, None, unit="c")]
        ),
    )
    client._next_seq += 1
    assert figures(rig) == (0, 0, 0), "nobody has asked for anything yet, so nobody has looked"
    client.consumer(limit=1)
    assert client.got() == ["a1"]
    assert figures(rig) == (2, 1, 0)
    client.consumer(limit=5)
    assert client.got() == ["b1"]
    assert figures(rig) == (3, 0, 1)


def figures(rig: Rig) -> tuple[int, ...]:
    row = rig.host.inspection.describe("queue", "q")
    return row["units"], row["units_ready"], row["units_blocked"]


def test_a_head_that_no_consumer_wants_is_counted_as_blocked() -> None:  # W-88, W-92
    rig, client, producer = world()
    client.consumer(selector="JMS_BEA_UnitOfOrder = 'a'")
    send(client, producer, "a1 b1")
    assert client.got() == ["a1"]
    assert figures(rig) == (2, 0, 1)


def test_a_void_delivery_is_told_and_an_unsent_one_does_not_leave() -> None:  # U3
    rig, client, producer = world()
    consumer = client.consumer(limit=5, flow="credit")
    other = Client(rig)
    spare = other.consumer(limit=3, flow="credit")
    send(client, producer, "a1 b1 a2")
    assert client.got() == ["a1", "b1", "a2"]
    client.peer.full = True
    send(client, producer, "b2 a3")
    assert client.got() == []
    client.settle(consumer, "release", "a1")
    rig.sync()
    assert client.peer.take("withdrawn") == [("withdrawn", consumer, client.epochs[consumer], [(3, 3)])]
    assert other.got(spare) == ["a1(2)", "a2(2)", "a3(2)"]
    client.peer.full = False
    client.session.writable()
    assert client.got() == ["b2"]
    check(rig.destination())
    send(client, producer, "c1 c2")
    assert client.got() == ["c1"], "the one that never left is granted again"


def test_an_owner_is_a_short_text() -> None:
    _, client, _ = world()
    args = {"handle": 9, "name": "q", "type": "queue", "flow": "credit", "limit": 1, "no_ack": False}
    assert client.fails("open_consumer", **args, owner="x" * 256) == "protocol"
    assert client.fails("open_consumer", **args, owner=1) == "protocol"


# ---- drain mode ------------------------------------------------------------------------------------------------------


def told(client: Client) -> list[tuple[Any, ...]]:
    client.rig.sync()
    return [(row[0], row[1], *row[3:]) for row in client.peer.take("drained", "ready")]


def test_a_connection_hears_what_is_void_and_when_there_is_something() -> None:
    rig, client, producer = world()
    consumer = client.consumer(flow="credit", limit=10, drain=True)
    send(client, producer, "-1 -2 -3")
    assert told(client) == [("ready", consumer)]
    client.session.drain(consumer, client.epochs[consumer], 5)
    rig.sync()
    assert [row[0] for row in client.peer.told if row[0] != "sent"] == ["deliver", "drained"]
    assert told(client) == [("drained", consumer, 2)]
    assert client.got() == ["-1", "-2", "-3"]


def test_on_a_full_connection_it_is_told_after_the_messages() -> None:
    rig, client, producer = world()
    consumer = client.consumer(flow="credit", limit=10, drain=True)
    client.peer.full = True
    send(client, producer, "-1")
    client.session.drain(consumer, client.epochs[consumer], 2)
    rig.sync()
    client.peer.take("sent", "ready")
    assert client.peer.take() == []
    client.peer.full = False
    client.session.writable()
    assert [row[0] for row in client.peer.take()] == ["deliver", "drained"]


def test_what_was_told_before_a_recover_does_not_come_after_it() -> None:
    rig, client, producer = world()
    consumer = client.consumer(flow="credit", limit=10, drain=True)
    send(client, producer, "-1")
    client.session.drain(consumer, client.epochs[consumer], 2)
    client._call("release", {"handle": consumer, "epoch": client.epochs[consumer], "credit": 0}, sync=False)
    rig.sync()
    names = [row[0] for row in client.peer.take() if row[0] in ("drained", "ready", "released", "deliver")]
    assert names == ["released", "ready"]


def test_a_delivery_that_was_kept_too_long_before_it_left_is_void() -> None:  # B6
    rig, client, producer = world()
    consumer = client.consumer(flow="credit", limit=10, drain=True, lease_ms=100)
    client.peer.full = True
    send(client, producer, "-1")
    client.session.drain(consumer, client.epochs[consumer], 1)
    assert told(client) == [("ready", consumer)]
    rig.tick(150)
    assert told(client) == [("drained", consumer, 1), ("ready", consumer)]
    client.peer.full = False
    client.session.writable()
    assert client.got() == []


def test_a_stale_drain_is_dropped() -> None:
    _, client, producer = world()
    consumer = client.consumer(flow="credit", limit=10, drain=True)
    client.session.drain(consumer, client.epochs[consumer] + 1, 1)
    client.session.drain(77, 1, 1)
    send(client, producer, "-1")
    assert client.got() == []


@pytest.mark.parametrize(("home", "remote"), [("", False), ("b1", False), ("b2", True)])
def test_a_consumer_of_another_broker_is_remote(home: str, remote: bool) -> None:  # D-19
    rig, client, _ = world()
    reply = client.ok(
        "open_consumer",
        handle=5,
        name="q",
        type="queue",
        flow="credit",
        limit=7,
        no_ack=False,
        home=home,
        consumer="everywhere",
        owner="s",
    )
    assert reply["broker"] == "b1"
    (row,) = rig.host.inspection.consumers()
    assert (row["remote"], row["consumer"], row["owner"], row["drains"]) == (remote, "everywhere", "s", False)


def test_a_delivery_that_was_taken_back_before_it_left_is_granted_again() -> None:  # B6
    rig, client, producer = world()
    client.consumer(flow="credit", limit=1, lease_ms=100)
    client.peer.full = True
    send(client, producer, "-1")
    rig.tick(150)
    assert rig.held() == 1
    client.peer.full = False
    client.session.writable()
    assert client.got() == ["-1(2)"]
