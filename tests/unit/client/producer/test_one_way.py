"""One-way sends: who waits for which, and what becomes of those that were on their way (W-99 to W-106)."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from raybroker.client.producer.pacing.flow_rate import flow_rates
from raybroker.client.producer.pacing.one_way import OneWay, one_way_sends
from raybroker.client.producer.producer import ProducerCore
from raybroker.client.producer.producer_state import Shared
from raybroker.config import Config
from raybroker.content.headers import encode_header
from raybroker.errors import ConnectionLostError, ResourceAllocationError
from raybroker.wire.native import frames as wire
from tests.unit.client.fakes import PERSISTENT, Scripted, run, turns

VOLATILE = PERSISTENT._replace(persistent=False)
ENABLED: dict[str, object] = {"OneWaySendMode": "enabled", "OneWaySendWindowSize": 100}


@pytest.mark.parametrize(
    ("mode", "kind", "window"),
    [
        ("buffered", "queue", None),
        ("disabled", "topic", 1),
        ("enabled", "queue", 5),
        ("enabled", "topic", 5),
        ("topicOnly", "topic", 5),
        ("topicOnly", "queue", 1),
    ],
)
def test_the_mode_and_the_type_of_the_destination_say_how_many_go_unanswered(
    mode: str, kind: str, window: int | None
) -> None:
    attributes = Config.from_values({"OneWaySendMode": mode, "OneWaySendWindowSize": 5})
    one_way = one_way_sends(attributes, kind, transacted=False)
    assert (one_way and one_way.window) == window
    assert one_way_sends(attributes, kind, transacted=True) is None, "the commit answers"


def test_every_nth_waits_and_so_do_messages_with_units_and_all_while_some_are_refused() -> None:
    one_way = OneWay(3)
    assert [one_way.is_two_way(None, b"") for _ in range(7)] == [False, False, True] * 2 + [False]
    part = encode_header({"JMS_BEA_UnitOfWork": "w"}, None, None, None)
    assert [one_way.is_two_way("u", b""), one_way.is_two_way(None, part)] == [True, True]
    one_way = OneWay(100)
    one_way.refusing = True
    assert [one_way.is_two_way(None, b"") for _ in range(3)] == [True] * 3
    assert [OneWay(1).is_two_way(None, b"") for _ in range(3)] == [True] * 3, "a window of one is none"


@pytest.mark.parametrize(
    ("mode", "window", "obeys"),
    [
        ("buffered", 9, True),
        ("disabled", 9, True),
        ("enabled", 1, True),
        ("enabled", 2, False),
        ("topicOnly", 2, False),
    ],
)
def test_a_window_takes_the_place_of_flow_control_by_rate(mode: str, window: int, obeys: bool) -> None:
    attributes = Config.from_values({"OneWaySendMode": mode, "OneWaySendWindowSize": window})
    assert (flow_rates(attributes) is not None) is obeys


def test_what_is_not_persistent_waits_for_its_answer_and_the_producer_learns_of_refusals() -> None:
    async def work() -> None:
        scripted = Scripted(**ENABLED)
        producer, host = await scripted.producer(scripted.session()), scripted.host
        assert producer.one_way is not None
        host.confirms = False
        waiter: Future[str] = Future()
        producer.put("one way", b"", VOLATILE, None, urgent=True)
        producer.put("two way", b"", VOLATILE, waiter, urgent=True)
        await turns()
        assert not waiter.done()
        refused = [(0, 2, ResourceAllocationError.code, "full")]
        host.link.write(wire.refused(1, 1, 2, refused))  # type: ignore[arg-type]
        await turns()
        assert isinstance(waiter.exception(), ResourceAllocationError)
        assert (producer.refused, producer.one_way.refusing) == (1, True), "that of the other is raised"
        host.confirms = True
        taken: Future[str] = Future()
        producer.put("taken", b"", VOLATILE, taken, urgent=True)
        await turns()
        assert (bool(taken.result(0)), producer.one_way.refusing) == (True, False)

    run(work)


def test_what_was_on_its_way_when_the_connection_is_lost_is_told_and_what_had_not_left_goes_with_the_next() -> None:
    async def work() -> None:
        scripted = Scripted(**ENABLED)
        producer, host = await scripted.producer(scripted.session()), scripted.host
        host.confirms = False
        waiter: Future[str] = Future()
        producer.put("one way", b"", VOLATILE, None, urgent=True)
        producer.put("two way", b"", VOLATILE, waiter, urgent=True)
        await turns()
        producer.on_lost()
        fault = waiter.exception(0)
        assert isinstance(fault, ConnectionLostError)
        assert (fault.definite, producer.refused, producer._state.held_bytes) == (False, 1, 0)

    run(work)


def test_without_the_mode_nobody_waits() -> None:
    async def work() -> None:
        scripted = Scripted()
        producer, host = await scripted.producer(scripted.session()), scripted.host
        host.confirms = False
        sent: Future[str] = Future()
        producer.put("x", b"", VOLATILE, sent, urgent=True)
        await turns()
        assert (bool(sent.result(0)), producer.one_way, producer._state.held_bytes) == (True, None, 0)

    run(work)


def test_what_a_destination_with_credit_had_not_answered_when_the_connection_is_lost_is_counted() -> None:
    async def work() -> None:
        scripted = Scripted()
        scripted.host.answers["open_producer"] = {"credit": 10}
        producer, host = await scripted.producer(scripted.session()), scripted.host
        host.confirms = False
        left: Future[str] = Future()
        producer.put("x", b"", VOLATILE, left, urgent=True)
        producer.put("y", b"", VOLATILE, None, urgent=True)
        await turns()
        assert (bool(left.result(0)), producer.refused) == (True, 0), "it has left, and that is all that it tells"
        producer.on_lost()
        assert (producer.refused, producer._state.held_bytes) == (2, 0)

    run(work)


def many(producer: ProducerCore, count: int, shared: Shared) -> Future[str]:
    """As send_many does, for one block."""
    ((sent, done),) = producer.put_many([b"x"] * count, shared)
    assert sent == count
    return done


@pytest.mark.parametrize("why", ["low_memory", "slow", "lost"])
def test_a_block_that_is_not_persistent_is_waited_for_until_it_has_left_or_nothing_can_leave(why: str) -> None:
    async def work() -> None:
        scripted = Scripted()
        producer, host = await scripted.producer(scripted.session()), scripted.host
        host.confirms = False
        left = many(producer, 3, VOLATILE)
        assert not left.done()
        await turns()
        assert left.result(0)
        if why == "lost":
            host.silent.add("open_producer")
            host.link.abort()
        else:
            host.link.write(wire.event("gate", {"handle": 1, "state": why}))
        await turns()
        persistent, volatile = many(producer, 3, PERSISTENT), many(producer, 4, VOLATILE)
        await turns()
        assert (persistent.done(), bool(volatile.result(0))) == (False, True)
        producer.fail(ResourceAllocationError("it has ended"))
        assert producer.refused == 4, "whoever waits is told by the future"
        assert isinstance(persistent.exception(0), ResourceAllocationError)

    run(work)


def test_a_block_that_waits_to_leave_is_let_go_by_the_word_to_wait() -> None:
    async def work() -> None:
        scripted = Scripted()
        producer, host = await scripted.producer(scripted.session()), scripted.host
        producer._large.under_way = lambda channel: True  # type: ignore[method-assign]
        waiting = many(producer, 3, VOLATILE)
        await turns()
        assert not waiting.done()
        host.link.write(wire.event("gate", {"handle": 1, "state": "low_memory"}))
        await turns()
        assert waiting.result(0)
        assert producer.low == "the memory of its broker is out"

    run(work)
