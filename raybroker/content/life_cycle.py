"""The fields of one message in the log of messages' lives.

``policy`` is a list of names as for expired messages (see expiration_log): headers, properties, %header%, %properties%.
"""

from __future__ import annotations

from typing import Any

from raybroker.content.expiration_log import parse_policy
from raybroker.content.headers import content_of
from raybroker.model.blocks.block import Block


def life_fields(block: Block, index: int, policy: str) -> dict[str, Any]:
    """``message_id``, ``correlation_id``, and ``content``: headers and properties that the policy asks for."""
    asked, content = parse_policy(policy), content_of(block)
    headers = {name: content.header(index, name) for name in asked.headers}
    properties = content.properties(index)
    chosen = {name: properties[name] for name in asked.properties if name in properties}
    if asked.all_properties:
        chosen.update(properties)
    return {
        "message_id": content.header(index, "JMSMessageID"),
        "correlation_id": content.header(index, "JMSCorrelationID"),
        "content": {
            **{name: value for name, value in headers.items() if value is not None},
            **{str(name): value.hex() if isinstance(value, bytes) else value for name, value in chosen.items()},
        },
    }
