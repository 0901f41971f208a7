"""Bodies that travel compressed because a property of their message says so."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.client.producer.compression import compressed
from raybroker.content.bodies import COMPRESS
from raybroker.content.headers import decode_header, encode_header

BODY = b"a" * 1000


@pytest.mark.parametrize("properties", [{}, {COMPRESS: False}, {COMPRESS: "true"}, {"other": COMPRESS}])
def test_other_messages_travel_as_they_are(properties: dict[str, Any]) -> None:
    header = encode_header(properties, None, None, None)
    assert compressed(0, BODY, header) == (0, BODY, header)


def test_a_message_that_asks_for_it_is_smaller_and_keeps_its_headers() -> None:
    header = encode_header({COMPRESS: True, "n": 1}, "corr", None, "type", unit="u")
    _, data, marked = compressed(0, BODY, header)
    assert len(data) < len(BODY)
    found, before = decode_header(marked), decode_header(header)
    assert found._replace(properties={}) == before._replace(properties={})
    assert found.properties["n"] == 1
