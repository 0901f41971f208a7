"""Categories of log lines, and the two rules that choose among them.

A *level* stands for itself and everything more severe.  The *output* of a channel is an exact set: ``INFO`` alone is a
channel without errors.  A line is written when both allow it.
"""

from __future__ import annotations

import logging
from typing import Final

from raybroker.model.errors import ConfigError
from raybroker.model.settings.setting_metrics import CATEGORIES

Categories = frozenset[str]
EVERYTHING: Final[Categories] = frozenset(CATEGORIES)


def of_level(level: str) -> Categories:
    """The categories that ``imq.log.level`` lets through; none for "NONE"."""
    return frozenset(CATEGORIES[: CATEGORIES.index(level) + 1]) if level != "NONE" else frozenset()


def of_output(text: str, *, setting: str) -> Categories:
    """The set that "ERROR|WARNING", "ALL" or "NONE" names; raises ConfigError naming the setting."""
    words = [word.strip().upper() for word in text.split("|")]
    if words == ["ALL"]:
        return EVERYTHING
    if words == ["NONE"]:
        return frozenset()
    unknown = [word for word in words if word not in EVERYTHING]
    if unknown:
        raise ConfigError(
            f"{setting}={text!r}: {unknown[0]!r} is none of {', '.join(CATEGORIES)}; write some of them with | between,"
            " or ALL, or NONE"
        )
    return frozenset(words)


def of_record(record: logging.LogRecord) -> str | None:
    """The category of a line; None for a line below INFO, which no channel writes."""
    if record.levelno >= logging.ERROR:
        return "ERROR"
    if record.levelno >= logging.WARNING:
        return "WARNING"
    return "INFO" if record.levelno >= logging.INFO else None
