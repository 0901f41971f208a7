"""The audit: what each check finds, what it leaves alone, and what is said of that."""

from __future__ import annotations

from typing import Any

import pytest

import raybroker as rb
from raybroker.admin.audit import CHECKS, HOUR_MS, AuditLook, findings, grade_of, look
from raybroker.admin.checks import Grade
from raybroker.errors import ConnectionLostError
from raybroker.system.clock import SystemClock

NOW_MS = 10 * HOUR_MS


def destination(name: str = "orders", type: str = "queue", **more: Any) -> dict[str, Any]:
    attributes = {
        "maxNumMsgs": 1000,
        "maxTotalMsgBytes": -1,
        "limitBehavior": "REJECT_NEWEST",
        "useDMQ": True,
        "redeliveryLimit": 20,
        **{key: more.pop(key) for key in list(more) if key[0].isupper() or key in ATTRIBUTES},
    }
    return {"name": name, "type": type, "state": "RUNNING", "attributes": attributes, **more}


ATTRIBUTES = ("maxNumMsgs", "maxTotalMsgBytes", "limitBehavior", "useDMQ", "redeliveryLimit", "quota")


def dmq(messages: int, consumers: int) -> dict[str, Any]:
    return destination("mq.sys.dmq", messages=messages, active_consumers=consumers, redeliveryLimit=-1)


def consumer(unacknowledged: int, **more: Any) -> dict[str, Any]:
    return {"destination": "orders", "type": "queue", "active": True, "unacknowledged": unacknowledged, **more}


def durable(**more: Any) -> dict[str, Any]:
    return {"topic": "news", "client_id": "c", "name": "d", "durable": True, "active": False, "messages": 3, **more}


def prepared(age_h: int, state: str = "PREPARED") -> dict[str, Any]:
    return {"id": 7, "state": state, "created_ms": NOW_MS - age_h * HOUR_MS}


def quota(messages: int) -> dict[str, Any]:
    return {"name": "few", "attributes": {"MessagesMaximum": 100, "BytesMaximum": -1}, "messages": messages, "bytes": 5}


def service(protocol: str, kind: str = "NORMAL", port: int = 1) -> dict[str, Any]:
    return {"service": "jms", "kind": kind, "protocol": protocol, "port": port}


def graded(check: str, grade: str) -> dict[str, Any]:
    return {"check": check, "of": "b1", "grade": grade, "text": f"{check} is {grade}"}


def user(default: bool | None, **more: Any) -> dict[str, Any]:
    return {"user": "ann", "group": "user", "active": True, "default": default, "broker": "b1", **more}


def clock(broker: str, ahead_ms: int) -> dict[str, Any]:
    return {**graded("clock", "ok"), "broker": broker, "now_ms": NOW_MS + ahead_ms}


def of_host(**more: Any) -> dict[str, Any]:
    return {"broker": "b1", "hosts": [{"host": "b1/h1", "failure": None, "memory_level": "GREEN", **more}]}


LOOKS: list[tuple[int, str, str, list[dict[str, Any]], list[dict[str, Any]]]] = [
    (1, "warning", "list_destinations", [destination(maxNumMsgs=-1)], [destination(maxNumMsgs=-1, quota="few")]),
    (
        1,
        "warning",
        "list_destinations",
        [destination(maxNumMsgs=-1)],
        [destination(maxNumMsgs=-1, effective={"maxNumMsgs": 5})],
    ),
    (
        2,
        "warning",
        "list_destinations",
        [destination(limitBehavior="REMOVE_OLDEST", useDMQ=False)],
        [destination(limitBehavior="REMOVE_OLDEST"), destination(useDMQ=False)],
    ),
    (3, "warning", "list_destinations", [destination(redeliveryLimit=-1)], [destination(), dmq(0, 0)]),
    (
        4,
        "note",
        "list_destinations",
        [destination(messages=2, active_consumers=0)],
        [destination(messages=2, active_consumers=1), destination("t", "topic", messages=2)],
    ),
    (5, "note", "list_destinations", [destination(state="PAUSED")], [destination()]),
    (
        6,
        "note",
        "list_destinations",
        [destination(auto_created=True)],
        [destination(auto_created=True, temporary=True)],
    ),
    (7, "warning", "list_consumers", [consumer(100), consumer(0)], [consumer(99), consumer(0)]),
    (7, "warning", "list_consumers", [consumer(500), consumer(0)], [consumer(500), consumer(1)]),
    (7, "warning", "list_consumers", [consumer(500), consumer(0)], [consumer(500), consumer(0, active=False)]),
    (8, "warning", "list_destinations", [dmq(3, 0)], [dmq(0, 0), dmq(3, 1)]),
    (8, "critical", "list_destinations", [dmq(900, 1)], [dmq(899, 1)]),
    (9, "warning", "list_subscriptions", [durable()], [durable(active=True), durable(messages=0)]),
    (10, "critical", "list_transactions", [prepared(1)], [prepared(0), prepared(5, "STARTED")]),
    (11, "warning", "list_quotas", [quota(90)], [quota(89)]),
    (
        12,
        "note",
        "list_services",
        [service("tcp")],
        [service("tls"), service("tcp", "PORTMAPPER"), service("tcp", port=0)],
    ),
    (13, "warning", "check_services", [graded("certificate", "warning")], [graded("certificate", "ok")]),
    (14, "critical", "check_services", [graded("listener", "critical")], [graded("certificate", "critical")]),
    (16, "critical", "check_broker", [graded("memory", "critical")], [graded("memory", "ok")]),
    (17, "note", "query_broker", [of_host(disk_free_bytes=90, disk_total_bytes=100)], [of_host()]),
    (18, "warning", "check_cluster", [graded("members", "warning")], [graded("members", "ok")]),
    (20, "warning", "list_users", [user(True)], [user(False), user(True, active=False), {"user": "ann"}]),
    (20, "critical", "list_users", [user(True, group="admin")] * 2, [user(False, group="admin")]),
    (20, "note", "list_users", [user(None)], [user(False)]),
    (21, "warning", "check_broker", [clock("b1", 0), clock("b2", 1000)], [clock("b1", 5)]),
    (21, "critical", "check_broker", [clock("b1", 0), clock("b2", 40_000), clock("b3", 7)], [graded("broker", "ok")]),
]


@pytest.mark.parametrize(("number", "grade", "verb", "bad", "good"), LOOKS)
def test_a_check_finds_what_is_wrong_and_nothing_else(
    number: int, grade: str, verb: str, bad: list[dict[str, Any]], good: list[dict[str, Any]]
) -> None:
    found = [row for row in findings(AuditLook({verb: bad}, NOW_MS)) if row["number"] == number]
    assert [row["grade"] for row in found] == [grade]
    assert found[0]["do"]
    for row in good:
        rows = good if verb == "list_consumers" else [row]
        assert [row for row in findings(AuditLook({verb: rows}, NOW_MS)) if row["number"] == number] == []


def test_every_check_has_a_case_and_a_number_of_its_own() -> None:
    assert [check.number for check in CHECKS] == list(range(1, len(CHECKS) + 1))
    assert {number for number, *_ in LOOKS} == {check.number for check in CHECKS} - {15, 19, 22, 23}


def three_nodes(*queues: dict[str, Any], nodes: int = 3, **of_one: Any) -> AuditLook:
    """A look at brokers with files on so many nodes."""
    brokers = [{"broker": f"b{n}", "state": "UP", "node": f"n{n}"} for n in range(nodes)]
    hosts = [of_host(**{"disk_free_bytes": 90, "disk_total_bytes": 100, **of_one})]
    return AuditLook({"list_destinations": list(queues), "list_brokers": brokers, "query_broker": hosts}, NOW_MS)


def copied(name: str, replicas: int, **more: Any) -> dict[str, Any]:
    found = destination(name, **more)
    return {**found, "attributes": {**found["attributes"], "replicas": replicas, "isLocalOnly": False}}


def test_queues_that_could_have_copies_are_named_where_there_are_nodes_for_them() -> None:
    queues = (
        copied("one", 1),
        copied("three", 3),
        copied("made", 1, auto_created=True),
        copied("news", 1, type="topic"),
    )
    (row,) = findings(three_nodes(*queues), {23})
    assert (row["grade"], row["of"]) == ("note", "1 queue")
    assert "one)" in row["text"]
    for less in (three_nodes(*queues, nodes=2), three_nodes(*queues, disk_total_bytes=0), three_nodes(queues[1])):
        assert findings(less, {23}) == []


def test_a_disk_that_fills_between_two_looks_is_told_with_the_days_that_are_left() -> None:
    before = of_host(disk_free_bytes=86_400_000, disk_total_bytes=100_000_000)
    after = of_host(disk_free_bytes=86_399_000, disk_total_bytes=100_000_000)
    seen = AuditLook({"query_broker": [before]}, NOW_MS).followed(after, 10.0)
    (row,) = [row for row in findings(seen) if row["number"] == 15]
    assert (row["grade"], "full in 10.0 days" in row["text"]) == ("warning", True)
    assert [row for row in findings(seen.followed(before, 10.0)) if row["number"] == 15] == []


def test_clocks_are_apart_only_where_that_is_sure() -> None:
    """Brokers read them at some time between the request and the answer."""

    def found(clock_ms: tuple[int, int], *clocks: dict[str, Any]) -> list[tuple[str, str]]:
        rows = findings(AuditLook({"check_broker": list(clocks)}, NOW_MS, clock_ms=clock_ms), {21})
        return [(row["of"], row["text"]) for row in rows]

    assert found((NOW_MS, NOW_MS + 3000), clock("b1", 0), clock("b2", 3900)) == []
    assert found((NOW_MS, NOW_MS + 3000), clock("b1", -500), clock("b2", 3600)) == [
        ("brokers b1 and b2", "their clocks are at least 1.1 s apart")
    ]
    apart = "its clock and that of this machine are at least 9.0 s apart"
    assert (
        found((NOW_MS, NOW_MS), clock("b1", -9000))
        == found((NOW_MS, NOW_MS), clock("b1", 9000))
        == [("broker b1", apart)]
    )


def test_limits_of_many_destinations_without_a_policy_are_noted() -> None:
    def found(policies: list[dict[str, Any]], count: int) -> list[str]:
        rows = {"list_destinations": [destination(f"q{n}") for n in range(count)], "list_policies": policies}
        return [row["of"] for row in findings(AuditLook(rows, NOW_MS), {22})]

    assert found([], 3) == found([{"attributes": {"useDMQ": True}}], 3) == ["3 destinations"]
    assert (
        found([], 2)
        == found([{"attributes": {"maxNumMsgs": 5}}], 3)
        == found([{"attributes": {"quota": "q"}}], 3)
        == []
    )
    assert findings(AuditLook({"list_destinations": [destination(f"q{n}") for n in range(5)]}, NOW_MS), {22}) == []


def test_users_are_asked_for_only_where_passwords_are_guessed_and_no_verifier_is_kept() -> None:
    asked: list[str] = []

    class Admin:
        def __getattr__(self, verb: str) -> Any:
            def ask(**given: Any) -> list[dict[str, Any]]:
                asked.append(verb)
                return [{**user(None), "verifier": "SCRAM-…"}] if verb == "list_users" and given["verifiers"] else []

            return ask

    look(Admin(), lambda: NOW_MS)
    assert "list_users" not in asked
    seen = look(Admin(), lambda: NOW_MS, lambda rows: [{"user": rows[0]["user"], "default": True}])
    assert seen.rows_of("list_users") == [{"user": "ann", "default": True}]


def test_names_are_quoted_in_what_to_do() -> None:
    rows = findings(AuditLook({"list_destinations": [destination("a'; rm -rf /", redeliveryLimit=-1)]}, NOW_MS))
    assert """-n 'a'"'"'; rm -rf /' """ in rows[0]["do"]


def test_what_is_not_answered_is_a_finding() -> None:
    class Admin:
        def __getattr__(self, verb: str) -> Any:
            def ask() -> list[dict[str, Any]]:
                if verb == "list_destinations":
                    raise ConnectionLostError("gone")
                return []

            return ask

    rows = findings(look(Admin(), lambda: NOW_MS))
    assert [(row["number"], row["grade"]) for row in rows] == [(19, "unknown")]
    assert grade_of(rows) == Grade.UNKNOWN


def numbers(admin: Any) -> dict[str, list[int]]:
    """What was found at each thing → the numbers."""
    found: dict[str, list[int]] = {}
    for row in findings(look(admin, SystemClock().now_ms)):
        found.setdefault(row["of"], []).append(row["number"])
    return found


def test_the_values_of_policies_count() -> None:
    with rb.loopback() as connection:
        admin = connection.admin()
        for name in ("orders.eu", "other"):
            admin.create_destination("queue", name, maxNumMsgs=-1, maxTotalMsgBytes=-1)
        assert numbers(admin) == {"queue orders.eu": [1], "queue other": [1]}
        admin.create_policy("limit", "orders>", operator=True, maxNumMsgs=5)
        assert numbers(admin) == {"queue other": [1]}


def test_a_quota_is_seen_as_it_is_used() -> None:
    with rb.loopback() as connection:
        admin = connection.admin()
        admin.create_quota("few", MessagesMaximum=10)
        admin.create_destination("queue", "orders", quota="few")
        producer = connection.session().producer("orders")
        producer.send_many(range(8))
        assert "quota few" not in numbers(admin)
        producer.send(9)
        assert numbers(admin)["quota few"] == [11]


def test_a_new_broker_has_nothing_but_notes() -> None:
    with rb.loopback() as connection:
        rows = findings(look(connection.admin(), SystemClock().now_ms))
        assert [row for row in rows if row["grade"] != "note"] == []
        assert grade_of(rows) == Grade.OK
