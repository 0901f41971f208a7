"""Columns of ``send_many``: properties, a priority, a time to live and a unit of order for each message."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from raybroker.client.arguments import check_arguments
from raybroker.client.producer.bodies.compression import compressed, compresses, too_large
from raybroker.client.producer.producer_state import Shared
from raybroker.client.producer.send_options import NAMELESS, check_ms, check_priority
from raybroker.client.producer.unit_of_order import check_unit, unit_header, unit_headers
from raybroker.content.bodies import COMPRESS
from raybroker.content.headers import encode_header, many_packer
from raybroker.model.argument import shown
from raybroker.model.errors import MessageFormatError

MANY_MESSAGES: Final = 1024
"""Messages that ``send_many`` takes at a time."""
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
        units: Iterable[str | None] | None = None,
        *,
        shared: Shared,
    ) -> None:
        self._shared = shared
        self._properties = None if properties is None else iter(properties)
        self._priority = None if priority is None else iter(priority)
        self._ttl_ms = None if ttl_ms is None else iter(ttl_ms)
        self._units = None if units is None else iter(units)

    def next(self, count: int) -> Own:
        """Return what the next ``count`` messages have of their own; raises MessageFormatError for values that are
        wrong or too few."""
        priorities, ttls_ms = None, None
        headers = self._headers(count)
        if self._priority is not None:
            priorities = bytes(map(check_priority, _some("priority", self._priority, count)))
        if self._ttl_ms is not None:
            ttls_ms = array("Q", (check_ms("ttl_ms", one) for one in _some("ttl_ms", self._ttl_ms, count)))
        return Own(headers, priorities, ttls_ms)

    def _headers(self, count: int) -> list[bytes] | None:
        named, unit = self._shared.named, self._shared.unit
        units = [unit] * count if self._units is None else _some("unit_of_order", self._units, count)
        if self._properties is not None:
            units = [unit if one is None else check_unit(one) for one in units]
            given = _some("properties", self._properties, count)
            rows = zip(given, units, strict=True)
            pack = many_packer()
            return [encode_header(own, None, None, None, no_id=not named, unit=of, pack=pack) for own, of in rows]
        if self._units is not None:
            return unit_headers(units, unit, b"" if named else NAMELESS, named=named)
        if unit is not None:
            return [unit_header(unit, named=named)] * count
        return None if named else [NAMELESS] * count

    def copies(self, count: int) -> list[Each]:
        """Return the same for several producers."""
        rows = SendRows(*(None if column is None else list(column) for column in self._columns()))
        return [Each(*rows, shared=self._shared) for _ in range(count)]

    def _columns(self) -> tuple[Iterator[Any] | None, ...]:
        return self._properties, self._priority, self._ttl_ms, self._units

    def leave_out(self, *, priority: bool, ttl_ms: bool) -> None:
        """Forget columns: what the messages share holds for all of them."""
        if priority:
            self._priority = None
        if ttl_ms:
            self._ttl_ms = None

    @property
    def has_units(self) -> bool:
        """Each message may have a unit of order of its own."""
        return self._units is not None

    @property
    def has_properties(self) -> bool:
        return self._properties is not None

    def cut(self, count: int) -> SendRows:
        """The values of the next ``count`` messages."""
        names = ("properties", "priority", "ttl_ms", "unit_of_order")
        columns = zip(names, self._columns(), strict=True)
        return SendRows(*(None if column is None else _some(name, column, count) for name, column in columns))

    def select(self, rows: SendRows, chosen: Sequence[int]) -> Each:
        """Some of the values that :meth:`cut` gave."""
        if isinstance(chosen, range):
            picked = SendRows(*(None if column is None else column[chosen.start : chosen.stop] for column in rows))
        else:
            picked = SendRows(*(None if column is None else [column[row] for row in chosen] for column in rows))
        return Each(*picked, shared=self._shared)


class SendRows(NamedTuple):
    """The values of some messages; None where there are none."""

    properties: list[Any] | None
    priorities: list[Any] | None
    ttls_ms: list[Any] | None
    units: list[str | None] | None


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
    if set(map(type, bodies)) == _ONLY_BYTES and not compresses(encode):
        kinds, data = bytes(len(bodies)), bodies
    else:
        items = [encode(body) for body in bodies]
        kinds, data = bytes([kind for kind, _ in items]), [one for _, one in items]
    largest = max(map(len, data))
    if largest > most:
        raise too_large(largest, most)
    own = _PLAIN if each is None else each.next(len(bodies))
    headers = own.headers if each is not None and each.has_properties else None
    if headers is not None and _COMPRESS in b"".join(headers):
        rows = [compressed(*row) for row in zip(kinds, data, headers, strict=True)]
        kinds, data = bytes([row[0] for row in rows]), [row[1] for row in rows]
        own = own._replace(headers=[row[2] for row in rows])
    return kinds, data, own


def _check_column(name: str, column: object) -> None:
    """One value for all messages, or an iterable of values; properties have to be the latter."""
    alone: dict[str, type] = {"priority": int, "ttl_ms": int, "unit_of_order": str}
    if column is None or (name in alone and isinstance(column, alone[name])):
        return
    if isinstance(column, str | bytes | Mapping) or not hasattr(column, "__iter__"):
        one = "" if name == "properties" else "one value for all messages, or "
        raise MessageFormatError(
            f"{name}={shown(column)}; in send_many it is {one}an iterable with one value for each body"
        )


def many_options(
    shared: Shared,
    persistent: bool | None,
    properties: Iterable[Mapping[str, Any]] | None,
    priority: int | Iterable[int] | None,
    ttl_ms: int | Iterable[int] | None,
    unit_of_order: str | Iterable[str | None] | None = None,
) -> tuple[Shared, Each | None]:
    """What all messages share, and what each has of its own, of the arguments of ``send_many``."""
    if persistent is not None:
        check_arguments(persistent=persistent)
        shared = shared._replace(persistent=persistent)
    for name, column in (
        ("properties", properties),
        ("priority", priority),
        ("ttl_ms", ttl_ms),
        ("unit_of_order", unit_of_order),
    ):
        _check_column(name, column)
    if isinstance(priority, int):
        shared, priority = shared._replace(priority=check_priority(priority)), None
    if isinstance(ttl_ms, int):
        shared, ttl_ms = shared._replace(ttl_ms=check_ms("ttl_ms", ttl_ms)), None
    if isinstance(unit_of_order, str):
        shared, unit_of_order = shared._replace(unit=check_unit(unit_of_order)), None
    own = (properties, priority, ttl_ms, unit_of_order)
    if shared.named and shared.unit is None and all(column is None for column in own):
        return shared, None
    return shared, Each(properties, priority, ttl_ms, unit_of_order, shared=shared)


_PLAIN: Final = Own()
