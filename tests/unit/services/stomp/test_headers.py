"""Headers of SEND and MESSAGE, and bodies."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.model.errors import MessageFormatError, NotSupportedError, ProtocolError
from raybroker.model.naming.property_names import check_property_name
from raybroker.services.stomp.headers import (
    MessageFacts,
    body_bytes,
    body_of,
    header_name,
    message_headers,
    property_name,
    send_options,
)

NOW_MS = 1_000_000


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20))
def test_any_header_is_a_property_and_comes_back(header: str) -> None:
    assert check_property_name(property_name(header))
    if "_U" not in header and "_DOT_" not in header and "_HYPHEN_" not in header:
        assert header_name(property_name(header)) == header


@pytest.mark.parametrize(
    ("header", "prop"),
    [("price", "price"), ("foo-bar", "foo_HYPHEN_bar"), ("a.b", "a_DOT_b"), ("in", "_U69_n"), ("9", "_U39_")],
)
def test_names_of_properties(header: str, prop: str) -> None:
    assert property_name(header) == prop
    assert header_name(prop) == header


def test_what_a_send_says() -> None:
    headers = {
        "destination": "/queue/q",
        "receipt": "1",
        "priority": "9",
        "expires": str(NOW_MS + 5),
        "persistent": "FALSE",
        "type": "t",
        "correlation-id": "c",
        "JMSXGroupID": "g",
        "AMQ_SCHEDULED_DELAY": "7",
        "color": "red",
        "message-id": "of another",
        "subscription": "1",
    }
    found = send_options(headers, NOW_MS)
    assert found == (
        {"color": "red"},
        {
            "correlation_id": "c",
            "type": "t",
            "priority": 9,
            "ttl_ms": 5,
            "delivery_delay_ms": 7,
            "unit_of_order": "g",
            "persistent": False,
        },
    )
    assert send_options({}, NOW_MS) == (None, {})
    assert send_options({"expires": "0"}, NOW_MS)[1]["ttl_ms"] is None
    assert send_options({"expires": "5"}, NOW_MS)[1]["ttl_ms"] == 1


@pytest.mark.parametrize("headers", [{"priority": "10"}, {"priority": "-1"}, {"expires": "1e3"}, {"persistent": "1"}])
def test_a_value_that_cannot_be(headers: dict[str, str]) -> None:
    with pytest.raises(ProtocolError, match=next(iter(headers))):
        send_options(headers, NOW_MS)


def test_a_header_that_would_be_a_trap() -> None:
    with pytest.raises(NotSupportedError, match="transformation is not supported"):
        send_options({"transformation": "jms-map-xml"}, NOW_MS)


@pytest.mark.parametrize(
    ("headers", "body", "found"),
    [
        ({}, b"a", "a"),
        ({}, b"\xff", b"\xff"),
        ({"content-length": "1"}, b"a", b"a"),
        ({"content-type": "text/plain", "content-length": "1"}, b"a", "a"),
        ({"content-type": "application/json"}, b"{}", "{}"),
        ({"content-type": "application/octet-stream"}, b"a", b"a"),
        ({"content-type": "image/svg; charset=UTF-8"}, b"a", "a"),
        ({"content-type": "text/plain;charset=iso-8859-1"}, b"\xfc", "ü"),
        ({"content-type": "text/plain;charset=klingon"}, b"a", b"a"),
    ],
)
def test_text_and_bytes(headers: dict[str, str], body: bytes, found: str | bytes) -> None:
    assert body_of(headers, body) == found
    if isinstance(found, str):
        assert body_bytes(found, headers.get("content-type"))[0] == body


def test_a_text_that_is_none() -> None:
    with pytest.raises(MessageFormatError, match="the body is no text in utf-8"):
        body_of({"content-type": "text/plain"}, b"\xff")


@pytest.mark.parametrize(
    ("body", "data", "kind"),
    [
        (b"\0", b"\0", "application/octet-stream"),
        ("ä", "ä".encode(), "text/plain"),
        ({"a": None}, b'{"a":null}', "application/json"),
    ],
)
def test_bodies_of_native_producers(body: object, data: bytes, kind: str) -> None:
    assert body_bytes(body, None) == (data, kind)


def test_a_body_that_json_cannot_write() -> None:
    with pytest.raises(MessageFormatError, match="a value of type dict cannot be written as JSON"):
        body_bytes({"a": 1 << 70}, None)


def test_headers_of_a_message() -> None:
    plain: dict[str, Any] = {
        "id": "ID:1",
        "destination": "/queue/q",
        "properties": {"n": 1, "a_HYPHEN_b": True, "priority": 3},
        "correlation_id": None,
        "reply_to": None,
        "type": None,
        "timestamp": 5,
        "expiration": 0,
        "priority": 4,
        "persistent": True,
        "delivery_count": 2,
        "unit": "u",
    }
    found = message_headers(MessageFacts(**plain), "7", "1-1", with_ack=True)
    assert found == {
        "destination": "/queue/q",
        "message-id": "ID:1",
        "subscription": "7",
        "timestamp": "5",
        "expires": "0",
        "priority": "4",
        "ack": "1-1",
        "persistent": "true",
        "redelivered": "true",
        "JMSXDeliveryCount": "2",
        "JMSXGroupID": "u",
        "n": "1",
        "a-b": "true",
    }
    first = message_headers(MessageFacts(**{**plain, "id": "", "delivery_count": 1}), "7", "1-1", with_ack=False)
    assert first["message-id"] == "1-1"
    assert "ack" not in first
    assert "redelivered" not in first


@pytest.mark.parametrize("persistent", [None, "true", "FALSE"])
def test_a_send_that_says_nothing_of_its_message_has_the_options_of_one_that_does(persistent: str | None) -> None:
    headers = {"destination": "/queue/a", "receipt": "1", "content-length": "3", "transaction": "t"}
    if persistent is not None:
        headers["persistent"] = persistent
    properties, said = send_options({**headers, "type": "t"}, NOW_MS)
    given = {name: value for name, value in said.items() if value is not None and name != "type"}
    assert send_options(headers, NOW_MS) == (properties, given)
    properties, _ = send_options({**headers, "content-type": "text/plain"}, NOW_MS)
    assert properties == {"content_HYPHEN_type": "text/plain"}
