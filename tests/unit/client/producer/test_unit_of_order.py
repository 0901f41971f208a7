"""The unit of order of a message: where its name comes from, and the headers that carry it."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.client.producer import unit_of_order
from raybroker.client.producer.unit_of_order import OF_SESSION, check_unit, unit_header, unit_headers, unit_of_producer
from raybroker.content.headers import decode_header
from raybroker.model.errors import MessageFormatError
from raybroker.model.naming.units import UNIT_CHARS_MAX


@pytest.mark.parametrize(
    ("own", "default", "unit"),
    [("u", "d", "u"), (None, "d", "d"), (None, "", None), (None, "None", None), (None, OF_SESSION, "mq.session.s1")],
)
def test_the_producer_wins_over_the_connection_factory(own: str | None, default: str, unit: str | None) -> None:
    assert unit_of_producer("s1", own, default) == unit


@pytest.mark.parametrize("name", ["", 7, None, "x" * (UNIT_CHARS_MAX + 1)])
def test_a_name_is_a_bounded_text(name: Any) -> None:
    with pytest.raises(MessageFormatError, match=f"1 to {UNIT_CHARS_MAX} characters"):
        check_unit(name)


@pytest.mark.parametrize("named", [True, False])
def test_many_messages_get_the_headers_of_their_units(named: bool) -> None:
    for _ in range(2):
        found = unit_headers(["a", None, "b"], "d", b"plain", named=named)
        assert found == [unit_header(unit, named=named) for unit in ("a", "d", "b")]
    assert [decode_header(header).unit for header in found] == ["a", "d", "b"]
    assert unit_headers([None], None, b"plain", named=named) == [b"plain"]


def test_what_cannot_be_a_unit_is_refused_also_where_it_cannot_be_looked_up() -> None:
    for wrong in ([], ""):
        with pytest.raises(MessageFormatError):
            unit_headers(["a", wrong], None, b"", named=True)


def test_headers_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_of_order, "HEADERS_KEPT", 2)
    for number in range(5):
        unit_headers([f"bounded {number}"], None, b"", named=True)
    assert len(unit_of_order._headers[True]) <= 2
