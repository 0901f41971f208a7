"""Flow control through real handles: the worked examples of the seeds with their numbers (area F, D-15 … D-18)."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.errors import ConfigError, ConnectionLostError, ResourceAllocationError
from tests.contracts.conftest import TWO_FACES, MakeBroker
from tests.contracts.handles import LoopbackBroker, bodies, buffered, consumers_of, cut, state_of, take, until


def create(connection: Any, name: str, **attributes: object) -> str:
    connection.admin().create_destination("queue", name, **attributes)
    return name


def sent(connection: Any, name: str) -> list[int]:
    """Messages sent to each consumer since it was registered, in order of registration."""
    return [row["sent"] for row in consumers_of(connection, name)]


def quiet(connection: Any, name: str, counts: list[int]) -> None:
    """The broker has sent so many to each consumer and, having answered everything, sends no more."""
    until(lambda: sent(connection, name) == counts, f"{sent(connection, name)} became {counts}")
    for _ in range(3):
        assert sent(connection, name) == counts


# ---- F-21 … F-24 -----------------------------------------------------------------------------------------------------


def test_the_start_prefetches_three_and_receive_takes_the_first_from_the_buffer(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(started=False), broker.name()
    create(connection, name, consumerFlowLimit=3)
    session = connection.session(ack="client")
    session.producer(name).send_many("ABCDE")
    consumer = session.consumer(name)
    assert sent(connection, name) == [0]
    connection.start()
    until(lambda: buffered(consumer) == 3)
    quiet(connection, name, [3])
    assert consumer.receive_nowait().body == "A"
    assert sent(connection, name) == [3]


def test_two_consumers_with_a_backlog_get_a_batch_each_and_never_each_others(broker: LoopbackBroker) -> None:
    admin, name = broker.connect(), broker.name()
    create(admin, name, consumerFlowLimit=3)
    admin.session().producer(name).send_many("ABCDE")
    clients = [broker.connect(started=False) for _ in range(2)]
    consumers = [c.session(ack="client").consumer(name) for c in clients]
    clients[0].start()
    until(lambda: buffered(consumers[0]) == 3)
    clients[1].start()
    until(lambda: buffered(consumers[1]) == 2)
    quiet(admin, name, [3, 2])
    assert bodies(take(consumers[0], 3)) == ["A", "B", "C"]
    assert bodies(take(consumers[1], 2)) == ["D", "E"]
    assert consumers[0].receive(timeout=0.02) is None
    assert consumers[1].receive(timeout=0.02) is None


def test_two_consumers_without_a_backlog_share_what_comes(broker: LoopbackBroker) -> None:
    admin, name = broker.connect(), broker.name()
    create(admin, name, consumerFlowLimit=3)
    consumers = [broker.connect().session(ack="client").consumer(name) for _ in range(2)]
    producer = admin.session().producer(name)
    for body in "ABCDE":
        producer.send(body)
    until(lambda: sum(map(buffered, consumers)) == 5)
    shares = [bodies(c.receive_many(10, timeout=1)) for c in consumers]
    assert sorted(shares[0] + shares[1]) == list("ABCDE")
    for share in shares:
        assert share == sorted(share)
        assert 1 <= len(share) <= 3


@pytest.mark.parametrize(("limit", "split"), [(900, [5, 0]), (3, [3, 2]), (2, [2, 2]), (1, [1, 1]), (-1, [5, 0])])
def test_the_first_consumer_gets_a_whole_batch_of_the_backlog_before_the_next(
    broker: LoopbackBroker, limit: int, split: list[int]
) -> None:
    # A limit of the destination's own: with the default one what a consumer does not take is shared out again.
    admin, name = broker.connect(), broker.name()
    create(admin, name, consumerFlowLimit=limit)
    admin.session().producer(name).send_many("ABCDE")
    connection = broker.connect(started=False)
    session = connection.session(ack="client")
    consumers = [session.consumer(name) for _ in range(2)]
    connection.start()
    quiet(admin, name, split)
    until(lambda: [buffered(c) for c in consumers] == split)


# ---- F-05 … F-12 over the wire ---------------------------------------------------------------------------------------


def test_after_a_batch_of_1000_the_next_500_come_when_500_are_consumed(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    create(connection, name)
    session = connection.session(ack="client")
    session.producer(name).send_many(range(3000))
    consumer = session.consumer(name)
    quiet(connection, name, [1000])
    until(lambda: buffered(consumer) == 1000)
    take(consumer, 499)
    quiet(connection, name, [1000])
    take(consumer, 1)
    quiet(connection, name, [1500])
    until(lambda: buffered(consumer) == 1000)
    taken = consumer.receive_many(700, timeout=1)
    assert len(taken) == 700
    # It asked when it had opened as much of a delivery as left no more than 500: for 500 to 700 (F-10).
    until(lambda: sent(connection, name)[0] >= 2000)
    assert sent(connection, name)[0] <= 2200


@pytest.mark.parametrize(
    ("client", "destination", "prefetch", "threshold", "first", "consumed", "then"),
    [
        (20, 1000, None, None, 20, 10, 30),
        (1000, 20, None, None, 20, 10, 30),
        (-1, 20, None, None, 20, 10, 30),
        (20, -1, None, None, 20, 10, 30),
        (0, 0, None, None, 60, 10, 60),
        (1000, 1000, 3, 50, 3, 2, 5),
        (1000, 1000, 1, 50, 1, 1, 2),
        (1000, 1000, 10, 10, 10, 9, 19),
        (1000, 1000, 10, 100, 10, 1, 11),
        (1000, 1000, 10, 0, 10, 10, 20),
        (1000, 4, 10, 0, 4, 4, 8),
        (1000, 1000, -1, 50, 60, 60, 60),
    ],
)
def test_the_smaller_limit_holds_and_more_comes_at_the_threshold(
    broker: LoopbackBroker,
    client: int,
    destination: int,
    prefetch: int | None,
    threshold: int | None,
    first: int,
    consumed: int,
    then: int,
) -> None:
    connection, name = broker.connect(imqConsumerFlowLimit=client), broker.name()
    create(connection, name, consumerFlowLimit=destination)
    session = connection.session(ack="client")
    session.producer(name).send_many(range(60))
    consumer = session.consumer(name, prefetch=prefetch, threshold=threshold)
    if (client, prefetch, threshold) == (1000, -1, 50):
        first = then = min(60, destination)
    until(lambda: buffered(consumer) == first)
    quiet(connection, name, [first])
    take(consumer, consumed - 1)
    quiet(connection, name, [first])
    take(consumer, 1)
    quiet(connection, name, [then])


def test_without_prefetching_one_message_comes_when_it_is_asked_for(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(imqConsumerFlowLimitPrefetch=False), broker.name()
    create(connection, name)
    session = connection.session(ack="client")
    session.producer(name).send_many(range(4))
    consumer = session.consumer(name)
    quiet(connection, name, [0])
    for n in range(3):
        assert take(consumer, 1)[0].body == n
        quiet(connection, name, [n + 1])


# ---- F-17 … F-20 -----------------------------------------------------------------------------------------------------


def test_with_prefetch_1000_the_next_500_come_with_the_500th_acknowledgement(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    create(connection, name, consumerFlowLimit=-1)
    session = connection.session(ack="client")
    session.producer(name).send_many(range(3000))
    consumer = session.consumer(name, prefetch=1000)
    until(lambda: buffered(consumer) == 1000)
    messages = take(consumer, 1000)
    quiet(connection, name, [1000])
    messages[498].acknowledge_up_to()
    quiet(connection, name, [1000])
    messages[499].acknowledge_up_to()
    quiet(connection, name, [1500])
    until(lambda: buffered(consumer) == 500)
    messages[999].acknowledge_up_to()
    quiet(connection, name, [2000])


@pytest.mark.parametrize(("limit", "enough"), [(10, 5), (1, 1), (2, 1), (3, 2), (7, 4)])
def test_a_full_prefetch_waits_for_half_of_it_to_be_acknowledged(
    broker: LoopbackBroker, limit: int, enough: int
) -> None:
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack="client")
    session.producer(name).send_many(range(40))
    consumer = session.consumer(name, prefetch=limit)
    messages = take(consumer, limit)
    quiet(connection, name, [limit])
    for message in messages[: enough - 1]:
        message.acknowledge_this()
        quiet(connection, name, [limit])
    messages[enough - 1].acknowledge_this()
    quiet(connection, name, [limit + enough])


def test_with_prefetch_1_slow_consumers_share_evenly(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    create(connection, name)
    session = connection.session(ack="client")
    session.producer(name).send_many(range(6))
    consumers = [session.consumer(name, prefetch=1) for _ in range(3)]
    for round_ in range(2):
        messages = [take(c, 1)[0] for c in consumers]
        quiet(connection, name, [round_ + 1] * 3)
        assert sorted(bodies(messages)) == [3 * round_ + n for n in range(3)]
        for message in messages:
            message.acknowledge_this()


def test_with_prefetch_0_nothing_is_pushed_and_each_receive_fetches_one(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    session = connection.session(ack="client")
    producer = session.producer(name)
    producer.send_many(range(5))
    consumer = session.consumer(name, prefetch=0)
    quiet(connection, name, [0])
    assert bodies(consumer.receive_many(100, timeout=5)) == [0]
    assert bodies(take(consumer, 2)) == [1, 2]
    quiet(connection, name, [3])
    session.recover()
    quiet(connection, name, [3])
    found = take(consumer, 5)
    assert [(m.body, m.delivery_count) for m in found] == [(0, 2), (1, 2), (2, 2), (3, 1), (4, 1)]
    assert consumer.receive_nowait() is None
    producer.send("later")
    assert take(consumer, 1)[0].body == "later"


@pytest.mark.parametrize("limit", [-1, 2])
def test_an_unlimited_prefetch_still_keeps_the_destinations_limit(broker: LoopbackBroker, limit: int) -> None:
    connection, name = broker.connect(), broker.name()
    create(connection, name, consumerFlowLimit=limit)
    session = connection.session(ack="client")
    session.producer(name).send_many(range(50))
    consumer = session.consumer(name, prefetch=-1)
    quiet(connection, name, [50 if limit < 0 else limit])
    until(lambda: buffered(consumer) == (50 if limit < 0 else limit))


@pytest.mark.parametrize("style", [{}, {"prefetch": 4}, {"prefetch": 4, "threshold": 25}, {"prefetch": 0}])
def test_a_limit_holds_and_nothing_stalls_after_recover_and_after_a_lost_connection(
    broker: LoopbackBroker, style: dict[str, int]
) -> None:
    connection, name = broker.connect(), broker.name()
    create(connection, name, consumerFlowLimit=4)
    session = connection.session(ack="client")
    session.producer(name).send_many(range(20))
    consumer = session.consumer(name, **style)
    take(consumer, 2)
    session.recover()
    take(consumer, 3)
    cut(connection)
    for n in range(20):
        (message,) = take(consumer, 1)
        assert message.body == n
        assert buffered(consumer) <= 4
        if n == 0:  # It covers what was in hand when the connection was lost too.
            with pytest.raises(ConnectionLostError, match="come again"):
                message.acknowledge()
        else:
            message.acknowledge()
    assert state_of(connection, name)["messages"] == 0


# ---- F-15, F-16 ------------------------------------------------------------------------------------------------------


def test_a_full_connection_stops_all_its_consumers_until_there_is_room_again(broker: LoopbackBroker) -> None:
    connection = broker.connect(imqConnectionFlowLimitEnabled=True, imqConnectionFlowLimit=10, imqConnectionFlowCount=5)
    names = [create(connection, broker.name()) for _ in range(2)]
    session, other = connection.session(ack="client"), broker.connect()
    consumers = [session.consumer(name) for name in names]
    for name in names:
        other.session().producer(name).send_many(range(50))
    until(lambda: sum(map(buffered, consumers)) > 10)
    total = until(lambda: _steady(lambda: sum(map(buffered, consumers))))
    assert total <= 10 + 2 * 5, "overshoot is what was under way between two checks"
    found: list[list[int]] = [[], []]

    def drain() -> bool:
        for index, consumer in enumerate(consumers):
            found[index] += bodies(consumer.receive_many(1, timeout=0.01))
        return [len(f) for f in found] == [50, 50]

    until(drain)
    assert found == [list(range(50))] * 2
    assert state_of(other, names[0])["waiting"] == 0


def _steady(value: Any) -> int | None:
    """A value that stays the same while the broker answers twenty questions."""
    before: int = value()
    return before if all(value() == before for _ in range(200)) else None


def test_a_connection_limit_works_without_a_count_of_its_own(broker: LoopbackBroker) -> None:
    connection = broker.connect(imqConnectionFlowLimitEnabled=True, imqConnectionFlowLimit=50)
    name = create(connection, broker.name())
    consumer = connection.session(ack="client").consumer(name)
    broker.connect().session().producer(name).send_many(range(900))
    until(lambda: buffered(consumer) > 50)
    assert until(lambda: _steady(lambda: buffered(consumer))) <= 50 + 2 * 100
    assert bodies(take(consumer, 900)) == list(range(900))


@pytest.mark.parametrize("count", [1, 7])
def test_delivery_that_is_metered_goes_on_whatever_happens_to_its_consumers(broker: LoopbackBroker, count: int) -> None:
    connection, name = broker.connect(imqConnectionFlowCount=count), broker.name()
    create(connection, name, consumerFlowLimit=50)
    session = connection.session(ack="client")
    producer = broker.connect().session().producer(name)
    producer.send_many(range(200))
    consumer = session.consumer(name)
    for _ in range(5):
        take(consumer, 3)
        session.recover()
    for _ in range(5):
        consumer.close()
        consumer = session.consumer(name)
        (first,) = take(consumer, 1)
    left = set(range(200)) - {first.body}
    while left:
        messages = consumer.receive_many(10, timeout=10)
        assert messages, f"{len(left)} messages never came"
        left -= set(bodies(messages))


# ---- D-15, D-16: backups ---------------------------------------------------------------------------------------------


def test_backups_get_nothing_until_an_active_consumer_leaves_then_the_first_is_promoted(
    broker: LoopbackBroker,
) -> None:
    connection, name = broker.connect(), broker.name()
    create(connection, name, maxNumActiveConsumers=1, maxNumBackupConsumers=2)
    session = connection.session(ack="client")
    session.producer(name).send_many(range(4))
    consumers = [session.consumer(name) for _ in range(3)]
    assert [c.active for c in consumers] == [True, False, False]
    with pytest.raises(ResourceAllocationError, match="1 active and 2 backup"):
        session.consumer(name)
    quiet(connection, name, [4, 0, 0])
    state = state_of(connection, name)
    assert (state["active_consumers"], state["backup_consumers"]) == (1, 2)
    take(consumers[0], 2)
    consumers[0].close()
    found = take(consumers[1], 4)
    assert [(m.body, m.redelivered) for m in found] == [(n, n < 2) for n in range(4)]
    assert [c.active for c in consumers[1:]] == [True, False]
    connection.admin().update_destination("queue", name, maxNumActiveConsumers=2)
    until(lambda: consumers[2].active)
    session.consumer(name)


def test_a_consumer_beyond_active_and_backup_is_refused_and_leaves_no_trace(make_broker: MakeBroker) -> None:
    broker = make_broker(imq__autocreate__queue__maxNumActiveConsumers=2)
    connection, name = broker.connect(), broker.name()
    session = connection.session()
    kept = [session.consumer(name) for _ in range(2)]
    for _ in range(3):
        with pytest.raises(ResourceAllocationError, match="maxNumActiveConsumers"):
            session.consumer(name)
    kept[0].close()
    another = session.consumer(name)
    assert another.active
    assert len(consumers_of(connection, name)) == 2


# ---- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"prefetch": -2}, "prefetch"),
        ({"prefetch": 1 << 31}, "prefetch"),
        ({"prefetch": 1.5}, "prefetch"),
        ({"prefetch": "3"}, "prefetch"),
        ({"threshold": -1}, "threshold"),
        ({"threshold": 101}, "threshold"),
        ({"threshold": "half"}, "threshold"),
    ],
)
@TWO_FACES
def test_a_bad_limit_is_refused_by_name(broker: LoopbackBroker, options: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        broker.connect().session().consumer(broker.name(), **options)


@pytest.mark.parametrize("limit", [-1, 0, 1, 2147483647])
def test_the_limits_of_the_limit_are_taken(broker: LoopbackBroker, limit: int) -> None:
    connection, name = broker.connect(imqConsumerFlowLimit=limit), broker.name()
    create(connection, name, consumerFlowLimit=limit)
    session = connection.session()
    session.producer(name).send("x")
    assert take(session.consumer(name), 1)[0].body == "x"
