"""A rolling log file: it becomes an archive when it is large or old, whichever comes first; nine are kept.

``log.txt`` is written; ``log_1.txt`` is the newest archive and ``log_9.txt`` the oldest.  One process writes a file.  A
full disk or a missing directory costs lines and never the process: the first loss is reported on standard error, and
the number of lost lines in the file, once it can be written again.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, TextIO

from raybroker.logs.lines import stamp_of

ARCHIVES_MAX: Final = 9

Limits = Callable[[], tuple[int, int]]
"""The present limits (bytes, seconds), -1 for none; both may change while the file is open."""


class RollingFile(logging.Handler):
    """Handler that appends each record, formatted, to the file at ``path``."""

    def __init__(self, path: Path, limits: Limits) -> None:
        super().__init__()
        self.path = path
        self._limits = limits
        self._file: TextIO | None = None
        self._size = 0
        self._since = 0.0
        """Time of the first line of the file, seconds since 1970."""
        self.lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.append(self.format(record), record.created)

    def append(self, line: str, at: float) -> None:
        """Write one line; ``at``: its time, seconds since 1970."""
        try:
            self._write(at, line + "\n")
        except OSError as error:
            self.lost += 1
            if self.lost == 1:
                sys.stderr.write(f"raybroker: lines for the log {self.path} are lost: {error}\n")
            self._close()

    def _write(self, now: float, line: str) -> None:
        if self._file is None:
            self._open(now)
        data = len(line.encode("utf-8", "replace"))
        most, age_s = self._limits()
        if self._size and ((0 <= most < self._size + data) or (0 <= age_s <= now - self._since)):
            self._roll(now)
        assert self._file is not None
        if self.lost:
            self._file.write(f"{self.lost} lines were lost before this one\n")
            self.lost = 0
        self._file.write(line)
        self._file.flush()
        self._size += data

    def _open(self, now: float) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._file = os.fdopen(descriptor, "a", encoding="utf-8", errors="replace")
        self._size = self.path.stat().st_size
        self._since = now
        if self._size:
            with self.path.open(encoding="utf-8", errors="replace") as written:
                self._since = stamp_of(written.readline(4096)) or now

    def _roll(self, now: float) -> None:
        self._close()
        for number in range(ARCHIVES_MAX, 0, -1):
            source = self.archive(number - 1) if number > 1 else self.path
            if source.exists():
                source.replace(self.archive(number))
        self._open(now)

    def archive(self, number: int) -> Path:
        """Path of an archive by its age; 1 is the newest."""
        return self.path.with_name(f"{self.path.stem}_{number}{self.path.suffix}")

    def _close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            try:
                file.close()
            except OSError:
                self.lost += 1

    def close(self) -> None:
        self._close()
        super().close()
