"""The definition of one property: its name, kind, unit, default, bounds, and when a change takes effect.

A :class:`Setting` turns what a user wrote into a typed value or raises a ConfigError that names the property, the limit
and what to do.  The table of all of them is ``setting_table.py``; looking them up is ``settings.py``.

Every kind has one Python type: int, size (bytes), percent, seconds and millis are ``int``; bool is ``bool``; string and
enum are ``str``; ports is a ``PortRange``; levels, four integers with slashes between or nothing, is ``str``; spin,
"auto", "off" or microseconds, is ``int``, -1 for the first and 0 for the second.  Where -1
means "no limit" the setting says ``unlimited`` and its bounds speak of the other values, so that "0 is not allowed, -1
is" can be written down.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

from raybroker.model.errors import ConfigError
from raybroker.model.sizes import UNLIMITED, format_size_bytes, parse_size_bytes

Kind = Literal["int", "bool", "size", "percent", "enum", "string", "seconds", "millis", "ports", "levels", "spin"]
Scope = Literal["broker", "destination", "factory"]
Reload = Literal["start", "live", "gradual", "fixed"]

INT_MAX: Final = 2147483647
VERSION_MAX: Final = 1 << 53
"""Largest version, of a message or published (versionKey): a number of floating point has it exactly."""
"""The largest value of MQ's integer properties."""
PRIORITY_MAX: Final = 9
PRIORITY_DEFAULT: Final = 4
DELIVERY_MODES: Final = ("Persistent", "Non-Persistent")
DAY_MS: Final = 24 * 60 * 60 * 1000
OVERRIDE_MS_MAX: Final = 3660 * DAY_MS
"""Ten years: longer than any message lives, and far from where absolute times would overflow."""


class PortRange(NamedTuple):
    """TCP ports from ``low`` to ``high``, both included; (0, 0) means any free port."""

    low: int
    high: int

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"


Value = int | bool | str | PortRange

_INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_PORTS = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?", re.ASCII)
_TRUE: Final = frozenset({"true", "yes", "on", "1"})
_FALSE: Final = frozenset({"false", "no", "off", "0"})
_STRING_CHARS_MAX = 4096
_PORT_MAX = 65535
_SPIN_WORDS: Final = {"auto": -1, "off": 0}
_SPIN_US_MAX = 1000
"""Longest spin: what is waited for so long comes after a sleep as well."""
_LEVELS = 4
"""Memory levels: green, yellow, orange and red."""


class Setting(NamedTuple):
    """One property.

    name       exactly as in MQ or WebLogic, or our own with the prefix ``raybroker.``
    kind       decides the Python type, see the module
    default    typed; what holds when nobody says otherwise
    scope      'broker' (the configuration), 'destination' (attributes of one) or 'factory' (attributes of connections)
    help       one sentence or two for users, with the reason where we differ from them
    unit       of an integer: 'messages', 'bytes', 's', 'ms', '%', …; '' where there is none
    low, high  bounds of a number, both allowed; None: no bound on that side
    unlimited  -1 is allowed beside the bounds and means ``minus_one``
    minus_one  what -1 means, in words
    only       'queue' or 'topic': the attribute is refused for the other type; '' for both
    choices    of an enum
    example    a value of kind levels, for error texts
    later      choices that the design has and this version has not
    secret     a value that is shown nowhere, and that a broker's configuration may not have
    reload     'start': read at start; 'live': an update takes effect at once; 'gradual': step by step, while it is
               used; 'fixed': never changes after creation
    """

    name: str
    kind: Kind
    default: Value
    scope: Scope
    help: str
    unit: str = ""
    low: int | None = None
    high: int | None = None
    unlimited: bool = False
    minus_one: str = "no limit"
    only: Literal["", "queue", "topic"] = ""
    choices: tuple[str, ...] = ()
    example: str = ""
    later: tuple[str, ...] = ()
    secret: bool = False
    reload: Reload = "start"

    def parse(self, value: object) -> Value:
        """The typed value that ``value`` (typed already, or text) means.

        Raises ConfigError naming this property, the limit and what to do.
        """
        match self.kind:
            case "bool":
                return self._bool(value)
            case "enum":
                return self._enum(value)
            case "string":
                return self._string(value)
            case "ports":
                return self._ports(value)
            case "levels":
                return self._levels(value)
            case "spin":
                return self._spin(value)
            case "size":
                return self._bounded(self._size(value), value)
            case _:
                return self._bounded(self._integer(value), value)

    def format(self, value: Value) -> str:
        """The text that :meth:`parse` reads back as ``value``."""
        if isinstance(value, bool):
            return "true" if value else "false"
        if self.kind == "size" and isinstance(value, int):
            return format_size_bytes(value)
        if self.kind == "spin":
            return next((word for word, number in _SPIN_WORDS.items() if number == value), str(value))
        return str(value)

    def bounds(self) -> str:
        """The allowed values in words, for error texts and for ``--explain``."""
        match self.kind:
            case "bool":
                return "true or false"
            case "enum":
                return "one of " + ", ".join(self.choices)
            case "string":
                return f"text of at most {_STRING_CHARS_MAX} characters"
            case "levels":
                return f"four integers of {self.low} to {self.high}, with slashes between, such as {self.example}"
            case "spin":
                return f"auto, off, or 1 to {_SPIN_US_MAX} µs"
            case "ports":
                return "a port or a range of ports such as 20000-20999, or 0 for any free port"
        show = format_size_bytes if self.kind == "size" else str
        unit = f" {self.unit}" if self.unit and self.kind != "size" else ""
        if self.low is not None and self.high is not None:
            text = f"{show(self.low)} to {show(self.high)}{unit}"
        elif self.low is not None:
            text = f"{show(self.low)}{unit} or more"
        else:
            text = f"an integer{unit}"
        return text + (f", or -1 for {self.minus_one}" if self.unlimited else "")

    def _refuse(self, value: object, why: str) -> ConfigError:
        shown = "…" if self.secret else repr(value)
        return ConfigError(f"{self.name} = {shown[:80]} {why}; allowed: {self.bounds()}")

    def _integer(self, value: object) -> int:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, str) and _INTEGER.fullmatch(value.strip()):
            return int(value)
        raise self._refuse(value, "is not an integer")

    def _size(self, value: object) -> int:
        try:
            return parse_size_bytes(value)
        except ConfigError as error:
            raise ConfigError(f"{self.name}: {error}") from None

    def _bounded(self, number: int, value: object) -> int:
        if self.unlimited and number == UNLIMITED:
            return number
        if self.low is not None and number < self.low:
            raise self._refuse(value, "is too small")
        if self.high is not None and number > self.high:
            raise self._refuse(value, "is too large")
        return number

    def _bool(self, value: object) -> bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.strip().lower() in _TRUE:
            return True
        if isinstance(value, str) and value.strip().lower() in _FALSE:
            return False
        raise self._refuse(value, "is neither true nor false")

    def _enum(self, value: object) -> str:
        if isinstance(value, bool):  # As a cluster file has it, where true and false are among the choices.
            value = str(value)
        if isinstance(value, str):
            for choice in self.choices:
                if value.strip().lower() == choice.lower():
                    return choice
            for choice in self.later:
                if value.strip().lower() == choice.lower():
                    raise self._refuse(value, "is not built yet in this version")
        raise self._refuse(value, "is not one of its values")

    def _string(self, value: object) -> str:
        if not isinstance(value, str):
            raise self._refuse(value, "is not a text")
        if len(value) > _STRING_CHARS_MAX or "\0" in value:
            raise self._refuse(value, "is too long or contains a NUL")
        return value

    def _levels(self, value: object) -> str:
        text = self._string(value).strip()
        if not text:
            return ""
        parts = [part.strip() for part in text.split("/")]
        if len(parts) != _LEVELS:
            raise self._refuse(value, f"is not one number for each of {_LEVELS} levels")
        return "/".join(str(self._bounded(self._integer(part), value)) for part in parts)

    def _spin(self, value: object) -> int:
        if isinstance(value, bool):  # As a file has it where off is false.
            value = "auto" if value else "off"
        if isinstance(value, str) and value.strip().lower() in _SPIN_WORDS:
            return _SPIN_WORDS[value.strip().lower()]
        number = self._integer(value)
        if not min(_SPIN_WORDS.values()) <= number <= _SPIN_US_MAX:
            raise self._refuse(value, "is no time to spin")
        return number

    def _ports(self, value: object) -> PortRange:
        text = str(value) if isinstance(value, int | PortRange) and not isinstance(value, bool) else value
        match = _PORTS.fullmatch(text.strip()) if isinstance(text, str) else None
        if match is None:
            raise self._refuse(value, "is not a port or a range of ports")
        low = int(match[1])
        high = int(match[2]) if match[2] is not None else low
        if low > high or high > _PORT_MAX or (low == 0 and high != 0):
            raise self._refuse(value, f"is not a range within 1-{_PORT_MAX}")
        return PortRange(low, high)
