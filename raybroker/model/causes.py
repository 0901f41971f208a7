"""Causes of a failed delivery: what they are called, and the attributes of a destination that go by them.

A destination counts failures by their cause.  ``redeliveryLimit`` is for those of the application and, unless
``redeliveryLimitByCause`` says otherwise, for those whose limit is ``SAME`` here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from raybroker.model.errors import ConfigError
from raybroker.model.settings.setting import Value

ERROR: Final = "error"
"""The application has raised, or failed the message: redeliveryLimit."""
OOM: Final = "oom"
LOST: Final = "lost"
PREEMPTED: Final = "preempted"
TIMEOUT: Final = "timeout"
POISON: Final = "poison"
APART: Final = (OOM, LOST, PREEMPTED, TIMEOUT, POISON)
"""Causes that are counted apart from the application's own failures, each by its place here."""
CAUSES: Final = (ERROR, *APART)
COUNT_MAX: Final = 255
"""Failures of one cause are counted up to here."""
UNLIMITED: Final = -1
SAME: Final = -2
"""The limit is that of redeliveryLimit."""
LIMITS: Final[Mapping[str, int]] = {OOM: 3, LOST: SAME, PREEMPTED: UNLIMITED, TIMEOUT: SAME, POISON: 0}
FAILS: Final[Mapping[str, str]] = {"fail": ERROR, **{f"fail.{cause}": cause for cause in APART}}
"""Outcome of a delivery that has failed → the cause."""


def outcome_of(cause: str) -> str:
    """The outcome of a delivery that has failed for that cause."""
    return "fail" if cause == ERROR else f"fail.{cause}"


def parse_limits(text: str) -> dict[str, int]:
    """The limits of e.g. ``oom=2, preempted=-1``, without those that are not named; raises ConfigError."""
    found: dict[str, int] = {}
    for cause, value in _pairs("redeliveryLimitByCause", text):
        digits = value.removeprefix("-")
        number = int(value) if digits.isascii() and digits.isdecimal() and len(digits) <= 3 else COUNT_MAX
        if not UNLIMITED <= number < COUNT_MAX:
            raise _refusal("redeliveryLimitByCause", text, f"{cause}={value}; it is -1 (no limit) to {COUNT_MAX - 1}")
        found[cause] = number
    return found


def parse_destinations(text: str) -> dict[str, str]:
    """The queues of e.g. ``oom=work.large, poison=work.broken`` by cause; raises ConfigError."""
    return dict(_pairs("errorDestinationByCause", text))


def _pairs(attribute: str, text: str) -> list[tuple[str, str]]:
    found: dict[str, str] = {}
    for part in text.split(",") if text.strip() else ():
        cause, equals, value = (one.strip() for one in part.partition("="))
        if not equals or not value:
            raise _refusal(attribute, text, f"{part.strip()!r} is not of the form CAUSE=VALUE")
        if cause not in APART:
            raise _refusal(attribute, text, f"{cause!r} is no cause; those are {', '.join(APART)}")
        if cause in found:
            raise _refusal(attribute, text, f"{cause} is there twice; leave one out")
        found[cause] = value
    return list(found.items())


def _refusal(attribute: str, text: Value, why: str) -> ConfigError:
    return ConfigError(f"{attribute} = {text!r:.120}: {why}")
