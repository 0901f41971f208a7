"""The contract of the handles over a broker in Ray: the basics, some of each area, and what only several hosts show."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import pytest

import raybroker as rb
from raybroker.client.session import transaction
from raybroker.client.session.transaction import SessionTransactions
from raybroker.errors import BrokerError, ConnectionLostError, IllegalStateError, NoClusterError
from tests.contracts import (
    test_browsers,
    test_connections,
    test_hints,
    test_message_admin,
    test_messages,
    test_order,
    test_pipeline,
    test_redelivery,
    test_selectors,
    test_subscriptions,
    test_temporary,
    test_topics,
    test_transactions,
    test_xa,
    test_xml,
)
from tests.contracts.handle_basics import Basics, held
from tests.contracts.handles import bodies, create, dead, nothing, state_of, take, until

_numbers = itertools.count(1)
RECOVERY_S = 60.0


class RayBroker:
    """The module's cluster as the contract wants it."""

    def __init__(self) -> None:
        self.made: list[Any] = []

    def name(self) -> str:
        return f"queue{next(_numbers)}"

    def connect(
        self, *, started: bool = True, client_id: str | None = None, xa: bool = False, **attributes: object
    ) -> Any:
        connection = (rb.connect_xa if xa else rb.connect)(client_id=client_id, **attributes)
        self.made.append(connection)
        if started:
            connection.start()
        return connection


@pytest.fixture
def broker(cluster: Any) -> Iterator[RayBroker]:
    found = RayBroker()
    yield found
    for connection in found.made:
        connection.close()


class TestOverRay(Basics):
    """Every test of the basics."""


class TestChosen:
    """Some tests of every area, the same as over the loopback."""


CHOSEN: tuple[Callable[..., None], ...] = (
    test_topics.test_every_subscriber_gets_a_copy_of_every_message_in_order,
    test_topics.test_a_subscriber_of_a_pattern_joins_topics_that_appear_later,
    test_topics.test_a_publisher_to_a_pattern_sends_a_copy_to_every_match,
    test_topics.test_a_subscriber_with_no_local_gets_what_other_connections_publish,
    test_subscriptions.test_a_durable_subscription_keeps_what_comes_while_nobody_listens,
    test_subscriptions.test_the_same_name_on_another_topic_ends_it_on_the_first,
    test_subscriptions.test_unsubscribing_ends_a_durable_subscription_and_what_waits_in_it,
    test_subscriptions.test_each_message_of_a_shared_subscription_goes_to_one_member,
    test_selectors.test_no_message_is_lost_between_selecting_and_plain_consumers,
    test_selectors.test_a_bad_selector_is_refused_with_the_place_in_it,
    test_order.test_a_higher_priority_comes_first_and_within_one_the_older,
    test_order.test_delayed_messages_come_in_the_order_of_their_times,
    test_redelivery.test_a_failed_message_comes_again_after_the_delay_it_was_given,
    test_redelivery.test_a_message_that_is_not_acknowledged_in_time_goes_to_another_consumer,
    test_browsers.test_a_browser_shows_what_waits_and_takes_nothing,
    test_messages.test_a_body_is_compressed_when_asked_and_comes_back_whole,
    test_temporary.test_anyone_may_send_to_a_temporary_destination_and_its_connection_receives,
    test_temporary.test_only_the_connection_that_made_it_may_consume_from_it,
    test_temporary.test_a_request_is_answered_through_a_temporary_queue,
    test_transactions.test_what_is_sent_is_seen_by_nobody_before_the_commit,
    test_transactions.test_a_commit_after_a_lost_connection_says_that_it_was_rolled_back,
    test_transactions.test_listener_calls_are_committed_in_batches_and_a_batch_never_waits,
    test_pipeline.test_the_host_is_asked_what_became_of_an_interrupted_commit,
    test_xa.test_a_branch_is_committed_in_one_phase_or_in_two,
    test_xa.test_a_prepared_branch_outlives_its_client_and_is_settled_by_another,
    test_message_admin.test_messages_move_with_their_ids_and_headers,
    test_connections.test_whether_a_destination_has_consumers_is_told_at_once_and_when_it_changes,
    test_connections.test_a_destination_may_be_watched_before_it_is_there_and_after_it_is_gone,
    test_hints.test_messages_show_no_id_and_no_timestamp_when_their_producer_says_so,
    test_xml.test_a_text_that_is_not_valid_is_refused_and_not_sent,
)
for _test in CHOSEN:
    setattr(TestChosen, _test.__name__, staticmethod(_test))


def test_a_configured_client_id_holds_for_connections_that_name_none(broker: RayBroker) -> None:
    """R-18: ${u} stands for the user"""
    assert broker.connect(imqConfiguredClientID="billing").client_id == "billing"
    assert broker.connect(imqConfiguredClientID="${u}xyz").client_id == "${u:guest}xyz"
    assert broker.connect(imqConfiguredClientID="billing", client_id="own").client_id == "own"
    assert broker.connect().client_id is None


def test_the_broker_of_an_address_list_that_runs_is_the_home(broker: RayBroker) -> None:
    """R-13"""
    found = broker.connect(imqAddressList="b7, b1", imqReconnectInterval=1)
    assert found._core.directory.home == "b1"
    name = broker.name()
    found.session().producer(name).send("x")
    assert bodies(take(found.session().consumer(name), 1)) == ["x"]
    with pytest.raises(NoClusterError, match="b7,b8"):
        broker.connect(imqAddressList="b7,b8", imqAddressListIterations=2, imqReconnectInterval=1)
    with pytest.raises(NoClusterError, match="b8"):
        rb.connect(broker="b8", imqAddressList="b1")


def test_only_the_configured_client_id_holds_where_programs_may_choose_none(broker: RayBroker) -> None:
    """R-18"""
    fixed = {"imqConfiguredClientID": "billing", "imqDisableSetClientID": True}
    assert broker.connect(**fixed).client_id == "billing"
    with pytest.raises(IllegalStateError, match="imqDisableSetClientID"):
        broker.connect(client_id="own", **fixed)


# ---- several hosts ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hosts(cluster: Any) -> tuple[str, str]:
    """Two queues with a host of their own each."""
    with rb.connect() as connection:
        for name in ("left", "right"):
            create(connection, name, hosting="dedicated")
        assert state_of(connection, "left")["host"] != state_of(connection, "right")["host"]
    return "left", "right"


def kill_host(cluster: Any, connection: Any, name: str, kind: str = "queue") -> None:
    """SIGKILL to the process that serves a destination; returns when another one does."""
    host = state_of(connection, name, kind)["host"].split("/")[1]
    before = cluster.pids()[host]
    os.kill(before, signal.SIGKILL)

    def back() -> bool:
        try:
            state_of(connection, name, kind)
            return bool(cluster.pids().get(host, before) != before)
        except BrokerError:
            return False

    until(back, f"{host} restarts", RECOVERY_S)


def both(broker: RayBroker, hosts: tuple[str, str]) -> list[int]:
    connection = broker.connect()
    return [held(connection, name) for name in hosts]


def emptied(broker: RayBroker, hosts: tuple[str, str]) -> None:
    """Nothing is left in their queues, nor with a client that has just gone."""
    connection = broker.connect()

    def empty(name: str) -> bool:
        connection.admin().purge_destination("queue", name)
        return held(connection, name) == 0

    for name in hosts:
        until(lambda name=name: empty(name))


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_over_two_hosts_is_committed_or_rolled_back_on_both(
    broker: RayBroker, hosts: tuple[str, str], commit: bool
) -> None:
    """T-01, T-02, T-03: two phases"""
    emptied(broker, hosts)
    connection, source = broker.connect(), broker.name()
    connection.session().producer(source).send("in")
    session = connection.session(transacted=True)
    for name in hosts:
        session.producer(name).send("out")
    take(session.consumer(source), 1)
    until(lambda: all(state_of(connection, name)["in_transaction"] == 1 for name in hosts))
    if commit:
        session.commit()
    else:
        session.rollback()
    session.close()
    assert [held(connection, name) for name in (*hosts, source)] == ([1, 1, 0] if commit else [0, 0, 1])
    assert connection.admin().list_transactions() == []


def test_what_a_client_decided_and_told_nobody_else_is_finished_by_the_broker(
    broker: RayBroker, hosts: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """T-10: the coordinator has committed, the other host is prepared, and the client is gone"""
    emptied(broker, hosts)
    client = broker.connect(imqReconnectEnabled=False)
    session = client.session(transacted=True)
    for name in hosts:
        session.producer(name).send("out")

    async def die(*arguments: Any) -> int:
        for channel in client._core.channels.all():
            channel.link.abort()
        return 0

    monkeypatch.setattr(transaction, "broadcast", die)
    session.commit()
    monkeypatch.undo()
    connection = broker.connect()
    assert sorted(state_of(connection, name)["in_transaction"] for name in hosts) == [0, 1]
    until(lambda: connection.admin().list_transactions() == [], "the sweep finishes it")
    consumers = [connection.session().consumer(name) for name in hosts]
    assert [bodies(take(consumer, 1)) for consumer in consumers] == [["out"], ["out"]]


@pytest.mark.timeout(150)
def test_a_host_that_is_killed_between_the_phases_learns_the_outcome(
    cluster: Any, broker: RayBroker, hosts: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """T-05, T-10: what was prepared there is committed after its restart"""
    emptied(broker, hosts)
    connection = broker.connect()
    session = connection.session(transacted=True)
    for name in hosts:
        session.producer(name).send("out")
    prepare = SessionTransactions._prepare
    killed: list[str] = []

    async def killing(self: SessionTransactions, *arguments: Any) -> Any:
        found = await prepare(self, *arguments)
        key = found[0].place.key
        os.kill(pids[key.partition("@")[0].split("/")[-1]], signal.SIGKILL)
        killed.append(key)
        return found

    pids = cluster.pids()
    monkeypatch.setattr(SessionTransactions, "_prepare", killing)
    session.commit()
    monkeypatch.undo()
    assert len(killed) == 1

    def there() -> bool:
        try:
            return both(broker, hosts) == [1, 1]
        except BrokerError:
            return False

    until(there, "committed on both", RECOVERY_S)
    until(lambda: connection.admin().list_transactions() == [], "", RECOVERY_S)


def test_a_dead_message_of_a_host_of_its_own_reaches_the_dead_message_queue_of_another(
    broker: RayBroker, hosts: tuple[str, str]
) -> None:
    """D-24, B13"""
    emptied(broker, hosts)
    connection = broker.connect()
    session = connection.session(ack="client")
    session.producer(hosts[0]).send("bad", properties={"mark": 1})
    assert state_of(connection, "mq.sys.dmq")["host"] != state_of(connection, hosts[0])["host"]
    consumer = session.consumer(hosts[0])
    take(consumer, 1)[0].reject("because")
    until(lambda: len(dead(connection, "mark = 1")) == 1)
    (row,) = dead(connection, "mark = 1")
    assert row["properties"]["JMS_SUN_DMQ_UNDELIVERED_COMMENT"] == "because"
    assert row["properties"]["RAYBROKER_ORIGIN"] == f"queue:{hosts[0]}"
    assert held(connection, hosts[0]) == 0
    assert connection.admin().retry_messages(selector="mark = 1") == 1
    assert bodies(take(consumer, 1)) == ["bad"]


def test_messages_move_from_host_to_host(broker: RayBroker, hosts: tuple[str, str]) -> None:
    """W-129"""
    emptied(broker, hosts)
    connection = broker.connect()
    left, right = hosts
    ids = [connection.session().producer(left).send(n) for n in range(5)]
    connection.admin().pause_destination("queue", left, "consumers")
    assert connection.admin().move_messages("queue", left, right) == 5
    connection.admin().resume_destination("queue", left)
    assert [(m.id, m.body) for m in take(connection.session().consumer(right), 5)] == list(
        zip(ids, range(5), strict=True)
    )
    assert held(connection, left) == 0


@pytest.mark.timeout(150)
def test_a_durable_subscription_survives_the_killing_of_its_host(cluster: Any, broker: RayBroker) -> None:
    """D-27, B-08: its consumer comes back by itself"""
    name = broker.name()
    connection = broker.connect(client_id="durable")
    create(connection, name, "topic", hosting="dedicated")
    session = connection.session(ack="client")
    subscriber = session.durable_consumer(f"topic:{name}", "audit", "n >= 0")
    session.durable_consumer(f"topic:{name}", "idle").close()
    producer = broker.connect().session().producer(f"topic:{name}")
    for n in range(-2, 10):
        producer.send(n, properties={"n": n})
    take(subscriber, 3)[1].acknowledge_up_to()
    kill_host(cluster, connection, name, "topic")
    producer.send(10, properties={"n": 10})
    found = take(subscriber, 9)
    assert bodies(found) == list(range(2, 11))
    assert found[0].redelivered
    with pytest.raises(ConnectionLostError, match="come again"):  # It covers what was in hand when the host died too.
        found[-1].acknowledge()
    assert nothing(subscriber, 0.05)
    assert bodies(take(session.durable_consumer(f"topic:{name}", "idle"), 13)) == list(range(-2, 11))


@pytest.mark.timeout(150)
def test_the_killing_of_a_host_is_told_and_so_is_its_return(
    cluster: Any, broker: RayBroker, hosts: tuple[str, str]
) -> None:
    """R-15"""
    connection = broker.connect()
    told: SimpleQueue[Any] = SimpleQueue()
    connection.on_event(told.put)
    session = connection.session()
    emptied(broker, hosts)
    producer, consumer = session.producer(hosts[0]), session.consumer(hosts[0])
    kill_host(cluster, connection, hosts[0])
    lost = told.get(timeout=RECOVERY_S)
    assert (lost.kind, lost.code) == ("closed", "connection_lost")
    while (event := told.get(timeout=RECOVERY_S)).kind == "reconnect_failed":
        assert event.address == lost.address
    assert event.kind == "reconnected"
    assert event.address != lost.address
    assert event.address.split("@")[0] == lost.address.split("@")[0]
    producer.send("after")
    assert bodies(take(consumer, 1)) == ["after"]


@pytest.mark.timeout(150)
def test_a_prepared_branch_survives_the_killing_of_its_host(
    cluster: Any, broker: RayBroker, hosts: tuple[str, str]
) -> None:
    """T-05, T-07"""
    emptied(broker, hosts)
    xid = rb.Xid(7, b"killed")
    session = broker.connect(xa=True).session()
    session.xa.start(xid)
    for name in hosts:
        session.producer(name).send("out")
    session.xa.end(xid)
    session.xa.prepare(xid)
    kill_host(cluster, broker.made[0], hosts[1])
    manager = broker.connect(xa=True).session()
    assert manager.xa.recover() == [xid]
    session.xa.commit(xid)
    assert both(broker, hosts) == [1, 1]
    assert manager.xa.recover() == []


@pytest.mark.timeout(150)
def test_a_schedule_fires_each_occurrence_once_over_the_killing_of_its_host(
    cluster: Any, broker: RayBroker, hosts: tuple[str, str]
) -> None:
    """B17"""
    emptied(broker, hosts)
    connection, (name, _) = broker.connect(), hosts
    admin = connection.admin()
    id_ = connection.session().producer(name).send("tick", schedule="@every 1s", catch_up=True)
    until(lambda: held(connection, name) >= 2, "it has fired", 10)
    kill_host(cluster, connection, name)
    fired = admin.query_schedule(id_)["fired"]
    until(lambda: admin.query_schedule(id_)["fired"] >= fired + 2, "it goes on", 20)
    made_ms = admin.query_schedule(id_)["created_ms"]
    admin.destroy_schedule(id_)
    assert admin.list_schedules(name) == []
    found = take(connection.session().consumer(name), held(connection, name))
    assert [message.properties["JMS_RB_SCHEDULE_SEQUENCE"] for message in found] == list(range(1, len(found) + 1))
    times = [message.properties["JMS_RB_SCHEDULE_TIME"] - made_ms for message in found]
    assert times == [1_000 * number for number in range(1, len(found) + 1)]
