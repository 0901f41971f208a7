"""Failpoints: named steps at which a test may end the process or have an error, to prove that this does no harm there.

They are armed by RB_FAILPOINT in the environment of a process: ``[role@]step:n:kill``, or ``@file`` with such a text in
the file.  A process whose role matches (b1, b1/h1, paths; * and ? as in file names) gets SIGKILL when it reaches the
step for the n-th time; with ``fail`` in place of ``kill`` the step has an error of input and output, as that of a disk.
A file is removed first, so that it works once; it may be written at any time.  With ``wait`` the step takes WAIT_S
longer, as on a busy machine, and a file stays.
"""

from __future__ import annotations

import errno
import os
import signal
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from raybroker.model.errors import ConfigError
from raybroker.system.clock import SystemClock

WAIT_S: Final = 6.0


@dataclass(slots=True)
class _Armed:
    role: str
    text: str
    reached: dict[tuple[str, str], int] = field(default_factory=dict)
    """(text, step) → number of times that the step was reached under this text."""

    def at(self, step: str) -> None:
        file = Path(self.text[1:]) if self.text.startswith("@") else None
        try:
            text = file.read_text() if file is not None else self.text
        except OSError:
            return
        if not text:  # the file was made and is not written yet
            return
        role, wanted, number, action = _parsed(text)
        if wanted != step or not fnmatchcase(self.role, role):
            return
        count = self.reached[text, step] = self.reached.get((text, step), 0) + 1
        if count == number and action == "wait":
            SystemClock().sleep(WAIT_S)
        elif count == number and _removed(file):
            if action == "fail":
                raise OSError(errno.EIO, f"{os.strerror(errno.EIO)} (failpoint {step})")
            os.kill(os.getpid(), signal.SIGKILL)


_armed: _Armed | None = None


def arm(role: str, text: str | None) -> None:
    """Arm this process with its role and the text of RB_FAILPOINT; raises ConfigError for a text that is not valid."""
    global _armed  # noqa: PLW0603 - one process has one role
    if text and not text.startswith("@"):
        _parsed(text)
    _armed = _Armed(role, text) if text else None


def armed() -> bool:
    return _armed is not None


def failpoint(step: str) -> None:
    """Mark a step; an armed process may end here, or have an OSError."""
    if _armed is not None:
        _armed.at(step)


def _parsed(text: str) -> tuple[str, str, int, str]:
    """Role, step, number and action of a text; raises ConfigError."""
    where, _, rest = text.strip().partition(":")
    number, _, action = rest.partition(":")
    role, at, step = where.rpartition("@")
    if not step or not number.isdecimal() or action not in ("kill", "fail", "wait"):
        raise ConfigError(f"RB_FAILPOINT is [role@]step:number:kill, or fail or wait at its end, not {text!r}")
    return role if at else "*", step, int(number), action


def _removed(file: Path | None) -> bool:
    """Remove the file, if there is one; false when another process has removed it first."""
    try:
        if file is not None:
            file.unlink()
    except OSError:
        return False
    return True
