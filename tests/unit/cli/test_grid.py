"""The verbs × objects grid, from arguments to what is printed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from raybroker.cli import connecting
from raybroker.cli.grid_words import OBJECTS, VERBS
from raybroker.model.settings.settings import lookup, settings_of

PRESENT = {
    "create": {"dst", "dur"},
    "list": {"dst", "con", "bkr", "dur", "txn", "svc", "cxn"},
    "query": {"dst", "con", "bkr", "cls", "txn", "svc", "cxn"},
    "update": {"dst", "bkr", "svc"},
    "destroy": {"dst", "dur", "cxn"},
    "purge": {"dst", "dur"},
    "pause": {"dst", "svc", "bkr"},
    "resume": {"dst", "svc", "bkr"},
    "metrics": {"dst", "svc", "cxn", "bkr"},
    "compact": {"dst"},
}
MISSING = [(verb, name) for verb in VERBS for name in OBJECTS if name not in PRESENT.get(verb, set())]


DMQ = "mq.sys.dmq"


def names(rows: list[dict[str, Any]]) -> list[str]:
    """Names of destinations, without the one that is always there (A-33)."""
    found = [row["name"] for row in rows]
    assert DMQ in found
    return [name for name in found if name != DMQ]


def test_the_line_of_the_seeds_creates_the_queue_with_its_limit(raybroker: Any, broker: Any) -> None:
    out = raybroker.output("create", "dst", "-t", "q", "-n", "JMSQueue", "-o", "consumerFlowLimit=20")
    assert out == "created queue JMSQueue\n"
    assert broker.admin().query_destination("queue", "JMSQueue")["attributes"]["consumerFlowLimit"] == 20


def test_a_type_may_be_written_short_or_long_or_left_out(raybroker: Any, broker: Any) -> None:
    for name, given in (("a", ("-t", "q")), ("b", ("--type", "queue")), ("c", ())):
        raybroker.output("create", "dst", *given, "-n", name)
    assert names(raybroker.json("list", "dst")) == ["a", "b", "c"]


def test_list_shows_one_plain_line_a_destination_when_nobody_looks(raybroker: Any, broker: Any) -> None:
    broker.session().producer("orders").send_many(["x"] * 1234)
    header, dead, line = raybroker.output("list", "dst").splitlines()
    assert dead.split()[:4] == [DMQ, "queue", "RUNNING", "0"]
    assert header.split()[:4] == ["NAME", "TYPE", "STATE", "MESSAGES"]
    assert line.split()[:4] == ["orders", "queue", "RUNNING", "1234"]


def test_an_empty_list_is_empty_output_and_an_empty_array(raybroker: Any, broker: Any) -> None:
    for words, empty in (
        (("dst", "-t", "t"), "no destinations"),
        (("dur",), "no subscriptions"),
        (("txn",), "no transactions"),
        (("tpl",), "no templates"),
        (("con",), "no consumers"),
        (("msg", "-n", DMQ), "no messages"),
    ):
        result = raybroker("list", *words)
        assert (result.exit_code, result.stdout, result.stderr) == (0, "", f"{empty}\n")
        assert raybroker.json("list", *words) == []


def test_list_can_be_narrowed_to_a_type(raybroker: Any, broker: Any) -> None:
    broker.admin().create_destination("queue", "a")
    broker.admin().create_destination("topic", "b")
    assert names(raybroker.json("list", "dst", "-t", "q")) == ["a"]
    assert [row["name"] for row in raybroker.json("list", "dst", "-t", "t")] == ["b"]


def test_temporary_destinations_are_listed_when_asked_for(raybroker: Any, broker: Any) -> None:
    name = broker.session().temporary_queue().name
    assert names(raybroker.json("list", "dst")) == []
    assert names(raybroker.json("list", "dst", "-tmp")) == [name]
    assert raybroker("destroy", "dst", "-f", "-n", name, "-f").exit_code == 1


def test_query_shows_counts_and_attributes(raybroker: Any, broker: Any) -> None:
    broker.admin().create_destination("queue", "a", maxNumMsgs=7)
    assert raybroker.json("query", "dst", "-t", "q", "-n", "a")["attributes"]["maxNumMsgs"] == 7
    lines = [line.split() for line in raybroker.output("query", "dst", "-n", "a").splitlines()]
    assert ["state", "RUNNING"] in lines
    assert ["maxNumMsgs", "7"] in lines


def test_update_changes_attributes(raybroker: Any, broker: Any) -> None:
    broker.admin().create_destination("queue", "a")
    raybroker.output("update", "dst", "-t", "q", "-n", "a", "-o", "maxNumMsgs=9", "-o", "maxBytesPerMsg=1k")
    attributes = broker.admin().query_destination("queue", "a")["attributes"]
    assert (attributes["maxNumMsgs"], attributes["maxBytesPerMsg"]) == (9, 1024)


def test_purge_discards_and_destroy_removes(raybroker: Any, broker: Any) -> None:
    broker.session().producer("a").send("x")
    assert raybroker.output("purge", "dst", "-f", "-t", "q", "-n", "a") == "purged queue a\n"
    assert raybroker.json("query", "dst", "-n", "a")["messages"] == 0
    assert raybroker.output("destroy", "dst", "-f", "-t", "q", "-n", "a", "-f") == "destroyed queue a\n"
    assert names(raybroker.json("list", "dst")) == []


def state(broker: Any, name: str, kind: str = "queue") -> str:
    return str(broker.admin().query_destination(kind, name)["state"])


def test_pause_and_resume_one_destination(raybroker: Any, broker: Any) -> None:
    broker.admin().create_destination("queue", "a")
    out = raybroker.output("pause", "dst", "-t", "q", "-n", "a", "-pst", "consumers")
    assert (out, state(broker, "a")) == ("paused consumers of queue a\n", "CONSUMERS_PAUSED")
    assert raybroker.output("resume", "dst", "-n", "a") == "resumed all of queue a\n"
    assert state(broker, "a") == "RUNNING"
    assert raybroker.output("pause", "dst", "-n", "a") == "paused all of queue a\n"
    assert state(broker, "a") == "PAUSED"


def test_pause_and_resume_all(raybroker: Any, broker: Any) -> None:
    for kind, name in (("queue", "a"), ("topic", "a"), ("topic", "b")):
        broker.admin().create_destination(kind, name)
    assert raybroker.output("pause", "dst", "-pst", "PRODUCERS") == "paused producers of 3 destinations\n"
    assert (state(broker, "a"), state(broker, "b", "topic")) == ("PRODUCERS_PAUSED", "PRODUCERS_PAUSED")
    assert state(broker, DMQ) == "RUNNING"
    assert raybroker.output("resume", "dst", "-t", "t") == "resumed all of 2 topics\n"
    assert (state(broker, "a"), state(broker, "b", "topic")) == ("PRODUCERS_PAUSED", "RUNNING")


def test_a_pause_may_have_an_end(raybroker: Any, broker: Any) -> None:  # B21
    broker.admin().create_destination("queue", "a")
    for until in ("10m", "2999-01-31T12:00"):
        out = raybroker.output("pause", "dst", "-n", "a", "-pst", "CONSUMERS", "--until", until)
        assert out.startswith("paused consumers of queue a until 2")
    assert "2999-01-31 12:00:00" in out
    assert state(broker, "a") == "CONSUMERS_PAUSED"


def test_consumers_are_listed_and_shown(raybroker: Any, broker: Any) -> None:
    session = broker.session()
    _kept = session.consumer("a", prefetch=5)
    rows = raybroker.json("list", "con")
    assert [(row["destination"], row["limit"]) for row in rows] == [("a", 5)]
    header, line = raybroker.output("list", "con", "-d", "a").splitlines()
    assert (header.split()[1], line.split()[1]) == ("DESTINATION", "a")


def test_one_consumer_is_shown_by_its_id(raybroker: Any, broker: Any) -> None:
    _kept = broker.session().consumer("a", prefetch=5)
    number = broker.admin().list_consumers()[0]["id"]
    assert raybroker.json("query", "con", "-n", str(number))["limit"] == 5


def test_a_broker_shows_its_hosts(raybroker: Any, broker: Any) -> None:
    assert raybroker.json("query", "bkr")["hosts"][0]["host"] == "loopback"
    assert "host loopback" in raybroker.output("query", "bkr")


def test_explain_shows_values_origins_and_what_each_property_means(
    raybroker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        connecting.explained("imq.persist.store", "file", "default"),
        connecting.explained("imq.log.level", "INFO", "-Dimq.log.level"),
        connecting.explained("imq.of.another.release", 7, "default"),
    ]
    monkeypatch.setattr(connecting, "explain", lambda cluster, broker: rows)
    told = raybroker.json("query", "bkr", "--explain")
    assert told == [{**dict.fromkeys(told[0]), **row} for row in rows], "what one lacks is null"
    assert [row.get("live") for row in told] == [False, True, None]
    level = told[1]
    assert level["meaning"] == lookup("imq.log.level", "broker").help
    assert level["allowed"].startswith("one of ")
    text = raybroker.output("query", "bkr", "--explain")
    assert "imq.log.level = INFO  (-Dimq.log.level)\n    " in text
    assert "update bkr changes it while brokers run" in " ".join(text.split())
    assert "imq.of.another.release = 7  (default)\n" in text
    assert max(map(len, text.splitlines())) <= 80
    assert all(part in " ".join(text.split()) for part in (level["meaning"], level["allowed"]))


def test_the_help_of_update_bkr_has_what_may_change_and_nothing_else(raybroker: Any) -> None:
    text = " ".join(raybroker.output("update", "bkr", "-h").split())
    for setting in settings_of("broker"):
        assert (f" {setting.name} (default" in text) is (setting.reload == "live"), setting.name


def test_brokers_are_listed(raybroker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"broker": "b1", "cluster": "c", "state": "OPERATING", "address": "1.2.3.4:5", "pid": 12345, "is_master": True},
        {"broker": "b2", "cluster": "c", "state": "DOWN", "address": "1.2.3.4:5", "refusal": "it was stopped"},
    ]
    monkeypatch.setattr(connecting, "brokers", lambda cluster: rows)
    listed = raybroker("list", "bkr", "--json")
    assert json.loads(listed.stdout) == [{**dict.fromkeys(key for row in rows for key in row), **row} for row in rows]
    result = raybroker("list", "bkr")
    assert (listed.exit_code, result.exit_code) == (3, 3), "one of them is down"
    assert result.stderr == "raybroker: broker b2 is DOWN: it was stopped\n"
    first, second = (line.split() for line in result.stdout.splitlines()[1:])
    assert first == ["b1", "c", "OPERATING", "yes", "12345", "1.2.3.4:5"]
    assert second == ["b2", "c", "DOWN", "-", "-", "1.2.3.4:5"]


def test_the_cluster_is_default_unless_named(raybroker: Any, broker: Any) -> None:
    raybroker.output("list", "dst")
    raybroker.output("list", "dst", "--cluster", "eu")
    assert broker.asked == ["default", "eu"]


@pytest.mark.parametrize(("verb", "name"), MISSING)
def test_the_rest_of_the_grid_is_refused_with_a_reason(raybroker: Any, verb: str, name: str) -> None:
    result = raybroker(verb, name, "-n", "x", "--anything")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"raybroker: {verb} {name}: this version cannot {verb} ")


def test_update_bkr_changes_properties_of_a_running_broker(raybroker: Any, broker: Any) -> None:
    options = ("-o", "imq.log.level=WARNING", "-o", "imq.log.file.rolloverbytes=1m")
    out = raybroker.output("update", "bkr", *options)
    assert out == "updated broker loopback: imq.log.level=WARNING, imq.log.file.rolloverbytes=1m\n"
    changed = {"imq.log.level": "WARNING", "imq.log.file.rolloverbytes": 1 << 20}
    assert raybroker.json("query", "bkr")["changed"] == changed
    assert "changed by update bkr" in raybroker.output("query", "bkr")
    raybroker.output("update", "bkr", "-b", "loopback", "-o", "imq.log.level=INFO")
    assert (broker.asked_of, "imq.log.level" in raybroker.json("query", "bkr")["changed"]) == ("loopback", False)


@pytest.mark.parametrize(
    ("options", "status", "why"),
    [
        ((), 2, "nothing to change; give -o property=value"),
        (("-o", "imq.log.level"), 2, "such as -o imq.log.level=WARNING"),
        (("-o", "imq.log.level=LOUD"), 2, "one of ERROR, WARNING, INFO, NONE"),
        (("-o", "imq.persist.store=memory"), 1, "read when a broker starts"),
        (("-b", "b7", "-o", "imq.log.level=INFO"), 3, "b7"),
    ],
)
def test_update_bkr_says_what_it_cannot_do(
    raybroker: Any, broker: Any, options: tuple[str, ...], status: int, why: str
) -> None:
    result = raybroker("update", "bkr", *options)
    assert (result.exit_code, result.stdout) == (status, "")
    assert why in result.stderr


def test_update_bkr_names_who_did_not_hear_of_it(raybroker: Any, broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"changed": {}, "unreached": ["b1/h3"]}
    found = {"brokers": {"b1": row}, "down": ["b2"]}
    monkeypatch.setattr("raybroker.client.admin.admin.Admin.update_broker", lambda *_: found)
    result = raybroker("update", "bkr", "-o", "imq.log.level=INFO")
    assert result.exit_code == 0
    assert [line.split()[1:3] for line in result.stderr.splitlines()] == [["host", "b1/h3"], ["broker", "b2"]]


def test_reset_dst_counts_from_zero(raybroker: Any, broker: Any) -> None:  # W-128
    for name in ("a", "b"):
        broker.session().producer(name).send("x")
    assert raybroker.output("reset", "dst", "-t", "q", "-n", "a") == "counts of queue a are zero\n"
    assert {row["name"]: row["messages_in"] for row in raybroker.json("list", "dst")} == {"a": 0, "b": 1, DMQ: 0}
    assert raybroker.output("reset", "dst") == "counts of 3 destinations are zero\n"
    assert {row["messages_in"] for row in raybroker.json("list", "dst")} == {0}
    result = raybroker("reset", "dst", "-n", "c")
    assert (result.exit_code, result.stdout) == (1, "")


def test_thresholds_are_set_and_shown(raybroker: Any, broker: Any) -> None:  # W-18, W-28
    raybroker.output("create", "dst", "-n", "a", "-o", "messagesHigh=1", "-o", "messagesLow=0")
    broker.session().producer("a").send_many(["x"] * 2)
    row = raybroker.json("query", "dst", "-n", "a")
    assert (row["over_threshold"], row["attributes"]["messagesHigh"]) == (["messages"], 1)
    result = raybroker("update", "dst", "-n", "a", "-o", "messagesLow=1")
    assert (result.exit_code, "needs messagesLow below it" in result.stderr) == (1, True)


def test_a_version_is_published_and_an_older_one_only_with_back(raybroker: Any, broker: Any) -> None:
    raybroker.output("create", "dst", "-t", "q", "-n", "rollouts", "-o", "versionKey=version")
    publish = ("publish", "version", "-t", "q", "-n", "rollouts", "-v")
    assert raybroker.output(*publish, "3") == "published version 3 of queue rollouts\n"
    refused = raybroker(*publish, "2")
    assert (refused.exit_code, "older than 3" in refused.stderr) == (1, True)
    raybroker.output(*publish, "2", "--back")
    row = raybroker.json("query", "dst", "-t", "q", "-n", "rollouts")
    assert (row["version"], row["stale"], row["starved_ms"]) == (2, 0, 0)
    assert "no versions" in raybroker("publish", "version", "-t", "q", "-n", "mq.sys.dmq", "-v", "1").stderr
