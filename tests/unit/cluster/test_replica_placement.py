"""Which brokers keep copies of another one's logs: each on another node, or an error that says what is missing."""

from __future__ import annotations

import pytest

from raybroker.cluster.replicas.replica_placement import joined, peers_of, surplus
from raybroker.errors import ConfigError

NODES = {"b1": "n1", "b2": "n2", "b3": "n3", "b4": "n1"}


def test_the_next_brokers_by_name_keep_them_after_the_last_the_first() -> None:
    assert peers_of("b1", 3, NODES) == ("b2", "b3")
    assert peers_of("b3", 3, NODES) == ("b4", "b2"), "b1 is on the node of b4"
    assert peers_of("b1", 1, NODES) == ()


def test_brokers_that_are_named_are_taken_in_their_order() -> None:
    assert peers_of("b1", 3, NODES, ["b3", "b2", "b4"]) == ("b3", "b2")


@pytest.mark.parametrize(
    ("owner", "replicas", "wanted", "why"),
    [
        ("b1", 5, (), "5 copies .* need 5 nodes with a broker each, and there are 3 that can be used"),
        ("b1", 3, ("b4", "b2"), "brokers b1 and b4 are both on node n1"),
        ("b1", 3, ("b1", "b2"), "one copy of its own logs itself"),
        ("b1", 3, ("b9",), "'b9', .* is not known to run anywhere; known: b1, b2, b3, b4"),
        ("b1", 3, ("b2",), "of b2 2 that can be used"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(
    owner: str, replicas: int, wanted: tuple[str, ...], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        peers_of(owner, replicas, NODES, wanted)


def test_two_copies_on_one_node_are_for_tests() -> None:
    nodes = dict.fromkeys(("b1", "b2", "b3"), "n1")
    with pytest.raises(ConfigError, match="3 nodes"):
        peers_of("b1", 3, nodes)
    assert peers_of("b1", 3, nodes, one_node=True) == ("b2", "b3")


def test_more_copies_are_on_nodes_that_have_none() -> None:
    nodes = {**NODES, "b5": "n5", "b6": "n6"}
    assert joined(["b1", "b2", "b3"], 5, nodes) == ("b5", "b6"), "b4 is on the node of b1"
    assert joined(["b2", "b3"], 3, nodes) == ("b1",)
    assert joined(["b2", "b3"], 3, nodes, "b6") == ("b6",)
    assert joined(["b1"], 1, nodes) == ()


@pytest.mark.parametrize(
    ("keeping", "count", "wanted", "why"),
    [
        ("b1 b2 b3", 5, "", "5 copies need 5 nodes with a broker each, and there are 3 that can be used"),
        ("b1 b2", 3, "b4", "brokers b1 and b4 are both on node n1"),
        ("b1 b2", 3, "b2", "broker b2 keeps a copy already"),
        ("b1 b2", 3, "b9", "'b9', which is to keep a copy, is not up; those that are: b1, b2, b3, b4"),
        ("b1 b7", 3, "", "brokers b7, which keep copies, cannot be asked"),
    ],
)
def test_a_copy_that_has_no_place_is_refused(keeping: str, count: int, wanted: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        joined(keeping.split(), count, NODES, wanted)


def test_of_too_many_copies_those_go_that_are_lost_and_never_the_leaders() -> None:
    five = ["b1", "b2", "b3", "b4", "b5"]
    assert surplus(five, 3, "b1", five) == ("b4", "b5")
    assert surplus(five, 3, "b5", five) == ("b3", "b4")
    assert surplus(five, 3, "b1", ["b1", "b3", "b4", "b5"]) == ("b5", "b2")
    assert surplus(five, 1, "b3", five) == ("b1", "b2", "b4", "b5")
    assert surplus(five, 5, "b1", five) == ()
