"""What each message of ``send_many`` has of its own: properties, a priority, a time to live."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from raybroker.client.compression import compressed
from raybroker.client.options import check_ms, check_priority
from raybroker.client.producing import Shared
from raybroker.model.errors import MessageFormatError, MessageTooLargeError
from raybroker.wire.content import COMPRESS, encode_header

_ONLY_BYTES: Final = {bytes}
_COMPRESS: Final = COMPRESS.encode()


class Own(NamedTuple):
    """Columns of some messages; None where all have what they share."""

    headers: list[bytes] | None = None
    priorities: bytes | None = None
    ttls_ms: array[int] | None = None

    def part(self, start: int, end: int) -> Own:
        headers, priorities, ttls_ms = self
        return Own(
            None if headers is None else headers[start:end],
            None if priorities is None else priorities[start:end],
            None if ttls_ms is None else ttls_ms[start:end],
        )


class Each:
    """Values in step with the bodies, one a message."""

    def __init__(
        self,
        properties: Iterable[Mapping[str, Any]] | None,
        priority: Iterable[int] | None,
        ttl_ms: Iterable[int] | None,
    ) -> None:
        self._properties = None if properties is None else iter(properties)
        self._priority = None if priority is None else iter(priority)
        self._ttl_ms = None if ttl_ms is None else iter(ttl_ms)

    def next(self, count: int) -> Own:
        """Of the next ``count`` messages; raises MessageFormatError for values that are wrong or too few."""
        headers, priorities, ttls_ms = None, None, None
        if self._properties is not None:
            headers = [encode_header(one, None, None, None) for one in _some("properties", self._properties, count)]
        if self._priority is not None:
            priorities = bytes(map(check_priority, _some("priority", self._priority, count)))
        if self._ttl_ms is not None:
            ttls_ms = array("Q", (check_ms("ttl_ms", one) for one in _some("ttl_ms", self._ttl_ms, count)))
        return Own(headers, priorities, ttls_ms)

    def copies(self, count: int) -> list[Each]:
        """The same for several producers."""
        properties = None if self._properties is None else list(self._properties)
        priority = None if self._priority is None else list(self._priority)
        ttl_ms = None if self._ttl_ms is None else list(self._ttl_ms)
        return [Each(properties, priority, ttl_ms) for _ in range(count)]


def _some(name: str, values: Iterator[Any], count: int) -> list[Any]:
    found = list(islice(values, count))
    if len(found) < count:
        raise MessageFormatError(f"send_many has fewer values of {name} than bodies; give one for each message")
    return found


def encoded(
    bodies: list[Any], encode: Callable[[Any], tuple[int, bytes]], each: Each | None, most: int
) -> tuple[bytes, list[bytes], Own]:
    """(kinds, bodies, columns) of some messages as they travel; raises for a body of more than ``most`` bytes."""
    kinds: bytes
    if set(map(type, bodies)) == _ONLY_BYTES:
        kinds, data = bytes(len(bodies)), bodies
    else:
        items = [encode(body) for body in bodies]
        kinds, data = bytes([kind for kind, _ in items]), [one for _, one in items]
    largest = max(map(len, data))
    if largest > most:
        raise MessageTooLargeError(f"a body of {largest} bytes exceeds imq.message.max_size={most}; send it in parts")
    own = _PLAIN if each is None else each.next(len(bodies))
    if own.headers is not None and any(_COMPRESS in header for header in own.headers):
        rows = [compressed(*row) for row in zip(kinds, data, own.headers, strict=True)]
        kinds, data = bytes([row[0] for row in rows]), [row[1] for row in rows]
        own = own._replace(headers=[row[2] for row in rows])
    return kinds, data, own


def many_options(
    shared: Shared,
    persistent: bool | None,
    properties: Iterable[Mapping[str, Any]] | None,
    priority: int | Iterable[int] | None,
    ttl_ms: int | Iterable[int] | None,
) -> tuple[Shared, Each | None]:
    """What all messages share, and what each has of its own, of the arguments of ``send_many``."""
    if persistent is not None:
        shared = shared._replace(persistent=bool(persistent))
    if isinstance(priority, int):
        shared, priority = shared._replace(priority=check_priority(priority)), None
    if isinstance(ttl_ms, int):
        shared, ttl_ms = shared._replace(ttl_ms=check_ms("ttl_ms", ttl_ms)), None
    if properties is None and priority is None and ttl_ms is None:
        return shared, None
    return shared, Each(properties, priority, ttl_ms)


_PLAIN: Final = Own()
