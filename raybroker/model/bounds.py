"""Limits that several layers must agree on, each with its reason and with what happens at the edge.

A limit that one layer keeps for itself stands in that layer; a limit that a user may move is a setting.  The relations
between these and the limits of the block format and the wire are asserted in ``tests/unit/model/test_bounds.py``.
"""

from __future__ import annotations

from typing import Final

from raybroker.model.sizes import KIB, MIB

MESSAGE_BYTES_MAX: Final = 70 * MIB
"""Largest body of one message, however ``imq.message.max_size`` is set: MQ's default.

A block is read, checked and written whole, so a larger one would stall everybody behind it.  At the edge: the send
raises MessageTooLargeError and nothing is stored.
"""

REFERENCE_BYTES_MAX: Final = 2048 * MIB
"""Largest body of one message that goes by reference, however ``raybroker.reference.max_size`` is set.

Nobody reads it whole: it goes from the object store of Ray to a file, and from there in pieces.  Sizes in the block
format have 32 bits.  At the edge: the send raises MessageTooLargeError and nothing is stored.
"""

MESSAGE_HEADERS_BYTES_MAX: Final = 64 * KIB
"""Largest encoded headers (properties, correlation id, …) of one message.

Headers are kept in memory for selectors, where bodies need not be.  At the edge: the send raises MessageTooLargeError.
"""

SCHEDULED_BYTES_MAX: Final = 512 * KIB
"""Largest message of a recurring schedule, encoded with its headers.

It is handed over in one request, which is bounded, and stored for as long as the schedule lives.  At the edge: the send
raises MessageTooLargeError and no schedule is made.
"""


def message_bytes_max(setting_bytes: int) -> int:
    """The body size that holds for a value of ``imq.message.max_size``: -1 means what can travel at all."""
    return MESSAGE_BYTES_MAX if setting_bytes < 0 else min(setting_bytes, MESSAGE_BYTES_MAX)
