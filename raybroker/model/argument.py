"""Checks of the arguments of public calls: a test of the value, the words for it, and the error of a wrong one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from raybroker.model.errors import BrokerError, ConfigError

_SHOWN_CHARS_MAX: Final = 80
TRUTH: Final = "True or False"

Fits = Callable[[Any], bool]


class Argument(NamedTuple):
    """``fits`` tells whether a value is right, ``allowed`` says in words which are, and ``schema`` in terms of JSON
    Schema what those can of it."""

    fits: Fits
    allowed: str
    error: type[BrokerError] = ConfigError
    schema: tuple[tuple[str, Any], ...] = ()

    def check(self, name: str, value: Any) -> Any:
        """The value; raises ``error`` unless it fits."""
        if not self.fits(value):
            raise self.error(f"{name}={shown(value)}; it is {self.allowed}")
        return value

    def or_none(self) -> Argument:
        """Return one that allows the same, and None."""
        return self._replace(fits=or_none(self.fits), allowed=f"{self.allowed}, or None")


def shown(value: object) -> str:
    """A value as an error shows it: never long, and an object whose repr fails by its type."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - the repr of a user's object can raise anything
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _SHOWN_CHARS_MAX else text[:_SHOWN_CHARS_MAX] + "…"


def whole(low: int, high: int) -> Fits:
    """A whole number from ``low`` to ``high``; True and False are none."""
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def text(low: int, high: int) -> Fits:
    """A text of so many characters that can be written as UTF-8."""

    def fits(value: Any) -> bool:
        if not isinstance(value, str) or not low <= len(value) <= high:
            return False
        return value.isascii() or not any("\ud800" <= char <= "\udfff" for char in value)

    return fits


def or_none(fits: Fits) -> Fits:
    return lambda value: value is None or fits(value)


def truth(value: Any) -> bool:
    return isinstance(value, bool)


def mapping(value: Any) -> bool:
    return isinstance(value, Mapping)


def named(value: Any) -> bool:
    """A mapping whose keys are texts."""
    return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)


def each(fits: Fits) -> Fits:
    """Several, each of which fits: a list, tuple or set, which can be gone through more than once."""
    return lambda value: many(value) and all(fits(item) for item in value)


def many(value: Any) -> bool:
    """Something to iterate over that is not one text."""
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
