"""Attributes of quotas."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.model.definitions.quota import LMAX, quota_of, refuse_contradiction
from raybroker.model.errors import ConfigError

DEFAULTS = {"BytesMaximum": -1, "MessagesMaximum": -1, "Policy": "FIFO", "Shared": True}


def test_without_attributes_there_is_no_limit() -> None:  # W-04
    assert quota_of({}) == DEFAULTS


@pytest.mark.parametrize("value", [LMAX, str(LMAX), "LMAX", -1, "-1"])
def test_the_largest_long_means_no_limit(value: Any) -> None:
    assert quota_of({"BytesMaximum": value, "MessagesMaximum": value}) == DEFAULTS


def test_texts_are_parsed_and_a_change_keeps_the_rest() -> None:
    before = quota_of({"BytesMaximum": "2m", "MessagesMaximum": "0", "Policy": "preemptive", "Shared": "false"})
    assert before == {"BytesMaximum": 2 << 20, "MessagesMaximum": 0, "Policy": "Preemptive", "Shared": False}
    assert quota_of({"Policy": "FIFO", "Shared": False}, before) == {**before, "Policy": "FIFO"}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"MessageMaximum": 1}, "nearest is 'MessagesMaximum'"),
        ({"MessagesMaximum": -2}, "MessagesMaximum"),
        ({"BytesMaximum": "many"}, "BytesMaximum"),
        ({"Policy": "LIFO"}, "Policy"),
        ({"Shared": "perhaps"}, "Shared"),
        ({"MessagesMaximum": LMAX - 1}, "MessagesMaximum"),
        ({"Shared": False}, "Shared is fixed"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        quota_of(given, DEFAULTS)


@pytest.mark.parametrize(("high", "most", "fits"), [(5, 5, True), (6, 5, False), (6, -1, True), (-1, 0, True)])
@pytest.mark.parametrize(("threshold", "maximum"), [("messagesHigh", "MessagesMaximum"), ("bytesHigh", "BytesMaximum")])
def test_a_threshold_above_the_limit_is_refused(threshold: str, maximum: str, high: int, most: int, fits: bool) -> None:
    attributes = {"messagesHigh": -1, "bytesHigh": -1, threshold: high}
    if fits:
        refuse_contradiction("queue a", attributes, "small", quota_of({maximum: most}))
        return
    with pytest.raises(ConfigError, match=f"{threshold} = 6 of queue a .* {maximum} of quota 'small' is 5"):
        refuse_contradiction("queue a", attributes, "small", quota_of({maximum: most}))
