"""Messages in the hands of administrators, on one host and between two (W-129, B15, B23)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raybroker.admin.verb_types import BROWSE_MAX, EXPORT_BYTES_MAX
from raybroker.content.death_records import ORIGIN, SUBSCRIPTION
from raybroker.content.headers import BlockContent, message_id, pack_fields
from raybroker.errors import (
    ConfigError,
    ConnectionLostError,
    IllegalStateError,
    InvalidDestinationError,
    ResourceAllocationError,
)
from raybroker.model.blocks.block import Block, encode_block
from tests.unit.broker.worlds import DMQ, FakeHost, World, block_of, message, served

A, B = ("queue", "a"), ("queue", "b")


async def two_hosts() -> tuple[World, FakeHost, FakeHost]:
    world = World()
    one = FakeHost("h1", served=[served(*A), served(*DMQ), served("topic", "a")])
    two = FakeHost("h2", served=[served(*B)])
    for host in (one, two):
        await world.broker.placement.adopt(host)
    return world, one, two


def nth(number: int) -> str:
    """The id of a message."""
    return message_id(7, number)


def run(work: Any) -> None:
    asyncio.run(work())


def ids(host: FakeHost, key: tuple[str, str]) -> list[str]:
    return [row["id"] for row in host.held.get(key, [])]


def test_browsing_gives_pages_and_takes_nothing() -> None:
    async def work() -> None:
        world, one, _ = await two_hosts()
        one.held[A] = [message(nth(1)), message(nth(2)), message(nth(3))]
        page = await world.admin("browse_messages", type="q", name="a")
        assert [row["id"] for row in page["messages"]] == [nth(1), nth(2)]
        page = await world.admin("browse_messages", type="q", name="a", start=page["next"])
        assert ([row["id"] for row in page["messages"]], page["next"]) == ([nth(3)], None)
        for args, why in (
            ({"max": 0}, "max=0"),
            ({"max": BROWSE_MAX + 1}, "a whole number from 1 to"),
            ({"body_bytes_max": -1}, "body_bytes_max"),
        ):
            with pytest.raises(ConfigError, match=why):
                await world.admin("browse_messages", type="queue", name="a", **args)
        with pytest.raises(InvalidDestinationError):
            await world.admin("browse_messages", type="queue", name="c")

    run(work)


def test_on_one_host_the_host_deletes_and_moves() -> None:
    async def work() -> None:
        world, one, _ = await two_hosts()
        assert await world.admin("delete_messages", type="queue", name="a", selector="x = 1") == 0
        assert await world.admin("move_messages", type="queue", name="a", target="mq.sys.dmq", ids=[nth(1)]) == 1
        assert await world.admin("move_messages", type="queue", name="a", target="a", target_type="t") == 7
        assert one.calls == [
            ("delete", "queue", "a", "x = 1", None),
            ("move", "queue", "a", None, [nth(1)], "queue", "mq.sys.dmq"),
            ("move", "queue", "a", None, None, "topic", "a"),
        ]
        for target in ("a", "c"):
            with pytest.raises(InvalidDestinationError):
                await world.admin("move_messages", type="queue", name="a", target=target)

    run(work)


def test_between_hosts_only_what_nobody_has_moves_and_only_from_a_paused_destination() -> None:
    async def work() -> None:
        world, one, two = await two_hosts()
        one.held[A] = [
            message(nth(1)),
            message(nth(2), "delivered"),
            message(nth(3), "delayed"),
            message(nth(4), "uncommitted"),
            message(nth(5)),
        ]
        with pytest.raises(IllegalStateError, match="RUNNING; pause its consumers"):
            await world.admin("move_messages", type="queue", name="a", target="b")
        one.served[A]["state"] = "CONSUMERS_PAUSED"
        assert await world.admin("move_messages", type="queue", name="a", target="b", ids=[nth(3), nth(4), nth(9)]) == 1
        assert ids(two, B) == [nth(3)]
        assert await world.admin("move_messages", type="queue", name="a", target="b") == 2
        assert ids(two, B) == [nth(3), nth(1), nth(5)]
        assert ids(one, A) == [nth(2), nth(4)]

    run(work)


def test_dead_messages_move_without_a_pause_and_many_in_parts() -> None:
    async def work() -> None:
        world, one, two = await two_hosts()
        one.held[DMQ] = [message(nth(n)) for n in range(120)]
        assert await world.admin("move_messages", type="queue", name="mq.sys.dmq", target="b") == 120
        assert ids(two, B) == [nth(n) for n in range(120)]
        assert one.held[DMQ] == []
        assert len([call for call in one.calls if call[0] == "delete"]) == 3

    run(work)


def test_what_could_not_be_copied_is_not_deleted() -> None:
    async def work() -> None:
        world, one, two = await two_hosts()
        one.held[DMQ] = [message(nth(1))]
        two.mute = True
        with pytest.raises(ConnectionLostError):
            await world.admin("move_messages", type="queue", name="mq.sys.dmq", target="b")
        assert ids(one, DMQ) == [nth(1)]

    run(work)


def test_another_host_is_filled_up_and_the_rest_stays_with_the_reason() -> None:
    async def work() -> None:
        world, one, two = await two_hosts()
        one.held[DMQ] = [message(nth(n)) for n in range(120)]
        two.full, two.room = "queue b holds its maxNumMsgs", 53
        with pytest.raises(
            ResourceAllocationError,
            match=r"^53 messages of queue mq\.sys\.dmq were moved to queue b; "
            r"the others stay in queue mq\.sys\.dmq: queue b holds its maxNumMsgs$",
        ):
            await world.admin("move_messages", type="queue", name="mq.sys.dmq", target="b")
        assert ids(two, B) == [nth(n) for n in range(53)]
        assert ids(one, DMQ) == [nth(n) for n in range(53, 120)]

    run(work)


def test_what_a_host_moves_by_itself_says_as_well_what_stays() -> None:
    async def work() -> None:
        world, one, _ = await two_hosts()
        one.full = "queue c is full"
        with pytest.raises(ResourceAllocationError, match=r"^1 message .* stay in queue a: queue c is full$"):
            await world.admin("move_messages", type="queue", name="a", target="a", target_type="t", ids=[nth(1)])

    run(work)


def test_export_and_import_go_to_the_host_in_bounded_pages() -> None:
    async def work() -> None:
        world, one, two = await two_hosts()
        one.held[A] = [message(nth(1)), message(nth(2))]
        page = await world.admin("export_messages", type="queue", name="a")
        assert (page["blocks"], page["next"]) == ([block_of(nth(1))], 1)
        assert await world.admin("import_messages", type="queue", name="b", blocks=page["blocks"]) == 1
        assert ids(two, B) == [nth(1)]
        with pytest.raises(ConfigError, match="max_bytes"):
            await world.admin("export_messages", type="queue", name="a", max_bytes=EXPORT_BYTES_MAX + 1)

    run(work)


def dead(number: int, origin: str, subscription: str = "") -> tuple[dict[str, Any], bytes]:
    """A dead message as its host shows it and exports it."""
    properties = {ORIGIN: origin, "n": number} | ({SUBSCRIPTION: subscription} if subscription else {})
    block = encode_block(
        [b"body"],
        producer=7,
        first_seq=number,
        timestamp_ms=1,
        persistent=True,
        kinds=0,
        headers=[pack_fields({"p": properties})],
    )
    return {**message(nth(number)), "properties": properties}, block


def test_dead_messages_go_back_to_where_they_came_from_whichever_host_that_is_on() -> None:  # B15
    async def work() -> None:
        world, one, two = await two_hosts()
        origins = ["queue:a", "queue:b", "topic:a", "queue:gone", "", "queue:b"]
        made = [dead(number, origin) for number, origin in enumerate(origins)]
        one.held[DMQ] = [row for row, _ in made]
        one.encoded = {row["id"]: block for row, block in made}
        assert await world.admin("retry_messages") == 4
        assert [call for call in one.calls if call[0] == "move"] == [("move", *DMQ, None, [nth(0), nth(2)], None, None)]
        blocks = [Block(data) for data in two.imported]
        assert [BlockContent(block).properties(0) for block in blocks] == [{"n": 1}, {"n": 5}]
        assert len({(block.producer, block.first_seq) for block in blocks}) == 2
        assert blocks[0].producer != 7
        assert [row["id"] for row in one.held[DMQ]] == [nth(number) for number in (0, 2, 3, 4)]

    run(work)


def test_messages_go_to_a_log_with_copies_wherever_it_is_led() -> None:
    far = FakeHost("b2/r1", served=[served(*B)])

    async def led(key: tuple[str, str]) -> Any:
        return far if key == B else None

    async def work() -> None:
        world = World(led=led)
        one = FakeHost("h1", served=[served(*A), served(*DMQ)])
        await world.broker.placement.adopt(one)
        one.held[A], one.served[A]["state"] = [message(nth(1)), message(nth(2))], "CONSUMERS_PAUSED"
        assert await world.admin("move_messages", type="queue", name="a", target="b") == 2
        assert await world.admin("import_messages", type="queue", name="b", blocks=[block_of(nth(3))]) == 1
        assert ids(far, B) == [nth(1), nth(2), nth(3)]
        row, block = dead(4, "queue:b")
        one.held[DMQ], one.encoded = [row], {row["id"]: block}
        assert await world.admin("retry_messages") == 1
        assert len(far.imported) == 4
        with pytest.raises(InvalidDestinationError, match="does not exist"):
            await world.admin("import_messages", type="queue", name="c", blocks=[block_of(nth(5))])

    run(work)


def test_a_dead_message_whose_subscription_is_gone_stays_where_it_is() -> None:
    async def work() -> None:
        world, one, _ = await two_hosts()
        two = FakeHost("h3", served=[served("topic", "b")])
        await world.broker.placement.adopt(two)
        made = [dead(0, "topic:b", "kept"), dead(1, "topic:b", "gone")]
        one.held[DMQ] = [row for row, _ in made]
        one.encoded = {row["id"]: block for row, block in made}
        two.subscriptions_gone = {"gone"}
        assert await world.admin("retry_messages") == 1
        assert [BlockContent(Block(data)).properties(0) for data in two.imported] == [{"n": 0}]
        assert [row["id"] for row in one.held[DMQ]] == [nth(1)]

    run(work)


def test_dead_messages_that_do_not_fit_stay_and_the_others_go_back() -> None:
    async def work() -> None:
        world, one, two = await two_hosts()
        made = [dead(number, "queue:b") for number in range(3)] + [dead(3, "queue:a")]
        one.held[DMQ] = [row for row, _ in made]
        one.encoded = {row["id"]: block for row, block in made}
        two.full, two.room = "queue b is full", 2
        with pytest.raises(ResourceAllocationError, match=r"^3 messages .* were sent back .*: queue b is full$"):
            await world.admin("retry_messages")
        assert [row["id"] for row in one.held[DMQ]] == [nth(2), nth(3)], "a fake moves nothing"
        assert len(two.imported) == 2

    run(work)


def test_retry_takes_what_is_named() -> None:
    async def work() -> None:
        world, one, _ = await two_hosts()
        one.held[DMQ] = [dead(number, "queue:a")[0] for number in range(3)]
        assert await world.admin("retry_messages", ids=[nth(1), nth(9)]) == 1
        assert one.calls == [("move", *DMQ, None, [nth(1)], None, None)]
        with pytest.raises(IllegalStateError, match="pause its consumers"):
            await world.admin("retry_messages", type="queue", name="b")

    run(work)
