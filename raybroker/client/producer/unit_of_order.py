"""Units of order on the sending side: the source of their name, and the header that carries it.

What a message names wins over its producer, the producer over the connection factory, and that over the destination,
whose default the broker puts in.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from raybroker.content.headers import encode_header
from raybroker.model.errors import MessageFormatError
from raybroker.model.naming.units import UNIT_CHARS_MAX, is_unit_name

NO_UNIT: Final = ("", "None")
"""Values of DefaultUnitOfOrder for none."""
OF_SESSION: Final = "System-generated"
"""Value of DefaultUnitOfOrder for a unit of each session's own."""
HEADERS_KEPT: Final = 4096


def check_unit(name: object) -> str:
    """The name, if it can be one; raises MessageFormatError."""
    if not isinstance(name, str) or not is_unit_name(name):
        raise MessageFormatError(f"unit_of_order={name!r:.80}; it is a text of 1 to {UNIT_CHARS_MAX} characters")
    return name


def unit_of_producer(session: str | None, unit_of_order: str | None, default: str) -> str | None:
    """The unit of a new producer's messages; ``session`` is the name of its session, ``default`` the factory's
    DefaultUnitOfOrder."""
    if unit_of_order is not None:
        return check_unit(unit_of_order)
    if default in NO_UNIT:
        return None
    if default == OF_SESSION:
        return None if session is None else f"mq.session.{session}"
    return check_unit(default)


def unit_headers(units: Sequence[object], default: str | None, plain: bytes, *, named: bool) -> list[bytes]:
    """The headers of messages that have nothing but their units; ``default`` for None, and ``plain`` without any.

    Raises MessageFormatError for what cannot be a unit.
    """
    known = _headers[named]
    try:
        return list(map(known.__getitem__, units))
    except (KeyError, TypeError):  # TypeError: some cannot even be looked up.
        names = [default if one is None else check_unit(one) for one in units]
    found = [plain if of is None else unit_header(of, named=named) for of in names]
    if len(known) + len(set(names)) > HEADERS_KEPT:
        known.clear()
    known.update((name, header) for name, header in zip(names, found, strict=True) if name is not None)
    return found


_headers: Final[dict[bool, dict[object, bytes]]] = {False: {}, True: {}}
"""Whether the message has an id → name of a unit that was used lately → headers."""


@lru_cache(HEADERS_KEPT)
def unit_header(unit: str, *, named: bool = True) -> bytes:
    """The headers of a message that has nothing but its unit."""
    return encode_header(None, None, None, None, no_id=not named, unit=unit)
