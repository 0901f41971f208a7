"""The two forms of a log line: ``[time zone] SEVERITY [code]: text``, and one JSON object.

INFO lines have no severity.  The code is the ``[B2102]`` at the beginning of a text; texts without it have no code.
"""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime, tzinfo
from typing import Any, Final

from raybroker.logs.categories import of_record
from raybroker.model.errors import ConfigError

_CODE: Final = re.compile(r"\[(B\d{4})\] ?")
_STAMP: Final = re.compile(r'\[([^\] ]+)|\{"time":"([^"]+)"')


def zone_of(text: str) -> tzinfo | None:
    """The time zone of ``imq.log.timezone``; None for the zone of the machine.  Raises ConfigError."""
    from zoneinfo import ZoneInfo

    if text == "local":
        return None
    try:
        return ZoneInfo(text)
    except (OSError, ValueError, KeyError):  # ZoneInfoNotFoundError is a KeyError; a directory is an OSError
        raise ConfigError(f"imq.log.timezone={text!r} is no time zone; write one like Asia/Tokyo, or local") from None


def moment(seconds: float, zone: tzinfo | None) -> datetime:
    """A time in a zone; ``seconds``: since 1970."""
    return datetime.fromtimestamp(seconds, UTC).astimezone(zone)


def _parts(record: logging.LogRecord) -> tuple[str, str]:
    """The code and the text of a record, with the traceback of its exception."""
    text = record.getMessage()
    if record.exc_info:
        text += "\n" + logging.Formatter().formatException(record.exc_info)
    found = _CODE.match(text)
    return (found[1], text[found.end() :]) if found else ("", text)


class TextFormat(logging.Formatter):
    """Form for people; a text of several lines continues on the next ones."""

    def __init__(self, zone: tzinfo | None) -> None:
        super().__init__()
        self._zone = zone

    def format(self, record: logging.LogRecord) -> str:
        when, category = moment(record.created, self._zone), of_record(record)
        code, text = _parts(record)
        severity = f" {category}" if category in ("ERROR", "WARNING") else ""
        shown = f" [{code}]" if code else ""
        return f"[{when.isoformat(timespec='milliseconds')} {when.tzname()}]{severity}{shown}: {text}"


class JsonFormat(logging.Formatter):
    """Form for programs: one JSON object a line, with the fields of ``extra={"fields": {...}}``."""

    def __init__(self, zone: tzinfo | None, source: dict[str, str]) -> None:
        super().__init__()
        self._zone = zone
        self._source = source

    def format(self, record: logging.LogRecord) -> str:
        import orjson

        code, text = _parts(record)
        row: dict[str, Any] = {
            "time": moment(record.created, self._zone).isoformat(timespec="milliseconds"),
            "category": of_record(record) or "DEBUG",
            **self._source,
            "logger": record.name,
            **({"code": code} if code else {}),
            "text": text,
            **getattr(record, "fields", {}),
        }
        return orjson.dumps(row, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def stamp_of(line: str) -> float | None:
    """Time of a line of either form, seconds since 1970; None for any other line."""
    found = _STAMP.match(line)
    try:
        return datetime.fromisoformat(found[1] or found[2]).timestamp() if found else None
    except (ValueError, OverflowError):
        return None
