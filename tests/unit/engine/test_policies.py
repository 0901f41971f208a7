"""Policies of a host: what they make of a definition, and what administrators see of it."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.config import Config
from raybroker.engine.checkpoint import Definition
from raybroker.engine.destinations.policies import HostPolicies, own_attributes
from raybroker.errors import ConfigError
from raybroker.model.definitions.policy import policy_of
from raybroker.model.settings.settings import auto_created, dead_message_queue, destination_attributes

CONFIG = Config.from_values({"imq.autocreate.destination.maxNumMsgs": 77})


def fields(**attributes: Any) -> dict[str, Any]:
    return policy_of("p", {"pattern": ">", "attributes": attributes}).fields()


def made(name: str = "q", *, auto: bool = False, **own: Any) -> Definition:
    return Definition(name, auto, auto_created(CONFIG) if auto else destination_attributes(own, CONFIG))


def test_without_a_policy_a_destination_has_its_own_attributes() -> None:
    policies, definition = HostPolicies(CONFIG), made(maxNumMsgs=4)
    assert policies.hold(definition) is definition.attributes is own_attributes(definition)
    row = policies.policy_row(definition)
    assert (row["policy"], row["operator_policy"], row["origins"]) == ("", "", {"maxNumMsgs": "destination"})
    assert row["effective"] == definition.attributes.as_dict("queue")


def test_a_policy_fills_in_what_a_destination_does_not_set_itself() -> None:
    policies = HostPolicies(CONFIG)
    policies.define({"p": fields(maxNumMsgs=3, useDMQ=False), "o": {**fields(maxNumProducers=2), "operator": True}})
    own = made(maxNumMsgs=4)
    held = policies.hold(own)
    assert (held.maxNumMsgs, held.useDMQ, held.maxNumProducers) == (4, False, 2)
    assert own.attributes.maxNumProducers == 100
    row = policies.policy_row(own)
    assert (row["policy"], row["operator_policy"]) == ("p", "o")
    assert row["origins"] == {
        "maxNumMsgs": "destination",
        "useDMQ": "policy p",
        "maxNumProducers": "operator policy o",
    }
    policies.define({})
    assert policies.hold(own) is own.attributes


def test_an_auto_created_destination_sets_nothing_itself() -> None:
    policies, definition = HostPolicies(CONFIG), made(auto=True)
    assert (definition.attributes.maxNumMsgs, policies.policy_row(definition)["origins"]) == (77, {})
    policies.define({"p": fields(maxNumMsgs=3)})
    assert policies.hold(definition).maxNumMsgs == 3


def test_no_policy_holds_for_the_brokers_own_destinations() -> None:
    policies = HostPolicies(CONFIG)
    policies.define({"p": fields(maxNumMsgs=3)})
    dead = Definition("mq.sys.dmq", False, dead_message_queue())
    assert policies.hold(dead) is dead.attributes
    assert policies.policy_row(dead)["origins"] == {}


def test_policies_that_cannot_be_are_refused() -> None:
    policies = HostPolicies(CONFIG)
    with pytest.raises(ConfigError, match="'colour' is none of its fields"):
        policies.define({"p": {**fields(useDMQ=True), "colour": 1}})
