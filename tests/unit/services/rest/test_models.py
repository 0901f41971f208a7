"""What requests are made of is checked, with the place and what it may be; what is answered can be read."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from raybroker.errors import MessageFormatError
from raybroker.services.rest import models
from raybroker.services.rest.models import SEND, body_of, parsed
from raybroker.services.rest.openapi import OPERATIONS, about
from raybroker.services.web.credentials import Offer
from raybroker.services.web.json_text import checked, written
from raybroker.services.web.operations import description

WHOLE = {
    "body": [1, "x", None],
    "properties": {"a": True, "b": -1, "c": 1.5, "d": "x", "e": None},
    "correlation_id": "c",
    "reply_to": "topic:t",
    "type": "t",
    "priority": 9,
    "ttl_ms": 0,
    "delivery_delay_ms": 1,
    "unit_of_order": "u",
    "persistent": False,
    "dedup_id": "d",
}


def test_a_whole_message_is_taken_as_it_is() -> None:
    assert parsed(SEND, json.dumps(WHOLE).encode()) == WHOLE
    assert parsed(SEND, json.dumps([WHOLE]).encode()) == [WHOLE]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({}, "body: Field required"),
        ([], "at least 1 item"),
        ([{"body": 1}] * (models.ARRAY_MAX + 1), "at most 1000 items"),
        ([{"body": 1}, {"body": 1, "priority": "4"}], "1.priority: Input should be a valid integer"),
        ({"body": 1, "priority": 10}, "priority: Input should be less than or equal to 9"),
        ({"body": 1, "prioritty": 1}, "prioritty: Extra inputs are not permitted"),
        ({"body": 1, "properties": {"JMSType": 1}}, "does not start with JMS"),
        ({"body": 1, "properties": {"and": 1}}, "no word of the selector language"),
        ({"body": 1, "properties": {"a": [1]}}, "properties.a"),
        ({"body": 1, "properties": {"a": 1 << 63}}, "properties.a"),
        ({"body": 1, "reply_to": "a b"}, "reply_to: String should match"),
        ("text", "valid dictionary"),
    ],
)
def test_what_is_wrong_is_named(value: Any, told: str) -> None:
    with pytest.raises(MessageFormatError, match=r"see /openapi\.json") as caught:
        parsed(SEND, json.dumps(value).encode())
    assert told in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"{", b'{"body": NaN}', b"\xff", b'{"body": "\\ud800"}', b"[" * 5000])
def test_what_is_no_json_is_refused(data: bytes) -> None:
    with pytest.raises(MessageFormatError, match="no JSON"):
        parsed(SEND, data)


def test_bytes_come_as_base64() -> None:
    assert body_of({"body": "AAH/", "encoding": "base64"}) == b"\0\1\xff"
    assert body_of({"body": "AAH/"}) == "AAH/"
    for bad in ("A", "%%%%", 7):
        with pytest.raises(MessageFormatError, match="base64"):
            body_of({"body": bad, "encoding": "base64"})


def test_values_that_json_does_not_have_come_as_text() -> None:
    value = {"t": datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), "d": Decimal("1.5"), "b": b"\0", 1: (1, 2)}
    assert json.loads(written(value)) == {"t": "2026-01-02T00:00:00+00:00", "d": "1.5", "b": "AA==", "1": [1, 2]}
    with pytest.raises(MessageFormatError, match="cannot be written"):
        written(1 << 80)


@pytest.mark.parametrize(
    ("given", "told"),
    [({"max": "x"}, "max"), ({"max": "0"}, "max"), ({"most": "1"}, "most"), ({"wait_ms": "1_0"}, "wait")],
)
def test_a_query_is_checked(given: dict[str, str], told: str) -> None:
    receive = next(operation.query for operation in OPERATIONS if operation.name == "receive")
    with pytest.raises(MessageFormatError, match=told):
        checked(receive, given, "the query")
    assert checked(receive, {"max": "7", "lease_ms": "1000"}, "the query") == {"max": 7, "lease_ms": 1000}


def test_the_description_says_what_is_checked() -> None:
    document = description(about("1", Offer()), OPERATIONS)
    asked = document["paths"]["/queues/{name}/messages"]["post"]["requestBody"]["content"]["application/json"]
    schema = asked["schema"]
    validator = Draft202012Validator({**schema, "components": document["components"]})
    assert validator.is_valid(WHOLE)
    assert validator.is_valid([WHOLE])
    for wrong in ({}, [], {**WHOLE, "more": 1}, {**WHOLE, "priority": 10}, {**WHOLE, "properties": {"NOT": 1}}):
        assert not validator.is_valid(wrong)
    receive = document["paths"]["/queues/{name}/receive"]["post"]["parameters"]
    assert {row["name"]: row["schema"].get("maximum") for row in receive} == {
        "name": None,
        "max": models.RECEIVED_MAX,
        "wait_ms": models.WAIT_MS_MAX,
        "lease_ms": models.LEASE_MS_MAX,
    }
    for operation in OPERATIONS:
        found = document["paths"][operation.path][operation.method.lower()]
        assert {str(operation.status), "500"} <= found["responses"].keys()
        assert ("401" in found["responses"]) is not operation.public


@pytest.mark.parametrize("value", [{}, {"bodi": 1}, {"body": 1, "x": 2}, {"priority": 3}])
def test_what_is_no_message_is_refused(value: dict[str, Any]) -> None:
    with pytest.raises(MessageFormatError):
        models.checked(models.MESSAGE, value, "the body of the request")
