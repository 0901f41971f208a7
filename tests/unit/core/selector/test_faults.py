"""The text of a refused selector."""

from __future__ import annotations

from raybroker.core.selector.faults import SelectorFault, refusal
from raybroker.model.errors import InvalidSelectorError


def test_columns_count_from_one() -> None:
    error = refusal("a = ", SelectorFault(4, "the end", "a value"))
    assert isinstance(error, InvalidSelectorError)
    assert str(error) == "the selector 'a = ' is wrong at column 5: found the end, expected a value"


def test_of_a_long_selector_the_neighbourhood_of_the_fault_is_shown() -> None:
    text = "a" * 300 + "#" + "b" * 300
    assert f"selector '…{'a' * 100}#{'b' * 99}…' is wrong at column 301:" in str(
        refusal(text, SelectorFault(300, "#", "AND"))
    )
    assert f"selector '{'a' * 100}…' is wrong at column 1:" in str(refusal(text, SelectorFault(0, "a", "AND")))
    assert f"selector '…{'b' * 100}' is wrong at column 602:" in str(
        refusal(text, SelectorFault(601, "the end", "AND"))
    )
