"""A producer that leaves ids and times of packing out of its messages."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.client.producer.bodies.header_hints import HeaderHints
from raybroker.client.producer.producer_state import Shared
from raybroker.model.errors import ConfigError


def producer() -> Any:
    hints: Any = HeaderHints()
    hints._core = SimpleNamespace(shared=Shared(True, 4))
    return hints


@pytest.mark.parametrize(
    ("hint", "column"), [("disable_message_id", "named"), ("disable_message_timestamp", "stamped")]
)
def test_a_hint_holds_for_the_messages_sent_from_then_on(hint: str, column: str) -> None:
    one = producer()
    assert (getattr(one, hint), getattr(one._core.shared, column)) == (False, True)
    before = one._core.shared
    setattr(one, hint, True)
    assert (getattr(one, hint), getattr(one._core.shared, column)) == (True, False)
    assert getattr(before, column), "messages that were sent keep what they had"
    setattr(one, hint, False)
    assert one._core.shared == before


def test_a_hint_is_a_truth_value() -> None:
    with pytest.raises(ConfigError, match="disable_message_id=1"):
        producer().disable_message_id = 1
