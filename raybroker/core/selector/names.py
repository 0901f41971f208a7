"""Names in a selector: the characters that they may have, and the names with the prefix JMS that exist."""

from __future__ import annotations

from typing import Final

from raybroker.core.selector.faults import SelectorFault
from raybroker.model.naming.property_names import stranger
from raybroker.model.naming.units import UNIT_PROPERTY

HEADERS: Final = (
    "JMSDeliveryMode",
    "JMSPriority",
    "JMSMessageID",
    "JMSTimestamp",
    "JMSCorrelationID",
    "JMSType",
    "JMSRedelivered",
    UNIT_PROPERTY,
)
"""Headers that a selector may name: those of JMS, JMSRedelivered, and the unit of order."""
DELIVERY_COUNT: Final = "JMSXDeliveryCount"
REDELIVERED: Final = "JMSRedelivered"
OF_DELIVERY: Final = frozenset({DELIVERY_COUNT, REDELIVERED})
"""Names whose value depends on the delivery rather than on the message."""
PRIORITY: Final = "JMSPriority"
KNOWN_OF_RUN: Final = frozenset({*OF_DELIVERY, PRIORITY})
"""Names whose value a delivery queue knows of messages that wait, without opening their block."""


def is_property(name: str) -> bool:
    """Whether the value is a property of the message, never a header."""
    return not name.startswith("JMSX") and name not in HEADERS


def may_be_property(name: str) -> bool:
    """Whether the value may be a property of the message."""
    return name not in HEADERS and name != DELIVERY_COUNT


def check_name(name: str, at: int) -> None:
    """Raises Fault for a name that Java or JMS does not allow."""
    offset = stranger(name)
    if offset >= 0:
        raise SelectorFault(at + offset, f"the character {name[offset]!r}", "a letter, a digit, _ or $ in a name")
    if name.startswith("JMS") and not name.startswith(("JMSX", "JMS_")) and name not in HEADERS:
        raise SelectorFault(at, name, f"one of the headers that a selector may name: {', '.join(HEADERS)}")
