"""Where the messages of a producer go in a cluster, over members that only remember what they get."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.client.destinations import Queue
from raybroker.client.producer.members import unit_routing
from raybroker.client.producer.members.unit_routing import ASKED_MAX, RoutedProducer, id_of, work_in, work_of
from raybroker.client.producer.pacing.one_way import OneWay
from raybroker.client.producer.producer import ProducerCore
from raybroker.client.producer.producer_state import Shared
from raybroker.client.producer.send_many import Each
from raybroker.content.bodies import encode_body
from raybroker.content.headers import encode_header
from raybroker.content.unit_of_work import WORK_UNIT
from raybroker.model.errors import ConnectionLostError, IllegalStateError, OrderError
from raybroker.model.hashing import rendezvous
from raybroker.model.naming.units import default_unit

PLAIN = Shared(True, 4)
BROKERS = ["b1", "b2", "b3"]


class Member(ProducerCore):
    """The producer at one broker. ``got``: bodies."""

    duplicates, refused = 1, 2  # type: ignore[assignment]

    @property
    def transacted(self) -> bool:
        return False

    def __init__(self, broker: str | None, traits: dict[str, Any]) -> None:
        self.broker = broker
        self.traits = traits
        self.got: list[Any] = []
        self.failure = None
        self.one_way = traits.get("one_way")
        self.ended = False

    def put(self, body: Any, header: bytes, shared: Shared, waiter: Any, **how: Any) -> str:
        self.got.append(body)
        return f"{self.broker}:{body}"

    def put_many(self, bodies: Any, shared: Shared, each: Any = None) -> Iterator[tuple[int, Future[str]]]:
        found = list(bodies)
        self.got += found
        yield len(found), Future()

    def has_room(self) -> bool:
        return True

    def room_future(self) -> Future[None]:
        done: Future[None] = Future()
        done.set_result(None)
        return done

    async def close(self) -> None:
        self.ended = True


class World:
    """A routed producer on a loop of its own thread; ``asked``: what the path service was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **traits: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.opened: dict[str | None, Member] = {}
        self.down: set[str] = set()
        self.asked: list[list[str]] = []
        self.released: list[list[str]] = []
        self.forgotten: list[Any] = []
        self.view = SimpleNamespace(members=[SimpleNamespace(name=name, state="UP") for name in BROKERS], home="b1")

        async def open_producer(*args: Any, broker: str | None = None, bound: bool = False, **how: Any) -> Member:
            if broker in self.down:
                raise ConnectionLostError("it is down")
            return self.opened.setdefault(broker, Member(broker, traits))

        async def with_retry(what: str, work: Callable[[], Any]) -> Any:
            return await work()

        monkeypatch.setattr(unit_routing, "open_producer", open_producer)
        connection: Any = SimpleNamespace(
            io=SimpleNamespace(submit=lambda work: asyncio.run_coroutine_threadsafe(work, self.loop)),
            tasks=SimpleNamespace(with_retry=with_retry, keep=lambda name, run: asyncio.ensure_future(run())),
            brokers=SimpleNamespace(listeners=[], follow=lambda: None, view=self._view),
            directory=SimpleNamespace(home="b1", routes=self._routes, release_routes=self._release),
            attributes={"raybroker.path.lease_ms": 60_000},
            handles=SimpleNamespace(forget_producer=self.forgotten.append),
        )
        self.connection = connection
        self.producer = RoutedProducer(connection, Queue("q"), PLAIN, encode=encode_body, transactions=None)
        self.run(self.producer.open(create=True))

    async def _view(self) -> Any:
        return self.view

    async def _routes(self, kind: str, name: str, units: list[str], owner: str) -> dict[str, str]:
        self.asked.append(units)
        return dict.fromkeys(units, "b3")

    async def _release(self, kind: str, name: str, units: list[str], owner: str) -> None:
        self.released.append(units)

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(20)

    def put(self, body: str, unit: str | None = None, header: bytes = b"") -> str | None:
        return self.producer.put(body, header, PLAIN._replace(unit=unit), None, urgent=True)

    def got(self) -> dict[str | None, list[str]]:
        return {broker: member.got for broker, member in self.opened.items() if member.got}

    def end(self) -> None:
        self.run(self.producer.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(20)
        self.loop.close()


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., World]]:
    made: list[World] = []

    def world(**traits: Any) -> World:
        made.append(World(monkeypatch, **traits))
        return made[-1]

    yield world
    for one in made:
        one.end()


class Balance:
    """The balance over the members of a distributed destination, without any."""

    def __init__(self, *args: Any) -> None:
        self.members: dict[str, Member] = {}

    async def open(self) -> None: ...

    async def close(self) -> None: ...


@pytest.mark.parametrize("distributed", [True, False])
def test_a_distributed_destination_has_no_one_way_sends(
    make: Callable[..., World], monkeypatch: pytest.MonkeyPatch, distributed: bool
) -> None:
    monkeypatch.setattr(unit_routing, "MemberBalance", Balance)
    world = make(distributed=distributed, one_way=OneWay(300))
    assert world.producer.one_way is not None
    assert world.producer.one_way.window == (1 if distributed else 300)


def test_a_message_without_a_unit_goes_to_the_home_broker(make: Callable[..., World]) -> None:
    world = make()
    world.put("a")
    world.put("b", header=encode_header({}, None, None, None, "an id"))
    assert world.got() == {None: ["a", "b"]}


def test_a_unit_goes_where_the_hash_of_its_name_says(make: Callable[..., World]) -> None:
    world = make()
    expected: dict[str, list[str]] = {}
    for number in range(12):
        unit = f"u{number}"
        expected.setdefault(rendezvous(unit, BROKERS), []).append(unit)
        world.put(unit, unit)
    assert world.got() == expected
    assert len(expected) > 1


def test_who_may_not_wait_tries_again_when_the_way_is_known(make: Callable[..., World]) -> None:
    world = make()
    shared = PLAIN._replace(unit="u")
    assert world.producer.put("a", b"", shared, None, urgent=True, block=False) is None
    world.producer.room_future().result(20)
    assert world.producer.put("a", b"", shared, None, urgent=True, block=False) == f"{rendezvous('u', BROKERS)}:a"


def test_a_unit_whose_broker_cannot_be_reached_goes_nowhere_else(make: Callable[..., World]) -> None:
    world = make()
    world.down.update(BROKERS)
    with pytest.raises(OrderError, match=f"broker {rendezvous('u', BROKERS)}, which the message's unit of order"):
        world.put("a", "u")
    world.down.clear()
    assert world.put("a", "u") == f"{rendezvous('u', BROKERS)}:a"


def test_other_brokers_give_units_other_ways(make: Callable[..., World]) -> None:
    world = make()
    unit = next(f"u{n}" for n in range(100) if rendezvous(f"u{n}", BROKERS) != rendezvous(f"u{n}", ["b1"]))
    world.put("a", unit)
    (listener,) = world.connection.brokers.listeners
    listener(SimpleNamespace(members=[SimpleNamespace(name="b1")]))
    assert world.put("b", unit) == "b1:b"


def test_the_path_service_is_asked_where_the_destination_says_so(make: Callable[..., World]) -> None:
    world = make(unitOfOrderRouting="PathService")
    for _ in range(2):
        assert world.put("a", "u") == "b3:a"
    assert world.asked == [["u"]]
    world.run(world.producer.close())
    assert world.released == [["u"]]


def test_units_are_asked_for_some_at_a_time(make: Callable[..., World]) -> None:
    world = make(unitOfOrderRouting="PathService")
    units = [f"u{number}" for number in range(ASKED_MAX + 1)]
    for _, _ in world.producer.put_many(units, PLAIN, Each(None, None, None, units, shared=PLAIN)):
        pass
    assert [len(asked) for asked in world.asked] == [ASKED_MAX, 1]
    assert sorted(unit for asked in world.asked for unit in asked) == sorted(units)
    assert sorted(world.got()["b3"]) == sorted(units)


def test_a_local_destination_keeps_all_units_at_home(make: Callable[..., World]) -> None:
    world = make(isLocalOnly=True)
    for number in range(5):
        world.put(f"m{number}", f"u{number}")
    assert set(world.got()) == {"b1"}


def test_messages_of_a_destination_with_a_unit_are_in_one_place(make: Callable[..., World]) -> None:
    world = make(unitOfOrder=True)
    for body in "abc":
        world.put(body)
    assert world.got() == {rendezvous(default_unit("queue", "q"), BROKERS): ["a", "b", "c"]}


def test_a_deduplication_id_decides_where_they_are_remembered(make: Callable[..., World]) -> None:
    world = make(duplicateWindowMs=1000)
    for name in ("x", "y", "x"):
        header = encode_header({}, None, None, None, name)
        assert world.put(name, header=header) == f"{rendezvous(str(id_of(header)), BROKERS)}:{name}"


def test_parts_of_a_unit_of_work_go_together_where_they_are_composed(make: Callable[..., World]) -> None:
    header = encode_header({WORK_UNIT: "w"}, None, None, None)
    world = make(unitOfWorkHandlingPolicy="SingleMessageDelivery")
    assert world.put("a", header=header) == f"{rendezvous(str(work_of(header)), BROKERS)}:a"


def test_many_messages_go_each_where_its_unit_goes_and_in_order(make: Callable[..., World]) -> None:
    world = make()
    units = ["u1", None, "u2", "u1", None]
    taken = [count for count, _ in world.producer.put_many("abcde", PLAIN, Each(None, None, None, units, shared=PLAIN))]
    assert taken[0] == 0, "the way is looked for first"
    assert sum(taken) == 5
    expected: dict[str | None, list[str]] = {None: ["b", "e"]}
    for body, unit in zip("abcde", units, strict=True):
        if unit is not None:
            expected.setdefault(rendezvous(unit, BROKERS), []).append(body)
    assert world.got() == expected


def test_a_failed_member_is_opened_again_for_its_next_message(make: Callable[..., World]) -> None:
    world = make()
    world.put("a", "u")
    broker = rendezvous("u", BROKERS)
    member = world.opened.pop(broker)
    world.producer.member_failed(member)
    assert world.forgotten == [member]
    world.put("b", "u")
    assert world.opened[broker].got == ["b"]


def test_a_closed_producer_closes_its_members_and_finds_no_way(make: Callable[..., World]) -> None:
    world = make()
    world.put("a", "u")
    assert (world.producer.duplicates, world.producer.refused) == (2, 4)
    world.run(world.producer.close())
    assert all(member.ended for member in world.opened.values())
    with pytest.raises(IllegalStateError, match="is closed"):
        world.put("b", "other")


def test_keys_of_works_and_ids_are_never_names_of_units() -> None:
    assert (work_in({}), work_of(b""), id_of(encode_header({"a": 1}, None, None, None))) == (None, None, None)
    assert work_in({WORK_UNIT: "w"}) == "\0work:w"
    assert id_of(encode_header({}, None, None, None, "w")) == "\0id:w"
