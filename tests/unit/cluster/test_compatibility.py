"""What has to be equal on two brokers (K-18)."""

from __future__ import annotations

from raybroker.cluster.compatibility import CLUSTER, EQUAL, PROTOCOL_VERSION, VERSION, differences, properties, refusal

CONFIG: dict[str, object] = {
    "imq.autocreate.queue": True,
    "imq.autocreate.topic": True,
    "imq.autocreate.queue.maxNumActiveConsumers": -1,
    "imq.autocreate.queue.maxNumBackupConsumers": 0,
    "imq.message.max_size": 7,
}


def test_the_properties_of_the_row_and_the_version_are_shown_and_no_others() -> None:
    assert properties(CONFIG) == {VERSION: PROTOCOL_VERSION, **{name: CONFIG[name] for name in EQUAL}}


def test_equal_brokers_match_and_each_property_that_differs_is_named() -> None:
    mine = properties(CONFIG)
    assert differences(mine, dict(mine)) == []
    for name in EQUAL:
        theirs = {**mine, name: "other"}
        assert [found.property for found in differences(mine, theirs)] == [name]
        del theirs[name]
        assert [found.property for found in differences(mine, theirs)] == [name]


def test_true_is_not_one() -> None:
    assert differences({"imq.autocreate.queue": True}, {"imq.autocreate.queue": 1}) != []


def test_versions_are_equal_without_a_master_and_not_lower_than_the_masters_with_one() -> None:
    old, new = {VERSION: 1}, {VERSION: 2}
    assert differences(old, new) != []
    assert differences(old, new, me_master=True) == []
    assert differences(new, old, they_master=True) == []
    assert differences(new, old, me_master=True) != []
    assert differences(old, new, they_master=True) != []


def test_a_cluster_id_that_is_not_known_yet_matches_any() -> None:
    assert differences({CLUSTER: ""}, {CLUSTER: "x"}) == []
    assert [found.property for found in differences({CLUSTER: "y"}, {CLUSTER: "x"})] == [CLUSTER]


def test_the_refusal_names_both_brokers_both_values_and_what_to_do() -> None:
    found = differences({"imq.autocreate.queue": True}, {"imq.autocreate.queue": False})
    assert refusal("b1", "b2", found) == (
        "brokers b1 and b2 cannot work together: imq.autocreate.queue is True on b1 and False on b2;"
        " set them equal on all brokers"
    )
