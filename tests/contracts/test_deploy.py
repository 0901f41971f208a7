"""Deployed listeners over a loopback broker with a name: without Ray, on threads of this process."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker.client.destinations import Topic
from raybroker.errors import ConfigError, InvalidSelectorError, NoClusterError
from tests.contracts.handles import dead, state_of, until

_numbers = itertools.count(1)


@pytest.fixture
def connection(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A connection to a named broker; its ``name`` is that of the broker."""
    name = f"test{next(_numbers)}"
    with rb.loopback(broker=name) as found:
        found.name = name  # type: ignore[attr-defined]
        yield found


def deploy(connection: Any, listener: Any, instances: int | None = None, **options: Any) -> Any:
    return rb.deploy(listener, instances, loopback=connection.name, **options)


def drained(connection: Any, name: str) -> bool:
    return bool(state_of(connection, name)["messages"] == 0)


# ---- loopback brokers with a name ------------------------------------------------------------------------------------


def test_connections_by_name_share_a_broker_which_ends_with_the_last_of_them(tmp_path: Path) -> None:
    first = rb.loopback(tmp_path, broker="shared")
    second = rb.loopback(tmp_path, broker="shared", properties={"imqConsumerFlowLimit": 7})
    first.session().producer("q").send("kept")
    first.close()
    second.start()
    assert second.session().consumer("q").receive(60).body == "kept"  # type: ignore[union-attr]
    second.close()
    third = rb.loopback(broker="shared")
    assert third.admin().list_destinations("queue") == [
        row for row in third.admin().list_destinations("queue") if row["name"].startswith("mq.")
    ], "a new broker, over memory"
    third.close()


def test_a_later_connection_cannot_change_the_broker(tmp_path: Path) -> None:
    with rb.loopback(broker="fixed"):
        with pytest.raises(ConfigError, match="store="):
            rb.loopback(tmp_path, broker="fixed")
        with pytest.raises(ConfigError, match="segment_bytes"):
            rb.loopback(broker="fixed", properties={"raybroker.store.segment_bytes": "1m"})
        rb.loopback(broker="fixed").close()


def test_asyncio_reaches_the_same_broker(connection: Any) -> None:
    async def send() -> None:
        async with await rb.aio.loopback(broker=connection.name) as other:
            await (await (await other.session()).producer("q")).send("x")

    asyncio.run(send())
    assert connection.session().consumer("q").receive(60).body == "x"


# ---- what runs -------------------------------------------------------------------------------------------------------


def test_coroutines_run_concurrently_up_to_the_limit_and_are_awaited(connection: Any) -> None:
    running, most, done = 0, 0, 0

    @rb.listener(queue="work", concurrency=4, prefetch=1)
    async def handle(message: Any) -> None:
        nonlocal running, most, done
        running += 1
        most = max(most, running)
        for _ in range(200):
            if most == 4:
                break
            await asyncio.sleep(0.01)
        running -= 1
        done += 1

    connection.session().producer("work").send_many(range(20))
    with deploy(connection, handle) as pool:
        until(lambda: drained(connection, "work"))
        assert (most, done) == (4, 20)
        until(lambda: pool.totals()["messages"] == 20)  # Counted once the acknowledgement is confirmed.


def test_the_loop_of_coroutines_is_closed_when_the_pool_has_stopped(connection: Any) -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    @rb.listener(queue="work")
    async def handle(message: Any) -> None:
        loops.append(asyncio.get_running_loop())

    connection.session().producer("work").send("x")
    with deploy(connection, handle):
        until(lambda: loops)
    until(loops[0].is_closed)


def test_a_batch_that_fails_is_tried_again_one_by_one_and_the_bad_message_is_rejected(connection: Any) -> None:
    calls: list[list[int]] = []

    @rb.listener(queue="work", batch=10, reject_on=ValueError)
    def handle(messages: list[Any]) -> None:
        calls.append([message.body for message in messages])
        if any(message.body == 3 for message in messages):
            raise ValueError("bad")

    connection.session().producer("work").send_many(range(5))
    with deploy(connection, handle) as pool:
        until(lambda: drained(connection, "work"))
        (row,) = until(lambda: dead(connection))
        until(lambda: pool.totals()["messages"] == 4)  # Counted once the acknowledgement is confirmed.
        (stats,) = pool.stats()
    assert (row["body"], row["properties"]["JMS_SUN_DMQ_UNDELIVERED_EXCEPTION"]) == (3, "ValueError: bad")
    assert [3] in calls
    assert (stats["messages"], stats["rejected"], stats["state"]) == (4, 1, "running")


def test_a_transacted_listener_commits_what_it_has_done_with(connection: Any) -> None:
    @rb.listener(queue="work", batch=5, transacted=True, backoff=0.01)
    def handle(message: Any) -> None:
        if message.body == 2 and message.delivery_count == 1:
            raise ValueError("once")

    connection.session().producer("work").send_many(range(5))
    with deploy(connection, handle, 2) as pool:
        until(lambda: drained(connection, "work"))
        until(lambda: pool.totals()["messages"] == 5)
    assert pool.totals()["failures"] >= 1


@pytest.mark.parametrize("how", ["plain", "shared", "shared durable", "durable"])
def test_topics_come_to_instances_as_their_subscription_says(connection: Any, how: str) -> None:
    options: dict[str, dict[str, Any]] = {
        "plain": {},
        "shared": {"subscription": "s", "shared": True, "durable": False},
        "shared durable": {"subscription": "s", "shared": True},
        "durable": {"subscription": "s", "client_id": "c"},
    }
    seen: list[int] = []

    @rb.listener(topic="news", selector="n > 1", **options[how])
    def handle(message: Any) -> None:
        seen.append(message.body)

    instances = 1 if how == "durable" else 2
    with deploy(connection, handle, instances):
        connection.session().producer("topic:news").send_many(range(4), properties=[{"n": n} for n in range(4)])
        expected = [2, 2, 3, 3] if how == "plain" else [2, 3]
        until(lambda: sorted(seen) == expected)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({}, "queue=… or topic=…"),
    "both": ({"queue": "q", "topic": "t"}, "one of them"),
    "a topic as queue": ({"queue": Topic("t")}, "topic=…"),
    "shared alone": ({"topic": "t", "shared": True}, "subscription="),
    "durable alone": ({"topic": "t", "subscription": "s"}, "client_id"),
    "neither": ({"topic": "t", "subscription": "s", "durable": False}, "durable or shared"),
    "concurrency": ({"queue": "q", "concurrency": 0}, "concurrency"),
    "copies": ({"topic": "t", "concurrency": 2}, "every message"),
    "backoff": ({"queue": "q", "backoff": -1}, "backoff"),
    "batch": ({"queue": "q", "batch": True}, "batch"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_listeners_that_cannot_be_are_refused(case: str) -> None:
    options, text = REFUSED[case]
    with pytest.raises(ConfigError, match=text):
        rb.listener(**options)
    with pytest.raises(ConfigError, match="listener="):
        rb.listener(queue="q")("no function")  # type: ignore[arg-type]


def test_a_pool_that_cannot_attach_is_refused_and_leaves_nothing(connection: Any) -> None:
    before = threading.active_count()
    with pytest.raises(InvalidSelectorError):
        deploy(connection, rb.listener(queue="q", selector="n >")(print), 3)
    with pytest.raises(NoClusterError, match="no loopback broker named 'nope'"):
        rb.deploy(rb.listener(queue="q")(print), loopback="nope")
    for options, text in (
        ({"instances": 0}, "instances=0"),
        ({"min": 1}, "max="),
        ({"min": 3, "max": 2}, "ascend"),
        ({"max": 2, "target_backlog": 0}, "target_backlog"),
        ({"actor_options": {}}, "actor_options"),
    ):
        with pytest.raises(ConfigError, match=text):
            deploy(connection, rb.listener(queue="q")(print), **options)
    until(lambda: threading.active_count() <= before)


# ---- what a pool survives --------------------------------------------------------------------------------------------


def test_a_pool_attaches_again_when_its_queue_was_destroyed_and_created(
    connection: Any, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Any] = []
    admin = connection.admin()
    admin.create_destination("queue", "work")

    @rb.listener(queue="work", concurrency=2)
    def handle(message: Any) -> None:
        seen.append(message.body)

    with deploy(connection, handle, 2) as pool:
        admin.destroy_destination("queue", "work")
        until(lambda: {row["state"] for row in pool.stats()} == {"attaching"})
        assert all("work" in row["last_error"] for row in pool.stats())
        assert pool.totals()["running"] == 0
        assert "work" not in {row["name"] for row in admin.list_destinations("queue")}, "it is not created again"
        admin.create_destination("queue", "work")
        connection.session().producer("work").send_many(range(10))
        until(lambda: sorted(seen) == list(range(10)))
        until(lambda: {row["state"] for row in pool.stats()} == {"running"})
        assert pool.totals()["reattached"] == 4
    assert any("is attached to queue:work again" in record.getMessage() for record in caplog.records)


# ---- how many --------------------------------------------------------------------------------------------------------


def test_a_pool_is_scaled_by_hand_and_counts_what_stopped_instances_did(connection: Any) -> None:
    handled = rb.listener(queue="work", prefetch=1)(lambda message: None)
    with deploy(connection, handled) as pool:
        assert pool.scale(3) == 1
        connection.session().producer("work").send_many(range(30))
        until(lambda: pool.totals()["messages"] == 30)
        assert pool.totals()["running"] == 3
        assert pool.scale(1) == 3
        found = pool.totals()
        assert (found["messages"], found["instances"]) == (30, 1)
        assert len(connection.admin().list_consumers("work")) == 1
        with pytest.raises(ConfigError, match="instances=0"):
            pool.scale(0)
    assert pool.totals() == {**found, "instances": 0, "running": 0, "buffered": 0}


def test_an_unshared_subscription_has_one_instance(connection: Any) -> None:
    listener = rb.listener(topic="t", subscription="s", client_id="c")(print)
    with deploy(connection, listener) as pool, pytest.raises(ConfigError, match="shared=True"):
        pool.scale(2)


def test_a_pool_grows_with_its_backlog(connection: Any) -> None:
    go_on = threading.Event()

    @rb.listener(queue="work", prefetch=1)
    def handle(message: Any) -> None:
        go_on.wait(60)

    with deploy(connection, handle, min=1, max=3, target_backlog=10) as pool:
        assert len(pool.stats()) == 1
        connection.session().producer("work").send_many(range(25))
        until(lambda: pool.totals()["running"] == 3)
        go_on.set()
        until(lambda: drained(connection, "work"))
