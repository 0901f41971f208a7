"""Names in selectors: headers, properties, and what neither may be."""

from __future__ import annotations

import pytest

from raybroker.core.selector.faults import SelectorFault
from raybroker.core.selector.names import (
    DELIVERY_COUNT,
    HEADERS,
    OF_DELIVERY,
    REDELIVERED,
    check_name,
    is_property,
    may_be_property,
)


@pytest.mark.parametrize("name", ["a", "_", "JMSXGroupID", "JMS_vendor", *HEADERS])
def test_names_that_exist_pass(name: str) -> None:
    check_name(name, 4)


@pytest.mark.parametrize(
    ("name", "at", "found"),
    [("a§b", 5, "the character '§'"), ("JMSExpiration", 4, "JMSExpiration"), ("JMS", 4, "JMS")],
)
def test_other_names_are_faults_at_the_character_that_is_wrong(name: str, at: int, found: str) -> None:
    with pytest.raises(SelectorFault) as fault:
        check_name(name, 4)
    assert (fault.value.at, fault.value.found) == (at, found)


def test_a_name_is_looked_for_where_it_can_stand() -> None:
    assert (is_property("a"), may_be_property("a")) == (True, True)
    assert (is_property("JMSXGroupID"), may_be_property("JMSXGroupID")) == (False, True)
    assert (is_property("JMSType"), may_be_property("JMSType")) == (False, False)
    assert (is_property(DELIVERY_COUNT), may_be_property(DELIVERY_COUNT)) == (False, False)
    assert {DELIVERY_COUNT, REDELIVERED} == OF_DELIVERY
