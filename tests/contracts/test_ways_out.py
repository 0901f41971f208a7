"""Every way out of a ``with``: what the application has in hand when it fails is not acknowledged, and comes again."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import raybroker as rb
from raybroker.errors import IllegalStateError
from tests.contracts.conftest import ONE_FACE, MakeBroker
from tests.contracts.handle_basics import held
from tests.contracts.handles import WAIT_S, LoopbackBroker, bodies, create, state_of, take, until

SESSIONS: dict[str, dict[str, Any]] = {
    "auto": {},
    "window": {"ack_window": 10},
    "dups_ok": {"ack": "dups_ok"},
    "client": {"ack": "client"},
    "transacted": {"transacted": True},
}


class BoomError(Exception):
    """A failure of the application."""


def left_by_an_exception(broker: LoopbackBroker, options: dict[str, Any], of: str, name: str, taken: list[int]) -> None:
    """Receive as many messages in a row as ``taken`` says, and leave the ``with`` of a handle by an exception."""
    connection = broker.connect()
    session = connection.session(**options)
    consumer = session.consumer(name)
    if of == "consumer" and session.transacted:
        of = "session"  # What a consumer was given stays with its session's transaction until that ends.
    with {"connection": connection, "session": session, "consumer": consumer}[of]:
        for count in taken:
            found = take(consumer, 1) if count == 1 else consumer.receive_many(count, timeout=WAIT_S)
            assert len(found) == count
        raise BoomError


@pytest.mark.parametrize("of", ["consumer", "session", "connection"])
@pytest.mark.parametrize("taken", [[1], [2, 3], [1] * 10], ids=str)
@pytest.mark.parametrize("mode", SESSIONS)
def test_what_is_in_hand_comes_again_flagged(mode: str, taken: list[int], of: str, broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    connection.session().producer(name).send_many(range(12))
    until(lambda: held(connection, name) == 12)
    with pytest.raises(BoomError):
        left_by_an_exception(broker, SESSIONS[mode], of, name, taken)
    in_hand = range(sum(taken[:-1]), sum(taken))
    again = take(connection.session(ack="client").consumer(name), held(connection, name))
    assert set(in_hand) <= set(bodies(again)), "none of them is lost"
    assert all(message.redelivered for message in again if message.body in in_hand)
    assert not any(message.redelivered for message in again if message.body >= sum(taken))
    if mode in ("auto", "window"):
        assert bodies(again) == list(range(in_hand.start, 12)), "what it was done with does not come again"


def test_a_consumer_that_is_left_keeps_what_another_of_its_session_has_in_hand(broker: LoopbackBroker) -> None:
    connection, name, other = broker.connect(), broker.name(), broker.name()
    session = connection.session()
    session.producer(name).send("a")
    session.producer(other).send("b")
    staying = session.consumer(name)

    def fail() -> None:
        with session.consumer(other) as leaving:
            assert leaving.receive(WAIT_S).body == "b"
            assert staying.receive(WAIT_S).body == "a"
            raise BoomError

    with pytest.raises(BoomError):
        fail()
    assert (held(connection, name), held(connection, other)) == (1, 0)
    assert staying.receive_nowait() is None
    assert held(connection, name) == 0, "coming back for more acknowledges it"


@pytest.mark.parametrize("mode", ["auto", "window", "dups_ok"])
def test_a_consumer_that_is_left_as_usual_acknowledges_what_it_was_given(mode: str, broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    connection.session().producer(name).send_many(range(5))
    with connection.session(**SESSIONS[mode]).consumer(name) as consumer:
        take(consumer, 2)
    assert held(connection, name) == 3
    assert bodies(take(connection.session().consumer(name), 3)) == [2, 3, 4]


def test_a_producer_that_is_left_by_an_exception_sends_what_it_was_given_and_the_exception_goes_on(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker()
    admin = broker.connect()
    name = create(admin, broker.name(), limitBehavior="FLOW_CONTROL", maxNumMsgs=2)
    connection = broker.connect(**{"raybroker.reconnect.timeout_ms": 50})

    def fail() -> None:
        with connection.session().producer(name) as producer:
            for n in range(10):
                producer.send_async(n)
            until(lambda: state_of(admin, name)["throttled"])
            producer.send_async(10)
            raise BoomError

    with pytest.raises(BoomError) as caught:
        fail()
    assert any("was full for" in note for note in caught.value.__notes__), "and why closing failed is told"


# ---- listeners -------------------------------------------------------------------------------------------------------


class Calls:
    """A listener whose calls wait until they are let go of, unless they are over."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.let_go = threading.Event()
        self.ended: list[Any] = []

    def __call__(self, message: Any) -> None:
        self.begun.set()
        assert self.let_go.wait(WAIT_S)
        self.ended.append(message.body)


@ONE_FACE
@pytest.mark.parametrize("of", ["consumer", "session", "connection"])
@pytest.mark.parametrize("mode", ["auto", "window", "dups_ok", "client", "transacted"])
def test_closing_waits_for_the_call_of_a_listener_that_runs(mode: str, of: str, broker: LoopbackBroker) -> None:
    admin, name = broker.connect(), broker.name()
    admin.session().producer(name).send_many(range(3))
    connection = broker.connect()
    session, calls = connection.session(**SESSIONS[mode]), Calls()
    consumer = session.consumer(name).on_message(calls)
    assert calls.begun.wait(WAIT_S)
    handle = {"connection": connection, "session": session, "consumer": consumer}[of]
    seen: list[list[Any]] = []
    closing = threading.Thread(target=lambda: (handle.close(), seen.append(list(calls.ended))))
    closing.start()
    closing.join(0.2)
    assert closing.is_alive(), "its message is in hand"
    calls.let_go.set()
    closing.join(WAIT_S)
    assert seen == [[0]], "the call had returned, and there was no other"
    if mode in ("auto", "window", "dups_ok"):
        assert held(admin, name) == 2


async def closed_meanwhile(mode: dict[str, Any], name: str) -> tuple[list[int], list[int], int]:
    let_go, begun, ended = asyncio.Event(), asyncio.Event(), []
    connection = await rb.aio.loopback()
    async with connection:
        session = await connection.session(**mode)
        await (await session.producer(name)).send_many(range(3))

        async def handle(message: Any) -> None:
            begun.set()
            await let_go.wait()
            ended.append(message.body)

        consumer = await (await session.consumer(name)).on_message(handle)
        await begun.wait()
        closing = asyncio.create_task(consumer.close())
        await asyncio.sleep(0.1)
        before = list(ended) if not closing.done() else [-1]
        let_go.set()
        await closing
        left = (await connection.admin().query_destination("queue", name))["messages"]
        return before, ended, left


@pytest.mark.parametrize("mode", ["auto", "window", "dups_ok"])
def test_closing_a_consumer_waits_for_its_coroutine(mode: str) -> None:
    assert asyncio.run(closed_meanwhile(SESSIONS[mode], "q")) == ([], [0], 2)


@pytest.mark.parametrize("mode", ["auto", "window", "dups_ok"])
@pytest.mark.parametrize("fails", [False, True])
def test_a_listener_may_close_its_consumer_and_its_message_ends_with_the_call(
    fails: bool, mode: str, broker: LoopbackBroker
) -> None:
    connection, name = broker.connect(), broker.name()
    session, seen = connection.session(**SESSIONS[mode]), []
    consumer = session.consumer(name)
    inner = getattr(consumer, "inner", consumer)

    async def handle(message: Any) -> None:
        closing = inner.close()
        if closing is not None:
            await closing
        seen.append(message.body)
        if fails:
            raise BoomError

    connection.session().producer(name).send_many(range(3))
    consumer.on_message(handle, backoff=0)
    until(lambda: state_of(connection, name)["active_consumers"] == 0, "it ends with the call")
    assert seen == [0]
    assert held(connection, name) == (3 if fails else 2)
    again = take(connection.session().consumer(name), 1)[0]
    assert (again.body, again.redelivered) == ((0, True) if fails else (1, False))


@ONE_FACE
def test_closing_one_consumer_does_not_acknowledge_what_the_call_of_another_has_in_hand(broker: LoopbackBroker) -> None:
    connection, name, other = broker.connect(), broker.name(), broker.name()
    session, calls = connection.session(), Calls()
    idle = session.consumer(other).on_message(lambda message: None)
    session.consumer(name).on_message(calls)
    connection.session().producer(name).send("x")
    assert calls.begun.wait(WAIT_S)
    idle.close()
    assert held(connection, name) == 1
    calls.let_go.set()
    until(lambda: held(connection, name) == 0)


# ---- full destinations -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("closed", ["session", "connection", "unnamed"])
def test_all_full_destinations_share_one_deadline(closed: str, make_broker: MakeBroker) -> None:
    broker = make_broker()
    admin = broker.connect()
    names = [create(admin, broker.name(), limitBehavior="FLOW_CONTROL", maxNumMsgs=2) for _ in range(6)]
    connection = broker.connect(**{"raybroker.reconnect.timeout_ms": 1_500})
    sessions = [connection.session() for _ in names] if closed == "connection" else [connection.session()] * len(names)
    unnamed = sessions[0].producer()
    producers = [unnamed if closed == "unnamed" else s.producer(n) for s, n in zip(sessions, names, strict=True)]
    for producer, name in zip(producers, names, strict=True):
        where = {"destination": name} if closed == "unnamed" else {}
        for n in range(8):
            producer.send_async(n, **where)
    until(lambda: all(state_of(admin, name)["throttled"] for name in names))
    for producer, name in zip(producers, names, strict=True):
        producer.send_async(8, **({"destination": name} if closed == "unnamed" else {}))
    clock = connection._core.clock
    since_ns = clock.monotonic_ns()
    with pytest.raises(IllegalStateError, match=r"was full for 1\.5 s"):
        {"session": sessions[0], "connection": connection, "unnamed": unnamed}[closed].close()
    assert (clock.monotonic_ns() - since_ns) / 1e9 < 6, "6 destinations, one after the other, take 9 s"
