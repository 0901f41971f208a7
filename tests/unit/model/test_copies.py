"""How many copies a destination may have, and how many of them must have a message."""

from __future__ import annotations

import pytest

from raybroker.model.copies import check_copies
from raybroker.model.definitions.kinds.kind import Reading
from raybroker.model.definitions.kinds.template import TEMPLATE
from raybroker.model.definitions.policy import policy_of
from raybroker.model.definitions.values import Defaults
from raybroker.model.errors import ConfigError
from raybroker.model.settings.settings import destination_attributes, parsed_attributes


@pytest.mark.parametrize(
    ("replicas", "least"),
    [(1, 0), (1, 1), (3, 0), (3, 2), (3, 3), (5, 0), (5, 3), (5, 5)],
)
def test_a_majority_or_more_may_be_asked_for(replicas: int, least: int) -> None:
    check_copies(replicas, least, in_broker=False)


@pytest.mark.parametrize(
    ("replicas", "least", "in_broker", "why"),
    [
        (1, 2, False, "more than there are copies: replicas is 1"),
        (3, 4, False, "more than there are copies: replicas is 3"),
        (3, 1, False, "less than a majority of 3 copies, which is 2: .* choose 2 to 3, or 0"),
        (5, 2, False, "less than a majority of 5 copies, which is 3"),
        (3, 0, True, "hosting=broker exclude each other: the broker's process"),
    ],
)
def test_what_cannot_be_together_is_refused_with_the_reason(
    replicas: int, least: int, in_broker: bool, why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        check_copies(replicas, least, in_broker=in_broker)


@pytest.mark.parametrize(
    ("value", "why"),
    [(2, "each alone is no majority"), (4, "as 3 does"), (6, "too large")],
)
def test_numbers_that_no_destination_has_are_refused_wherever_they_come_from(value: int, why: str) -> None:
    with pytest.raises(ConfigError, match=f"replicas = .*{why}"):
        destination_attributes({"replicas": value})
    with pytest.raises(ConfigError, match=why):
        parsed_attributes({"replicas": str(value)})
    reading = Reading(Defaults.from_config())
    with pytest.raises(ConfigError, match=why):
        TEMPLATE.entry("three", {"replicas": value}, reading)
    with pytest.raises(ConfigError, match="replicas"):
        policy_of("three", {"pattern": "orders.>", "attributes": {"replicas": value}})


def test_what_is_given_is_checked_with_the_other_attributes() -> None:
    assert destination_attributes({"replicas": "1", "minInSync": "1"}).minInSync == 1
    with pytest.raises(ConfigError, match="minInSync = 3 is more than there are copies"):
        destination_attributes({"minInSync": 3})
