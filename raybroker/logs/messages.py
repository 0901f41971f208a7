"""``messages.log``: the events of messages of destinations with messageLoggingEnabled, one JSON object a line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from raybroker.logs.files import RollingFile
from raybroker.logs.lines import moment, zone_of

NAME: Final = "messages.log"


class MessagesLog:
    """Writer of the file; called with rows whose ``ms`` is milliseconds since 1970, which it writes with a ``date``."""

    def __init__(self, directory: Path, get: Callable[[str], Any]) -> None:
        self._zone = zone_of(get("imq.log.timezone"))
        self._file = RollingFile(directory / NAME, lambda: (get("raybroker.log.messages_bytes"), -1))

    def __call__(self, row: Mapping[str, Any]) -> None:
        import orjson

        at = row["ms"] / 1000
        date = moment(at, self._zone).isoformat(timespec="milliseconds")
        line = orjson.dumps({"date": date, **row}, default=str, option=orjson.OPT_NON_STR_KEYS)
        self._file.append(line.decode(), at)

    def close(self) -> None:
        self._file.close()
