"""Units of order on the sending side: where the name comes from, and the header that carries it (W-76 … W-79).

What a message names wins over its producer, the producer over the connection factory, and that over the destination,
whose default the broker puts in (W-77).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from raybroker.model.errors import MessageFormatError
from raybroker.model.units import UNIT_CHARS_MAX, is_unit_name
from raybroker.wire.content import encode_header

if TYPE_CHECKING:
    from raybroker.client.session import SessionCore

NO_UNIT: Final = ("", "None")
"""Values of DefaultUnitOfOrder for none."""
OF_SESSION: Final = "System-generated"
"""Value of DefaultUnitOfOrder for a unit of each session's own (W-78)."""
HEADERS_KEPT: Final = 4096


def check_unit(name: object) -> str:
    """The name, if it can be one; raises MessageFormatError."""
    if not isinstance(name, str) or not is_unit_name(name):
        raise MessageFormatError(f"unit_of_order={name!r:.80}; it is a text of 1 to {UNIT_CHARS_MAX} characters")
    return name


def unit_of_producer(session: SessionCore | None, unit_of_order: str | None, default: str) -> str | None:
    """The unit of a new producer's messages; ``default`` is the factory's DefaultUnitOfOrder."""
    if unit_of_order is not None:
        return check_unit(unit_of_order)
    if default in NO_UNIT:
        return None
    if default == OF_SESSION:
        return None if session is None else f"mq.session.{session.owner}"
    return check_unit(default)


@lru_cache(HEADERS_KEPT)
def unit_header(unit: str, *, named: bool = True) -> bytes:
    """The headers of a message that has nothing but its unit."""
    return encode_header(None, None, None, None, no_id=not named, unit=unit)
