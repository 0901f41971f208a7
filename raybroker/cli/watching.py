"""``--watch``: a command that only reads looks again and again, until Ctrl-C.

At a terminal each look takes the place of the one before; in a pipe, at a dumb terminal and with --json it comes below.
A broker that is away after the first look is waited for, with a line on standard error each time.
"""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext, redirect_stderr, redirect_stdout, suppress
from typing import Annotated, Final, TypeVar

import typer

from raybroker.cli import output
from raybroker.cli.exits import EVERY_S, UNREACHABLE, WATCH
from raybroker.cli.grid_words import moment
from raybroker.system.clock import SystemClock

T = TypeVar("T")
READING: Final = ("list", "query", "check", "why")
"""Verbs whose commands have the option."""
EVERY_S_MIN: Final = 0.5
EVERY_S_MAX: Final = 86_400.0
CLEAR: Final = "\x1b[H\x1b[2J\x1b[3J"
Watch = Annotated[
    float | None,
    typer.Option(
        WATCH,
        metavar="[S]",
        min=EVERY_S_MIN,
        max=EVERY_S_MAX,
        show_default=False,
        help=f"Look again every S seconds, {EVERY_S:g} without a number, until Ctrl-C.",
    ),
]


def watched(
    every_s: float | None, opened: Callable[[], AbstractContextManager[T]], look: Callable[[T], object], *, json: bool
) -> None:
    """Look once, or again and again; ``opened`` is what looks are taken with, opened again when a broker was away."""
    if every_s is None:
        with opened() as through:
            look(through)
        return
    pause, seen = _pause(), False
    with ExitStack() as holding:
        try:
            through = holding.enter_context(opened())
            while True:
                try:
                    _show(through, look, every_s, json=json)
                    seen = True
                except UNREACHABLE as error:
                    if not seen:
                        raise
                    output.error(f"{_time()}: {error}")
                    holding.pop_all().close()
                    through = holding.enter_context(opened())
                pause.wait(every_s)
        except KeyboardInterrupt:  # It is how one ends it.
            return


def _show(through: T, look: Callable[[T], object], every_s: float, *, json: bool) -> None:
    """One look; how complete or how good it is does not end the others."""
    shown, replaces = _LookOutput(), output.is_terminal() and not output.is_dumb() and not json
    with redirect_stdout(shown), redirect_stderr(shown) if replaces else nullcontext(), suppress(typer.Exit):
        look(through)
    head = "" if json else f"{_time()}, every {every_s:g} s\n"
    sys.stdout.write(f"{CLEAR if replaces else ''}{head}{shown.getvalue()}")
    sys.stdout.flush()


_pause: Final = threading.Event


class _LookOutput(io.StringIO):
    """What a look prints, as it is printed where standard output goes."""

    def __init__(self) -> None:
        super().__init__()
        self._terminal = output.is_terminal()

    def isatty(self) -> bool:
        return self._terminal


def _time() -> str:
    return moment(SystemClock().now_ms())
