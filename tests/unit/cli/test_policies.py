"""Policies from the command line."""

from __future__ import annotations

from typing import Any


def test_a_policy_is_created_listed_shown_changed_and_destroyed(raybroker: Any, broker: Any) -> None:
    assert raybroker("list", "policy").stderr == "no policies\n"
    told = raybroker.output(
        "create",
        "policy",
        "-n",
        "small",
        "-p",
        "orders>",
        "--apply-to",
        "queue",
        "--priority",
        "5",
        "-o",
        "maxNumMsgs=2",
        "-o",
        "useDMQ=false",
    )
    assert told == "created policy small\n"
    raybroker.output("create", "dst", "-n", "orders.eu", "-o", "maxNumMsgs=9")
    raybroker.output("create", "policy", "-n", "bound", "-p", ">", "--operator", "-o", "maxNumMsgs=3")
    lines = [line.split() for line in raybroker.output("list", "policy").splitlines()[1:]]
    assert lines == [
        ["bound", "operator", ">", "all", "0", "maxNumMsgs=3"],
        ["small", "user", "orders>", "queue", "5", "maxNumMsgs=2", "useDMQ=false"],
    ]
    shown = [line.split() for line in raybroker.output("query", "policy", "-n", "small").splitlines()]
    assert ["destinations", "queue", "orders.eu"] in shown
    told = raybroker.output("update", "policy", "-n", "small", "--unset", "useDMQ", "-p", "*.eu")
    assert told == "updated policy small\n"
    row = raybroker.json("query", "policy", "-n", "small")
    assert (row["pattern"], row["attributes"]) == ("*.eu", {"maxNumMsgs": 2})
    assert raybroker("update", "policy", "-n", "small").exit_code == 2
    assert raybroker.output("destroy", "policy", "-n", "small", "-f") == "destroyed policy small\n"
    assert raybroker("destroy", "policy", "-n", "small", "-f").exit_code == 1


def test_query_dst_shows_what_holds_and_where_it_comes_from(raybroker: Any, broker: Any) -> None:
    raybroker.output("create", "dst", "-n", "orders", "-o", "maxNumProducers=7")
    raybroker.output("create", "policy", "-n", "p", "-p", "orders", "-o", "redeliveryLimit=4")
    raybroker.output("create", "policy", "-n", "o", "-p", ">", "--operator", "-o", "maxBytesPerMsg=1k")
    printed = raybroker.output("query", "dst", "-n", "orders", "--effective")
    lines = [line.split(maxsplit=2) for line in printed.splitlines()]
    assert lines[0] == ["ATTRIBUTE", "VALUE", "ORIGIN"]
    for line in (
        ["maxNumProducers", "7", "destination"],
        ["redeliveryLimit", "4", "policy p"],
        ["maxBytesPerMsg", "1024", "operator policy o"],
        ["maxNumMsgs", "-1", "default"],
    ):
        assert line in lines
    rows = raybroker.json("query", "dst", "-n", "orders", "--effective")
    assert {"attribute": "redeliveryLimit", "value": 4, "origin": "policy p"} in rows
    plain = [line.split() for line in raybroker.output("query", "dst", "-n", "orders").splitlines()]
    assert ["operator_policy", "o"] in plain
    assert ["redeliveryLimit", "20"] in plain


def test_conflicts_are_found(raybroker: Any, broker: Any) -> None:
    for name, pattern in (("b", "orders>"), ("a", "*.eu")):
        raybroker.output("create", "policy", "-n", name, "-p", pattern, "-o", "maxNumMsgs=2")
    lines = raybroker.output("list", "policy", "--conflicts").splitlines()[1:]
    assert [line.split() for line in lines] == [["a", "b", "user", "0", "orders.eu", "a"]]
    raybroker.output("update", "policy", "-n", "a", "--priority", "1")
    assert raybroker("list", "policy", "--conflicts").stderr == "no conflicts\n"


def test_a_policy_that_cannot_be_says_why(raybroker: Any, broker: Any) -> None:
    result = raybroker("create", "policy", "-n", "p", "-p", "a*", "-o", "maxNumMsgs=2")
    assert (result.exit_code, "'*' and '**' are whole segments" in result.stderr) == (1, True)
    result = raybroker("create", "policy", "-n", "p", "-p", ">", "-o", "hosting=shared")
    assert (result.exit_code, "hosting cannot change" in result.stderr) == (1, True)


def test_a_quota_and_units_of_order_by_policy_are_shown_with_their_origin(raybroker: Any, broker: Any) -> None:
    options = ("-o", "quota=small", "-o", "unitOfOrder=true", "-o", "loadBalancingPolicy=Random")
    missing = raybroker("create", "policy", "-n", "p", "-p", "orders>", *options)
    assert (missing.exit_code, "there is no quota 'small'" in missing.stderr) == (1, True)
    raybroker.output("create", "quota", "-n", "small", "-o", "MessagesMaximum=5")
    raybroker.output("create", "policy", "-n", "p", "-p", "orders>", *options)
    raybroker.output("create", "dst", "-n", "orders.eu")
    printed = raybroker.output("query", "dst", "-n", "orders.eu", "--effective")
    lines = [line.split(maxsplit=2) for line in printed.splitlines()]
    for line in (["quota", "small", "policy p"], ["loadBalancingPolicy", "Random", "policy p"]):
        assert line in lines
    assert raybroker.json("query", "quota", "-n", "small")["users"] == ["policy p", "queue orders.eu"]
    used = raybroker("destroy", "quota", "-n", "small", "-f")
    assert (used.exit_code, "in use by policy p" in used.stderr) == (1, True)
