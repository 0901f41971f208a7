"""What a message of an AMQP client says of how it is sent on."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.model.errors import SecurityError
from raybroker.services.amqp.messages import IncomingMessage, MessageReader
from raybroker.wire.amqp.performatives import AmqpHeader, AmqpProperties
from raybroker.wire.amqp.sections import (
    MESSAGE_ANNOTATIONS,
    annotations_section,
    data_front,
    header_section,
    properties_section,
)
from raybroker.wire.amqp.types import Symbol

NOW_MS = 1_000_000
MIB = 1 << 20


def message(
    header: AmqpHeader | None = None,
    properties: AmqpProperties | None = None,
    annotations: dict[str, Any] | None = None,
    body: bytes = b"x",
) -> bytes:
    return b"".join(
        (
            header_section(header) if header is not None else b"",
            annotations_section(
                MESSAGE_ANNOTATIONS, {Symbol(key): value for key, value in (annotations or {}).items()}
            ),
            properties_section(properties) if properties is not None else b"",
            data_front(len(body)) + body,
        )
    )


def read(payload: bytes, **more: Any) -> IncomingMessage:
    return MessageReader(lambda: NOW_MS, "ann", **more).read(payload)


@pytest.mark.parametrize(
    ("payload", "options"),
    [
        (message(), {"persistent": False}),
        (message(AmqpHeader(True)), {"persistent": True}),
        (message(AmqpHeader(True, 99)), {"persistent": True, "priority": 9}),
        (message(AmqpHeader(ttl=5), AmqpProperties(absolute_expiry=NOW_MS + 9)), {"persistent": False, "ttl_ms": 5}),
        (message(AmqpHeader(ttl=0), AmqpProperties(absolute_expiry=NOW_MS + 9)), {"persistent": False}),
        (message(None, AmqpProperties(absolute_expiry=NOW_MS + 9)), {"persistent": False, "ttl_ms": 9}),
        (message(None, AmqpProperties(absolute_expiry=NOW_MS - 9)), {"persistent": False, "ttl_ms": 1}),
        (message(None, AmqpProperties(group_id="g")), {"persistent": False, "unit_of_order": "g"}),
        (message(None, None, {"x-opt-delivery-delay": 7}), {"persistent": False, "delivery_delay_ms": 7}),
        (message(None, None, {"x-opt-delivery-time": NOW_MS + 3}), {"persistent": False, "delivery_delay_ms": 3}),
        (message(None, None, {"x-opt-delivery-time": NOW_MS - 3}), {"persistent": False}),
        (message(None, None, {"x-opt-other": 7}), {"persistent": False}),
    ],
)
def test_what_a_message_says_are_options_of_its_send(payload: bytes, options: dict[str, Any]) -> None:
    assert read(payload).options == options


def test_a_message_says_where_it_goes_and_what_is_there() -> None:
    payload = message(AmqpHeader(), AmqpProperties(to="news"), {"x-opt-jms-dest": 1})
    found = read(payload, addressed=True)
    assert (found.to, found.kind) == ("news", "topic")
    assert read(payload).kind is None


def test_what_is_kept_begins_behind_the_header() -> None:
    kept = message(None, AmqpProperties("id"), {"a": 1})
    assert read(header_section(AmqpHeader(True)) + kept).body == kept
    assert read(kept).body == kept
    assert read(kept).fields is None
    large = message(AmqpHeader(), AmqpProperties("id"), None, bytes(5 * MIB))
    assert read(large).fields == {"i": "id"}


def test_nobody_sends_as_another_user() -> None:
    assert read(message(None, AmqpProperties(user_id=b"ann")))
    with pytest.raises(SecurityError, match="bob"):
        read(message(None, AmqpProperties(user_id=b"bob")))


HEADERS = st.none() | st.builds(
    AmqpHeader, st.booleans(), st.integers(0, 9), ttl=st.sampled_from((None, 0, 5)), delivery_count=st.integers(0, 1)
)
PROPERTIES = st.sampled_from(
    (
        None,
        AmqpProperties("id"),
        AmqpProperties(to="q", absolute_expiry=NOW_MS + 5),
        AmqpProperties(group_id="g"),
        AmqpProperties(to="q", absolute_expiry=NOW_MS + 5, group_id="g"),
    )
)
ANNOTATIONS = st.sampled_from(({}, {"a": 1}, {"x-opt-delivery-delay": 7}))


@given(st.lists(st.builds(message, HEADERS, PROPERTIES, ANNOTATIONS), max_size=10), st.booleans())
def test_what_a_message_says_does_not_depend_on_those_before_it(payloads: list[bytes], addressed: bool) -> None:
    one = MessageReader(lambda: NOW_MS, "ann", addressed=addressed)
    found = [one.read(payload) for payload in payloads]
    assert found == [read(payload, addressed=addressed) for payload in payloads]
