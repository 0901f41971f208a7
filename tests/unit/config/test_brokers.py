"""Which brokers a configuration asks for (K-10, K-16, K-17)."""

from __future__ import annotations

import pytest

from raybroker.config import Config
from raybroker.config.brokers import LIST, MASTER, NO_MASTER, TABLE, plan_of
from raybroker.errors import ConfigError


def test_without_a_list_brokers_are_numbered_and_the_first_is_the_master() -> None:
    plan = plan_of(Config.from_values(), 3)
    assert (plan.names, plan.master) == (("b1", "b2", "b3"), "b1")
    assert plan_of(Config.from_values()).names == ("b1",)


def test_a_list_names_brokers_and_the_nodes_that_they_run_on() -> None:
    plan = plan_of(Config.from_values({LIST: " east , west@10.0.0.2,b3@node-c", MASTER: "west"}))
    assert plan.brokers == {"east": "", "west": "10.0.0.2", "b3": "node-c"}
    assert plan.master == "west"


def test_without_a_master_the_record_may_be_in_a_table() -> None:  # K-20
    plan = plan_of(Config.from_values({NO_MASTER: True, TABLE: " sqlite:////x/y.db "}))
    assert (plan.master, plan.table) == (None, "sqlite:////x/y.db")
    assert plan_of(Config.from_values({NO_MASTER: True})).table == ""


def test_without_a_master_there_is_none() -> None:
    assert plan_of(Config.from_values({LIST: "a,b", NO_MASTER: True})).master is None


@pytest.mark.parametrize(
    ("values", "count", "said"),
    [
        ({LIST: "a,b"}, 3, "3 brokers are asked for"),
        ({LIST: "a,b,a"}, None, "names broker 'a' twice"),
        ({LIST: "a,-b"}, None, LIST),
        ({LIST: "a,b", MASTER: "c"}, None, "none of the brokers a, b"),
        ({LIST: "a,b", MASTER: "a", NO_MASTER: True}, None, "contradict each other"),
        ({"raybroker.cluster.brokers_max": 2}, 3, "brokers_max"),
        ({TABLE: "sqlite:////x/y.db"}, 3, "nomasterbroker is false"),
        ({TABLE: "sqlite:////x/y.db", NO_MASTER: True, MASTER: "b1"}, 3, "contradict each other"),
    ],
)
def test_what_contradicts_itself_is_refused(values: dict[str, object], count: int | None, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        plan_of(Config.from_values(values), count)
