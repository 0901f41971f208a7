"""Sort keys of a destination, read and refused."""

from __future__ import annotations

import pytest

from raybroker.model.errors import ConfigError
from raybroker.model.settings.settings import destination_attributes, updated_attributes
from raybroker.model.sort_keys import KEYS_MAX, SortKey, parse_sort_keys


def test_keys_are_names_with_a_way_each() -> None:
    assert parse_sort_keys("") == ()
    assert parse_sort_keys(" JMSPriority  Descending , region,JMSMessageID descending") == (
        SortKey("JMSPriority", True),
        SortKey("region", False),
        SortKey("JMSMessageID", True),
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("JMSMessageID, region", "region stands behind JMSMessageID"),
        ("region, region descending", "region is there twice"),
        ("region downwards", "'downwards' behind region"),
        ("JMSDestination", "JMSDestination is no header that messages are sorted by"),
        ("a,,b", "a key is empty"),
        ("two words here", "'words here' behind two"),
        ("1a", "'1a' is not the name of a property"),
        ("null", "'null' is not the name of a property"),
        (",".join(f"k{n}" for n in range(KEYS_MAX + 1)), "9 keys; at most 8"),
    ],
)
def test_what_is_no_key_is_refused_by_name(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match="destinationKeys") as refused:
        destination_attributes({"destinationKeys": text})
    assert why in str(refused.value)


def test_keys_are_fixed_when_a_destination_is_created() -> None:
    sorted_by_region = destination_attributes({"destinationKeys": "region"}, type="topic")
    with pytest.raises(ConfigError, match="fixed when a destination is created"):
        updated_attributes(sorted_by_region, {"destinationKeys": "JMSType"}, type="topic")
