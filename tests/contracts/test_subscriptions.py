"""Durable and shared subscriptions: who gets what, what is kept, and how they end (D-27, B-08, A-40 … A-42)."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.client.consumer.subscriptions import unsubscribe
from raybroker.client.destinations import Topic
from raybroker.client.session import opening
from raybroker.errors import IllegalStateError, InvalidDestinationError
from raybroker.services.stomp.session import session_maker
from tests.contracts.conftest import ONE_FACE, TWO_FACES, MakeBroker, OneStore
from tests.contracts.handles import LoopbackBroker, bodies, core_of, create, nothing, state_of, take, until


def rows(connection: Any, topic: str | None = None) -> list[tuple[Any, ...]]:
    """(client, name, durable, shared, active, messages) of each subscription."""
    found = connection.admin().list_subscriptions(topic)
    return [(r["client_id"], r["name"], r["durable"], r["shared"], r["active"], r["messages"]) for r in found]


# ---- durable ---------------------------------------------------------------------------------------------------------


def test_a_durable_subscription_keeps_what_comes_while_nobody_listens(broker: LoopbackBroker) -> None:
    """D-27, B-08"""
    connection, name = broker.connect(client_id="billing"), broker.name()
    session = connection.session()
    topic = session.topic(name)
    producer = session.producer(topic)
    producer.send("before the subscription")
    subscriber = session.durable_consumer(topic, "audit")
    producer.send(1)
    assert bodies(take(subscriber, 1)) == [1]
    subscriber.close()
    producer.send_many([2, 3])
    assert rows(connection, name) == [("billing", "audit", True, False, False, 2)]
    assert bodies(take(session.durable_consumer(topic, "audit"), 2)) == [2, 3]


def test_a_durable_subscription_is_of_its_client_and_not_of_the_connection(broker: LoopbackBroker) -> None:
    """D-27: identity is client id and name"""
    name = broker.name()
    for client in ("one", "two"):
        with broker.connect(client_id=client) as connection:
            connection.session().durable_consumer(f"topic:{name}", "audit").close()
    broker.connect().session().producer(f"topic:{name}").send("for both")
    for client in ("one", "two"):
        with broker.connect(client_id=client) as connection:
            subscriber = connection.session().durable_consumer(f"topic:{name}", "audit")
            assert bodies(take(subscriber, 1)) == ["for both"]


def test_a_durable_subscription_needs_a_client_id(broker: LoopbackBroker) -> None:
    """D-27, R-18"""
    session = broker.connect().session()
    with pytest.raises(IllegalStateError, match="client_id"):
        session.durable_consumer(f"topic:{broker.name()}", "audit")


def test_a_second_consumer_on_a_durable_subscription_is_refused(broker: LoopbackBroker) -> None:
    """D-27"""
    connection, name = broker.connect(client_id="c"), broker.name()
    first = connection.session().durable_consumer(f"topic:{name}", "audit")
    for session in (first.session, connection.session()):
        with pytest.raises(IllegalStateError, match=r"audit.*(in use|active|consumer)"):
            session.durable_consumer(f"topic:{name}", "audit")
    connection.session().producer(f"topic:{name}").send("x")
    assert bodies(take(first, 1)) == ["x"]
    first.close()
    connection.session().durable_consumer(f"topic:{name}", "audit")


@pytest.mark.parametrize("change", [{"selector": "n > 1"}, {"no_local": True}])
def test_the_same_name_with_another_choice_makes_the_subscription_anew(
    broker: LoopbackBroker, change: dict[str, Any]
) -> None:
    """D-27: destroyed and recreated"""
    connection, name = broker.connect(client_id="c"), broker.name()
    session = connection.session()
    session.durable_consumer(f"topic:{name}", "audit").close()
    producer = broker.connect().session().producer(f"topic:{name}")
    producer.send("kept for the old one", properties={"n": 5})
    again = session.durable_consumer(f"topic:{name}", "audit", **change)
    producer.send("new", properties={"n": 5})
    assert bodies(take(again, 1)) == ["new"]
    assert nothing(again, 0.01)


def test_the_same_name_on_another_topic_ends_it_on_the_first(broker: LoopbackBroker) -> None:
    """D-27"""
    connection, one, two = broker.connect(client_id="c"), broker.name(), broker.name()
    session = connection.session()
    session.durable_consumer(f"topic:{one}", "audit").close()
    session.producer(f"topic:{one}").send("lost")
    subscriber = session.durable_consumer(f"topic:{two}", "audit")
    assert rows(connection, one) == []
    assert rows(connection, two) == [("c", "audit", True, False, True, 0)]
    with pytest.raises(IllegalStateError, match="audit"):
        session.durable_consumer(f"topic:{one}", "audit")
    subscriber.close()
    session.durable_consumer(f"topic:{one}", "audit")
    assert rows(connection, two) == []


def test_unsubscribing_ends_a_durable_subscription_and_what_waits_in_it(broker: LoopbackBroker) -> None:
    """D-27"""
    connection, name = broker.connect(client_id="c"), broker.name()
    session = connection.session()
    subscriber = session.durable_consumer(f"topic:{name}", "audit")
    with pytest.raises(IllegalStateError, match="audit"):
        session.unsubscribe("audit")
    session.producer(f"topic:{name}").send("x")
    subscriber.close()
    session.unsubscribe("audit")
    assert rows(connection, name) == []
    assert state_of(connection, name, "topic")["messages"] == 0
    with pytest.raises(InvalidDestinationError, match="audit"):
        session.unsubscribe("audit")
    assert nothing(session.durable_consumer(f"topic:{name}", "audit"), 0.01)


def test_a_durable_subscription_with_no_local_leaves_out_its_own_client(broker: LoopbackBroker) -> None:
    """D-27: also what was published while it was inactive"""
    connection, name = broker.connect(client_id="c"), broker.name()
    session = connection.session()
    session.durable_consumer(f"topic:{name}", "audit", no_local=True).close()
    session.producer(f"topic:{name}").send("mine")
    broker.connect().session().producer(f"topic:{name}").send("theirs")
    subscriber = session.durable_consumer(f"topic:{name}", "audit", no_local=True)
    assert bodies(take(subscriber, 1)) == ["theirs"]
    assert nothing(subscriber, 0.01)


@ONE_FACE
def test_a_topic_with_a_durable_subscription_is_not_removed_as_unused(make_broker: MakeBroker) -> None:
    """D-22"""
    broker = make_broker(imq__autocreate__reaptime=1)
    connection, kept, unused = broker.connect(client_id="c"), broker.name(), broker.name()
    session = connection.session()
    session.durable_consumer(f"topic:{kept}", "audit").close()
    session.consumer(f"topic:{unused}").close()

    def names() -> list[str]:
        return [row["name"] for row in connection.admin().list_destinations("topic")]

    until(lambda: unused not in names())
    assert names() == [kept]


@pytest.mark.parametrize("name", ["", "a\0", "x" * 256, None, 5])
@TWO_FACES
def test_a_bad_name_of_a_subscription_is_refused(broker: LoopbackBroker, name: Any) -> None:
    """D-27"""
    session = broker.connect(client_id="c").session()
    for call in (session.durable_consumer, session.shared_consumer, session.shared_durable_consumer):
        with pytest.raises(InvalidDestinationError, match="subscription"):
            call("topic:prices", name)


def test_a_queue_has_no_subscriptions(broker: LoopbackBroker) -> None:
    """D-27"""
    session = broker.connect(client_id="c").session()
    with pytest.raises(InvalidDestinationError, match="topics"):
        session.durable_consumer(session.queue(broker.name()), "audit")


# ---- shared ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durable", [False, True])
def test_each_message_of_a_shared_subscription_goes_to_one_member(broker: LoopbackBroker, durable: bool) -> None:
    """D-27"""
    name = broker.name()
    connections = [broker.connect() for _ in range(3)]
    kind = "shared_durable_consumer" if durable else "shared_consumer"
    members = [getattr(c.session(), kind)(f"topic:{name}", "workers") for c in connections]
    other = broker.connect().session().consumer(f"topic:{name}")
    connections[0].session().producer(f"topic:{name}").send_many(range(30))
    found: list[list[int]] = [[], [], []]

    def drained() -> bool:
        for index, member in enumerate(members):
            found[index] += bodies(member.receive_many(1, timeout=0.01))
        return sum(map(len, found)) == 30

    until(drained)
    assert sorted(n for share in found for n in share) == list(range(30))
    assert all(found), "each of them gets some"
    assert bodies(take(other, 30)) == list(range(30))


def test_a_member_of_a_shared_subscription_holds_five_messages_at_a_time(broker: LoopbackBroker) -> None:
    """D-27: sharedConsumerFlowLimit"""
    connection = broker.connect()
    default, larger = create(connection, broker.name(), "topic"), broker.name()
    create(connection, larger, "topic", sharedConsumerFlowLimit=8)
    for name, limit in ((default, 5), (larger, 8)):
        member = connection.session(ack="client").shared_consumer(f"topic:{name}", "pool")
        connection.session().producer(f"topic:{name}").send_many(range(50))
        until(lambda member=member, limit=limit: member.info()["buffered"] == limit)
        assert member.info()["limit"] == limit


def test_a_shared_subscription_that_is_not_durable_ends_with_its_last_member(broker: LoopbackBroker) -> None:
    """D-27"""
    connection, name = broker.connect(), broker.name()
    session = connection.session()
    members = [session.shared_consumer(f"topic:{name}", "pool") for _ in range(2)]
    producer = session.producer(f"topic:{name}")
    members[0].close()
    producer.send("for the other")
    assert bodies(take(members[1], 1)) == ["for the other"]
    members[1].close()
    producer.send("for nobody")
    assert rows(connection, name) == []
    assert nothing(session.shared_consumer(f"topic:{name}", "pool"), 0.01)


def test_a_shared_durable_subscription_outlives_its_members(broker: LoopbackBroker) -> None:
    """D-27"""
    connection, name = broker.connect(client_id="c"), broker.name()
    session = connection.session()
    for member in [session.shared_durable_consumer(f"topic:{name}", "pool") for _ in range(2)]:
        member.close()
    session.producer(f"topic:{name}").send_many(range(4))
    assert rows(connection, name) == [("c", "pool", True, True, False, 4)]
    members = [session.shared_durable_consumer(f"topic:{name}", "pool", prefetch=1) for _ in range(2)]
    assert sorted(bodies(take(members[0], 1) + take(members[1], 1))) == [0, 1]


@pytest.mark.parametrize("durable", [False, True])
def test_a_subscription_of_everyone_is_known_by_its_name_whatever_the_client_ids_of_its_members(
    broker: LoopbackBroker, durable: bool
) -> None:
    """D-27: the scope of a subscription is its own; with protocols that always say who a connection is"""
    name = broker.name()
    connections = [broker.connect(client_id=client) for client in ("one", "two")]
    own = connections[0].session().shared_durable_consumer(f"topic:{name}", "pool", prefetch=1)

    def member(connection: Any) -> Any:
        core, options = core_of(connection), {"prefetch": 1}
        session = session_maker(core)("client")
        core.begin_session()
        work = opening.consumer(
            session, Topic(name), options, name="pool", durable=durable, shared=True, everyones=True
        )
        return session, core.io.run(work)

    members = [member(connection) for connection in connections]
    connections[0].session().producer(f"topic:{name}").send_many(range(2))
    found = sorted(until(lambda core=core: core.take_one()).body for _, core in members)
    assert found == [0, 1], "each member has one of them"
    if durable:
        assert {row[:2] for row in rows(connections[0], name)} == {("one", "pool"), ("", "pool")}
    assert bodies(take(own, 1)) == [0], "the one of client id one is another subscription"
    for session, core in members:
        core_of(connections[0]).io.run(core.close())
        core_of(connections[0]).io.run(session.close_the_rest())
    if durable:
        ended = unsubscribe(members[1][0], "pool", everyones=True)
        core_of(connections[1]).io.run(ended)
    assert [row[:2] for row in rows(connections[0], name)] == [("one", "pool")]


def test_what_a_leaving_member_did_not_acknowledge_goes_to_another_flagged(broker: LoopbackBroker) -> None:
    """D-27, B-07"""
    connection, name = broker.connect(), broker.name()
    leaving, staying = connection.session(ack="client"), connection.session(ack="client")
    first = leaving.shared_consumer(f"topic:{name}", "pool")
    connection.session().producer(f"topic:{name}").send_many(range(3))
    take(first, 2)
    second = staying.shared_consumer(f"topic:{name}", "pool")
    leaving.close()
    assert [(m.body, m.redelivered) for m in take(second, 3)] == [(0, True), (1, True), (2, False)]


def test_sharing_and_not_sharing_under_one_name_excludes_the_other(broker: LoopbackBroker) -> None:
    """D-27"""
    connection, name = broker.connect(client_id="c"), broker.name()
    session = connection.session()
    alone = session.durable_consumer(f"topic:{name}", "audit")
    with pytest.raises(IllegalStateError, match="audit"):
        session.shared_durable_consumer(f"topic:{name}", "audit")
    alone.close()
    session.producer(f"topic:{name}").send("kept")
    with pytest.raises(IllegalStateError, match=r"'audit' exists as an unshared durable subscription.*unsubscribe"):
        session.shared_durable_consumer(f"topic:{name}", "audit")
    kept = session.durable_consumer(f"topic:{name}", "audit")
    assert bodies(take(kept, 1)) == ["kept"]
    kept.close()
    session.unsubscribe("audit")
    member = session.shared_durable_consumer(f"topic:{name}", "audit")
    with pytest.raises(IllegalStateError, match="selector"):
        session.shared_durable_consumer(f"topic:{name}", "audit", "n = 1")
    member.close()
    session.producer(f"topic:{name}").send("kept too")
    with pytest.raises(IllegalStateError, match="'audit' exists as a shared durable subscription"):
        session.durable_consumer(f"topic:{name}", "audit")
    assert bodies(take(session.shared_durable_consumer(f"topic:{name}", "audit"), 1)) == ["kept too"]


def test_a_durable_and_a_shared_subscription_of_one_name_are_two(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(client_id="c"), broker.name()
    session = connection.session()
    session.durable_consumer(f"topic:{name}", "audit").close()
    shared = session.shared_consumer(f"topic:{name}", "audit")
    session.producer(f"topic:{name}").send("for both")
    assert bodies(take(shared, 1)) == ["for both"]
    shared.close()
    assert bodies(take(session.durable_consumer(f"topic:{name}", "audit"), 1)) == ["for both"]


# ---- administration (A-40 … A-42) ------------------------------------------------------------------------------------


def test_administrators_list_purge_and_destroy_subscriptions(broker: LoopbackBroker) -> None:
    """A-40, A-41, A-42"""
    connection, name = broker.connect(client_id="c"), broker.name()
    session, admin = connection.session(), connection.admin()
    subscriber = session.durable_consumer(f"topic:{name}", "audit", "n > 0")
    session.shared_durable_consumer(f"topic:{name}", "pool").close()
    session.producer(f"topic:{name}").send("x", properties={"n": 1})
    assert (
        rows(connection)
        == rows(connection, name)
        == [("c", "audit", True, False, True, 1), ("c", "pool", True, True, False, 1)]
    )
    assert [r["selector"] for r in admin.list_subscriptions(name)] == ["n > 0", None]
    admin.purge_subscription("pool", "c")
    assert [row[-1] for row in rows(connection, name)] == [1, 0]
    with pytest.raises(IllegalStateError, match="in use"):
        admin.destroy_subscription("audit", "c")
    subscriber.close()
    admin.destroy_subscription("audit", "c", name)
    assert [row[1] for row in rows(connection, name)] == ["pool"]
    for verb in (admin.destroy_subscription, admin.purge_subscription):
        with pytest.raises(InvalidDestinationError, match="'audit' of client 'c'"):
            verb("audit", "c")


# ---- restarts (B-08, D-27) -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["open", "crash"])
def test_a_durable_subscription_with_its_messages_survives_a_restart(store: OneStore, way: str) -> None:
    """D-27, B-08"""
    connection = store.open().connect(client_id="c")
    session = connection.session(ack="client")
    topic = session.topic("prices")
    first = session.durable_consumer(topic, "audit", "n < 90", no_local=False)
    session.shared_durable_consumer(topic, "pool").close()
    session.consumer(topic)
    producer = session.producer(topic)
    for n in range(10):
        producer.send(n, properties={"n": n})
    producer.send("unwanted", properties={"n": 90})
    producer.send("volatile", properties={"n": 1}, persistent=False)
    take(first, 4)[1].acknowledge_up_to()
    again = getattr(store, way)().connect(client_id="c")
    assert [row[:4] for row in rows(again)] == [("c", "audit", True, False), ("c", "pool", True, True)]
    session = again.session()
    found = take(session.durable_consumer(topic, "audit", "n < 90"), 8)
    assert bodies(found) == list(range(2, 10))
    assert [m.redelivered for m in found][:2] == [True, True]
    assert bodies(take(session.shared_durable_consumer(topic, "pool"), 11)) == [*range(10), "unwanted"]
    until(lambda: state_of(again, "prices", "topic")["messages"] <= 1)


def test_an_unsubscribed_subscription_does_not_come_back(store: OneStore) -> None:
    """D-27"""
    connection = store.open().connect(client_id="c")
    session = connection.session()
    session.durable_consumer("topic:prices", "audit").close()
    session.durable_consumer("topic:prices", "other").close()
    session.producer("topic:prices").send("x")
    session.unsubscribe("audit")
    again = store.crash().connect(client_id="c")
    assert rows(again) == [("c", "other", True, False, False, 1)]
    again.session().unsubscribe("other")
    assert rows(store.open().connect()) == []
