"""The channels of a process's log: console, file and syslog, each with its exact set of categories.

All loggers of the package are below ``raybroker``; :class:`Log` gives their lines to its channels and counts them.
"""

from __future__ import annotations

import logging
import sys
import syslog
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from raybroker.logs import categories
from raybroker.logs.files import RollingFile
from raybroker.logs.lines import JsonFormat, TextFormat, zone_of

ROOT: Final = "raybroker"
PRIORITIES: Final = {"ERROR": syslog.LOG_ERR, "WARNING": syslog.LOG_WARNING, "INFO": syslog.LOG_INFO}

Get = Callable[[str], Any]
"""A setting's value now, by name."""


class Syslog(logging.Handler):
    """The channel to the system's log; ``opened`` and ``written`` stand in for the calls of syslog."""

    def __init__(
        self,
        identity: str,
        facility: str,
        *,
        pid: bool,
        console: bool,
        opened: Callable[[str, int, int], None] = syslog.openlog,
        written: Callable[[int, str], None] = syslog.syslog,
    ) -> None:
        super().__init__()
        self._written = written
        options = (syslog.LOG_PID if pid else 0) | (syslog.LOG_CONS if console else 0)
        opened(identity, options, getattr(syslog, facility))

    def emit(self, record: logging.LogRecord) -> None:
        category = categories.of_record(record)
        if category is not None:
            # A text with a zero byte would be cut there.
            self._written(PRIORITIES[category], record.getMessage().replace("\0", " "))


class _Chosen(logging.Filter):
    """Lets a line through when the level and the categories of the channel both allow it now."""

    def __init__(self, level: Callable[[], str], output: categories.Categories) -> None:
        super().__init__()
        self._level = level
        self._output = output

    def filter(self, record: logging.LogRecord) -> bool:
        category = categories.of_record(record)
        return category is not None and category in self._output and category in categories.of_level(self._level())


class _Counter(logging.Handler):
    def __init__(self, counts: dict[str, int]) -> None:
        super().__init__()
        self._counts = counts

    def emit(self, record: logging.LogRecord) -> None:
        category = categories.of_record(record)
        if category is not None:
            self._counts[category] += 1


class Log:
    """The log of one process.  ``get`` is asked for the level and the file's limits at every line: both may change.

    source  cluster, broker and perhaps host, for lines in JSON
    counts  lines by category, for the metrics; lines that no channel takes count too
    """

    def __init__(self, get: Get, directory: Path, source: Mapping[str, str]) -> None:
        self._get = get
        self.counts = dict.fromkeys(("ERROR", "WARNING", "INFO"), 0)
        self.directory = directory
        self._source = dict(source)
        self._handlers: list[logging.Handler] = []

    def start(self) -> None:
        """Write lines from now on; raises ConfigError for a setting that is not allowed."""
        zone = zone_of(self._get("imq.log.timezone"))
        shape = JsonFormat(zone, self._source) if self._get("raybroker.log.format") == "json" else TextFormat(zone)
        made: dict[str, Callable[[], logging.Handler]] = {
            "console": self._console,
            "file": self._file,
            "syslog": self._syslog,
        }
        for name, output in _outputs(self._get).items():
            if output:
                handler = made[name]()
                handler.setFormatter(shape)
                handler.addFilter(_Chosen(lambda: str(self._get("imq.log.level")), output))
                self._handlers.append(handler)
        self._handlers.append(_Counter(self.counts))
        root = logging.getLogger(ROOT)
        root.setLevel(logging.INFO)
        root.propagate = False
        for handler in self._handlers:
            root.addHandler(handler)

    def stop(self) -> None:
        root = logging.getLogger(ROOT)
        for handler in self._handlers:
            root.removeHandler(handler)
            handler.close()
        self._handlers.clear()
        root.propagate = True

    def _console(self) -> logging.Handler:
        return logging.StreamHandler(sys.stdout if self._get("imq.log.console.stream") == "OUT" else sys.stderr)

    def _file(self) -> RollingFile:
        def limits() -> tuple[int, int]:
            return self._get("imq.log.file.rolloverbytes"), self._get("imq.log.file.rolloversecs")

        return RollingFile(self.directory / self._get("imq.log.file.filename"), limits)

    def _syslog(self) -> Syslog:
        identity = self._get("imq.log.syslog.identity") or f"imqbrokerd_{self._source.get('broker', 'broker')}"
        return Syslog(
            identity,
            self._get("imq.log.syslog.facility"),
            pid=self._get("imq.log.syslog.logpid"),
            console=self._get("imq.log.syslog.logconsole"),
        )


def check(get: Get) -> None:
    """Raises ConfigError for settings that :meth:`Log.start` would refuse, before a process is started with them."""
    zone_of(get("imq.log.timezone"))
    _outputs(get)


def _outputs(get: Get) -> dict[str, categories.Categories]:
    """Channel → the categories that it writes."""
    settings = {name: f"imq.log.{name}.output" for name in ("console", "file", "syslog")}
    return {name: categories.of_output(get(setting), setting=setting) for name, setting in settings.items()}


def directory_of(get: Get, broker_directory: Path, broker: str, host: str = "") -> Path:
    """The directory of a process's log file, different for every process: each file has one writer."""
    given = get("imq.log.file.dirpath")
    folder = Path(given) / broker if given else broker_directory / "log"
    return folder / host if host else folder
