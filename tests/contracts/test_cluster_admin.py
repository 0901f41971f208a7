"""Administration over the members on all brokers: one answer from many (K-03, K-04, A rows)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from raybroker.client.session.xa import XA_HEURMIX
from raybroker.errors import ConfigError, DestinationPausedError, IllegalStateError, InvalidDestinationError, XAError
from raybroker.model.errors import BrokerGoneError, ConnectionLostError
from raybroker.model.naming.xid import Xid
from tests.contracts.cluster_rig import ClusterRig
from tests.contracts.handles import take, until

BROKERS = ("b1", "b2", "b3")


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ClusterRig]:
    with ClusterRig(tmp_path) as made:
        yield made


def filled(rig: ClusterRig, kind: str = "queue", each: int = 4) -> str:
    """A destination with so many messages on each broker."""
    name = rig.name()
    rig.connect("b1").admin().create_destination(kind, name)
    for home in BROKERS:
        session = rig.connect(home).session()
        session.producer(name).send_many(f"{home}-{number}" for number in range(each))
    return name


def everything(admin: Any, verb: str, name: str, part: str, **options: Any) -> list[Any]:
    """All pages."""
    found, start = [], None
    while True:
        page = getattr(admin, verb)("queue", name, start=start, **options)
        found += page[part]
        start = page["next"]
        if start is None:
            return found


def test_error_destinations_that_lead_back_are_refused_on_every_broker(rig: ClusterRig) -> None:
    a, b, auto = rig.name(), rig.name(), rig.name()
    first, second = rig.connect("b1").admin(), rig.connect("b2")
    first.create_destination("queue", a, errorDestination=b)
    with pytest.raises(ConfigError, match=f"circle, {b} to {a} to {b}"):
        second.admin().create_destination("queue", b, errorDestination=a)
    first.create_destination("queue", b, errorDestination=auto)
    with pytest.raises(ConfigError, match=f"circle, {b} to {a} to {b}"):
        second.admin().update_destination("queue", b, errorDestination=a)
    second.session().producer(auto).send("x")
    with pytest.raises(ConfigError, match=f"circle, {auto} to {a} to {b} to {auto}"):
        second.admin().update_destination("queue", auto, errorDestination=a)


def test_counts_are_those_of_all_members_and_each_is_shown(rig: ClusterRig) -> None:
    name = filled(rig)
    row = rig.connect("b2").admin().query_destination("queue", name)
    assert (row["messages"], row["messages_in"], row["waiting"]) == (12, 12, 12)
    assert {member["broker"]: member["messages"] for member in row["members"]} == dict.fromkeys(BROKERS, 4)
    listed = [r for r in rig.connect("b3").admin().list_destinations("queue") if r["name"] == name]
    assert [r["messages"] for r in listed] == [12]


def test_a_consumer_is_one_row_however_many_members_it_is_attached_to(rig: ClusterRig) -> None:  # K-04
    name = filled(rig, each=0)
    session = rig.connect("b2").session(ack="client")
    consumer = session.consumer(name, prefetch=5)
    until(lambda: len(rig.connect("b3").admin().list_consumers(name)[0]["members"]) == 3)
    rows = rig.connect("b3").admin().list_consumers(name)
    assert [(row["broker"], sorted(row["members"])) for row in rows] == [("b2", list(BROKERS))]
    session.producer(name).send_many(range(3))
    take(consumer, 3)
    assert rig.connect("b1").admin().list_consumers(name)[0]["unacknowledged"] == 3
    assert rig.connect("b1").admin().query_destination("queue", name)["active_consumers"] == 1


def test_messages_of_all_members_are_browsed_and_exported_page_by_page(rig: ClusterRig) -> None:  # B23
    name = filled(rig)
    admin = rig.connect("b2").admin()
    bodies = [row["body"] for row in everything(admin, "browse_messages", name, "messages", max=3)]
    assert bodies == [f"{home}-{number}" for home in BROKERS for number in range(4)]
    blocks = everything(admin, "export_messages", name, "blocks", max_bytes=100)
    other = rig.name()
    admin.create_destination("queue", other)
    admin.import_messages("queue", other, blocks)
    assert admin.query_destination("queue", other)["messages"] == 12


def test_a_page_of_a_broker_that_has_gone_says_so(rig: ClusterRig) -> None:
    name = filled(rig)
    admin = rig.connect("b1").admin()
    page = admin.browse_messages("queue", name, start=["b2", None], max=10)
    assert page["next"] == ["b3", None]
    rig.kill("b3")
    until(lambda: [r["state"] for r in admin.list_brokers()] == ["UP", "UP", "DOWN"])
    with pytest.raises(BrokerGoneError, match="b3"):
        admin.browse_messages("queue", name, start=page["next"], max=10)
    assert len(everything(admin, "browse_messages", name, "messages")) == 8


def test_pausing_resuming_and_purging_are_for_all_members(rig: ClusterRig) -> None:  # D-26
    name = filled(rig)
    admin = rig.connect("b2").admin()
    assert admin.pause_destination("queue", name, "producers") == 1
    for home in BROKERS:
        with pytest.raises(DestinationPausedError):
            rig.connect(home).session().producer(name).send("no")
    assert admin.resume_destination("queue", name) == 1
    admin.purge_destination("queue", name)
    assert admin.query_destination("queue", name)["messages"] == 0


def test_messages_are_deleted_and_moved_on_all_members(rig: ClusterRig) -> None:  # W-129
    name, target = filled(rig), rig.name()
    admin = rig.connect("b3").admin()
    admin.create_destination("queue", target)
    with pytest.raises(IllegalStateError):
        admin.delete_messages("queue", name)
    admin.pause_destination("queue", name, "consumers")
    ids = [row["id"] for row in everything(admin, "browse_messages", name, "messages")]
    assert admin.delete_messages("queue", name, ids=[ids[0], ids[-1]]) == 2
    assert admin.move_messages("queue", name, target) == 10
    assert admin.query_destination("queue", target)["messages"] == 10
    assert admin.query_destination("queue", name)["messages"] == 0


def test_a_template_and_what_follows_it_change_on_all_brokers(rig: ClusterRig) -> None:  # W-131
    admin = rig.connect("b2").admin()
    admin.create_template("small", maxNumMsgs=5)
    name = rig.name()
    rig.connect("b3").admin().create_destination("queue", name, template="small")
    assert rig.connect("b1").admin().update_template("small", maxNumMsgs=6) == 1
    for home in BROKERS:
        there = rig.brokers[home].local
        rows = rig.io.run(there.admin("query_destination", {"type": "queue", "name": name}))
        assert rows["attributes"]["maxNumMsgs"] == 6
        assert [row["name"] for row in rig.connect(home).admin().list_templates()] == ["small"]
    rig.connect("b1").admin().destroy_template("small")
    assert rig.connect("b3").admin().list_templates() == []


def test_a_local_destination_is_on_one_broker_and_in_no_record(rig: ClusterRig) -> None:  # D-20
    name = rig.name()
    rig.connect("b2").admin().create_destination("queue", name, isLocalOnly=True)
    assert [m["broker"] for m in rig.connect("b1").admin().query_destination("queue", name)["members"]] == ["b2"]
    with pytest.raises(ConfigError, match="isLocalOnly"):
        rig.connect("b2").admin().update_destination("queue", name, isLocalOnly=False)
    rig.connect("b3").admin().destroy_destination("queue", name)
    with pytest.raises(InvalidDestinationError):
        rig.connect("b2").admin().query_destination("queue", name)


def test_what_was_auto_created_becomes_the_administrators(rig: ClusterRig) -> None:  # K-07
    name = rig.name()
    rig.connect("b2").session().producer(name).send("early")
    with pytest.raises(InvalidDestinationError, match="exists already"):
        rig.connect("b2").admin().create_destination("queue", name)
    rig.connect("b1").admin().create_destination("queue", name, maxNumMsgs=9)
    row = rig.connect("b2").admin().query_destination("queue", name)
    assert (row["messages"], row["attributes"]["maxNumMsgs"], row["auto_created"]) == (1, 9, False)
    own = rig.io.run(rig.brokers["b2"].local.admin("query_destination", {"type": "queue", "name": name}))
    assert (own["attributes"]["maxNumMsgs"], own["auto_created"]) == (9, False)


def test_counts_begin_at_zero_on_all_brokers_and_metrics_go_on(rig: ClusterRig) -> None:  # W-128
    name = filled(rig)
    other = filled(rig)
    admin = rig.connect("b2").admin()
    assert admin.query_destination("queue", name)["messages_in"] == 12
    assert admin.reset_destination("queue", name) == 1
    row = admin.query_destination("queue", name)
    assert (row["messages"], row["messages_in"], row["peak_messages"]) == (12, 0, 12)
    assert [member["messages_in"] for member in row["members"]] == [0, 0, 0]
    assert admin.query_destination("queue", other)["messages_in"] == 12
    assert sum(found["types"]["queue"]["messages_in_total"] for found in admin.metrics()) >= 24
    assert admin.reset_destination("q") == 3  # with mq.sys.dmq
    assert admin.query_destination("queue", other)["messages_in"] == 0
    with pytest.raises(InvalidDestinationError):
        admin.reset_destination("queue", "nobody")
    with pytest.raises(ConfigError, match="which type"):
        admin.reset_destination(None, name)


def test_a_destination_is_over_its_threshold_where_one_of_its_members_is(rig: ClusterRig) -> None:  # W-28
    name = filled(rig, each=0)
    admin = rig.connect("b1").admin()
    admin.update_destination("queue", name, messagesHigh=2, messagesLow=1)
    session = rig.connect("b3").session()
    session.producer(name).send_many(b"x" for _ in range(3))
    row = until(lambda: (r := admin.query_destination("queue", name))["messages_threshold_ms"] > 0 and r)
    assert row["over_threshold"] == ["messages"]
    consumer = rig.connect("b3").session(ack="client").consumer(name)
    for message in take(consumer, 3):
        message.acknowledge()
    assert until(lambda: admin.query_destination("queue", name)["over_threshold"] == [])


LISTS: dict[str, dict[str, Any]] = {
    "list_destinations": {},
    "list_consumers": {},
    "list_subscriptions": {},
    "list_transactions": {},
    "list_schedules": {},
}


@pytest.fixture
def silent(rig: ClusterRig, monkeypatch: pytest.MonkeyPatch) -> ClusterRig:
    """The host of b2 does not answer administrators; those of b1 and b3 have a subscription, a consumer and so on."""

    async def gone(*args: Any) -> Any:
        raise ConnectionLostError("the actor is gone or restarting")

    host = rig.brokers["b2"].host
    for method in ("query", "consumers"):
        monkeypatch.setattr(host.destinations, method, gone)
    monkeypatch.setattr(host.subscriptions, "subscription_rows", gone)
    monkeypatch.setattr(host.transactions, "transaction_rows", gone)
    monkeypatch.setattr(host.schedules, "schedule_rows", gone)
    return rig


@pytest.mark.parametrize("verb", LISTS)
def test_a_list_names_the_host_that_is_missing_and_has_the_rest(verb: str, silent: ClusterRig) -> None:
    connection = silent.connect("b1", client_id="billing")
    connection.admin().create_destination("topic", "news")
    session = connection.session(transacted=True)
    producer = session.producer(session.topic("news"))
    _kept = session.durable_consumer(session.topic("news"), "kept")
    producer.send("x")
    rows = getattr(connection.admin(), verb)()
    assert list(rows.missing) == ["b2/h1"]
    assert "restarting" in rows.missing["b2/h1"]
    if verb != "list_schedules":
        until(getattr(connection.admin(), verb))
    if verb == "list_destinations":
        (row,) = [row for row in rows if row["name"] == "news"]
        states = {member["broker"]: member["state"] for member in row["members"]}
        assert states == {"b1": "RUNNING", "b2": "UNKNOWN", "b3": "RUNNING"}
        assert row["state"] == "MIXED", "not all of what it has is counted"


def test_a_list_names_a_broker_that_is_down_and_a_whole_one_names_nothing(rig: ClusterRig) -> None:
    admin = rig.connect("b1").admin()
    assert [getattr(admin, verb)().missing for verb in LISTS] == [{}] * len(LISTS)
    rig.kill("b3")
    until(lambda: admin.list_destinations().missing == {"b3": "it is down"})


def test_a_broker_that_was_stopped_is_told_wherever_its_messages_are_not_counted(rig: ClusterRig) -> None:
    admin, name = rig.connect("b1").admin(), rig.name()
    admin.create_destination("queue", name)
    rig.connect("b3").session().producer(name).send("it waits")
    until(lambda: admin.query_destination("queue", name)["messages"] == 1)
    assert {row["grade"] for row in admin.check_cluster()} == {"ok"}
    rig.stop("b3")
    missing = {"b3": "it was stopped"}
    until(lambda: admin.list_destinations().missing == missing)
    assert [getattr(admin, verb)().missing for verb in LISTS] == [missing] * len(LISTS)
    assert admin.query_destination("queue", name)["missing"] == missing
    assert {row["broker"]: row["reason"] for row in admin.list_brokers() if row["reason"]} == missing
    told = [row for row in [*admin.check_cluster(), *admin.check_destination("queue", name)] if row["grade"] != "ok"]
    assert [(row["check"], row["grade"]) for row in told] == [("members", "warning"), ("members", "warning")]
    assert all("b3" in row["text"] and "it was stopped" in row["text"] for row in told)
    assert admin.check_broker().missing == missing
    rig.start("b3")
    until(lambda: admin.query_destination("queue", name).get("missing") is None)
    assert admin.query_destination("queue", name)["messages"] == 1


def test_what_is_not_found_is_unknown_while_a_host_is_silent(silent: ClusterRig) -> None:
    admin = silent.connect("b1", raybroker__reconnect__timeout_ms=500).admin()
    with ThreadPoolExecutor(3) as at_once:
        verbs = "query_consumer", "query_transaction", "query_schedule"
        asked = [at_once.submit(getattr(admin, verb), 77) for verb in verbs]
        for answer in asked:
            with pytest.raises(ConnectionLostError, match="b2/h1"):
                answer.result()


def test_a_subscription_is_not_ended_while_a_host_cannot_say_whether_it_is_used(silent: ClusterRig) -> None:
    connection = silent.connect("b1", client_id="billing", raybroker__reconnect__timeout_ms=500)
    connection.admin().create_destination("topic", "news")
    session = connection.session()
    session.durable_consumer(session.topic("news"), "kept").close()
    with pytest.raises(ConnectionLostError, match="b2/h1"):
        session.unsubscribe("kept")


def test_an_administrators_decision_at_one_broker_of_a_branch_is_told_to_managers_at_all(rig: ClusterRig) -> None:
    """XA_HEURMIX, and forget from a connection that has no part in the branch"""
    client, xid = rig.connect("b1", xa=True), Xid(1, b"global")
    queues = [rig.connect(home).session().temporary_queue().name for home in ("b2", "b3")]  # Each stays there.
    session = client.session()
    session.xa.start(xid)
    for name in queues:
        session.producer(name).send("out")
    session.xa.end(xid)
    session.xa.prepare(xid)
    admin = rig.connect("b1").admin()
    rows = admin.list_transactions()
    assert sorted((row["host"].partition("/")[0], row["state"]) for row in rows) == [
        ("b2", "PREPARED"),
        ("b3", "PREPARED"),
    ]
    admin.rollback_transaction(f"{rows[0]['host']}:{rows[0]['id']}")
    client.close()
    other = rig.connect("b3", xa=True).session()
    for call in (other.xa.commit, other.xa.commit, other.xa.rollback):
        with pytest.raises(XAError) as caught:
            call(xid)
        assert caught.value.code == XA_HEURMIX
    assert other.xa.recover() == [xid]
    rig.connect("b1", xa=True).session().xa.forget(xid)
    assert other.xa.recover() == admin.list_transactions() == []


def test_what_a_broker_had_before_there_was_a_record_is_in_it(tmp_path: Path) -> None:
    with ClusterRig(tmp_path, start=()) as rig:
        rig.templates["b1"] = {"small": {"maxNumMsgs": 7}}
        rig.quotas["b1"] = {"few": {"MessagesMaximum": 100}}
        rig.policies["b1"] = {
            "orders": {
                "pattern": "orders.*",
                "applyTo": "all",
                "priority": 0,
                "operator": False,
                "attributes": {"maxNumMsgs": 9},
            }
        }
        for name in BROKERS:
            rig.start(name)
        rig.wait_until_open()
        admins = [rig.connect(home).admin() for home in BROKERS]
        for verb, name in (("list_templates", "small"), ("list_quotas", "few"), ("list_policies", "orders")):
            until(lambda: all([row["name"] for row in getattr(admin, verb)()] == [name] for admin in admins))  # noqa: B023
