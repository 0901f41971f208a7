"""The program ``raybroker`` in this process.

Its commands are built once for all tests: that takes 90 ms, and a command mostly much less.
"""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from typing import Any

import typer
from typer.testing import CliRunner

from raybroker.cli.main import app


@dataclass(frozen=True)
class Done:
    """What became of a command."""

    exit_code: int
    stdout_bytes: bytes
    stderr: str
    output: str
    """Both, in the order in which they were written."""
    exception: BaseException | None

    @property
    def stdout(self) -> str:
        return _text(self.stdout_bytes)


def _text(written: bytes) -> str:
    return written.decode(errors="replace").replace("\r\n", "\n")


@functools.cache
def commands() -> Any:
    return typer.main.get_command(app)


def invoke(*words: object, stdin: str | bytes | None = None) -> Done:
    """Run ``raybroker WORDS``; an exception that the program does not answer with an exit code is in the result."""
    code, exception = 0, None
    with CliRunner().isolation(stdin) as streams:
        try:
            commands().main([str(word) for word in words], prog_name="raybroker")
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
            exception = ended if code else None
        except Exception as error:  # noqa: BLE001 (the test says what it makes of it)
            code, exception = 1, error
        sys.stdout.flush()
        sys.stderr.flush()
        stdout, stderr, output = (stream.getvalue() for stream in streams)
    return Done(code, stdout, _text(stderr), _text(output), exception)
