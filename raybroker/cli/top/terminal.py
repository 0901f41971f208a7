"""The terminal while ``top`` has it: the alternate screen, keys without Enter, signals, and everything as before at the
end, however it ends."""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import select
import signal
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, Final, Self

from raybroker.cli.top.drawing import ScreenLine, Size
from raybroker.cli.top.screen import keys
from raybroker.config.layers import variable

ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[?7l"
LEAVE: Final = "\x1b[?7h\x1b[?25h\x1b[?1049l"
"""The alternate screen, without a cursor and without going on in the next line; and back."""
STYLES: Final = {"title": "1", "head": "7", "warning": "33", "critical": "1;31", "foot": "2"}
WITHOUT_COLOUR: Final = {"title": "1", "head": "7", "critical": "1", "foot": "2"}
READ_BYTES_MAX: Final = 4096
HELD_LINES_MAX: Final = 20
"""Lines of standard error that are kept until the end, the last of them."""
ENDING: Final = (signal.SIGTERM, signal.SIGHUP)


class HeldLines(io.TextIOBase):
    """Standard error while the screen is taken: what is logged meanwhile comes when it is free again."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=HELD_LINES_MAX)

    def write(self, text: str) -> int:
        self.lines.extend(line for line in text.splitlines() if line.strip())
        return len(text)


class Terminal:
    """A context: inside it the terminal is the program's.

    SIGTERM and SIGHUP end the program with 128 and the number; a new size, and :meth:`wake`, end a wait for keys.
    """

    def __init__(self, out: Any = None, fd: int | None = None) -> None:
        self._out = out or sys.stdout
        self._fd = fd if fd is not None else sys.stdin.fileno() if sys.stdin.isatty() else None
        self._styles = WITHOUT_COLOUR if variable("NO_COLOR") is not None else STYLES
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._before: list[Any] | None = None
        self._opened = contextlib.ExitStack()
        self._woken = self._wakes = -1

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opened:
            self._woken, self._wakes = os.pipe()
            os.set_blocking(self._wakes, False)
            opened.callback(os.close, self._woken)
            opened.callback(os.close, self._wakes)
            opened.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False))
            for number in ENDING:
                opened.callback(signal.signal, number, signal.signal(number, _end))
            for number, handler in ((signal.SIGWINCH, _nothing), (signal.SIGTSTP, self._stop)):
                opened.callback(signal.signal, number, signal.signal(number, handler))
            held = HeldLines()
            opened.callback(_say, held, sys.stderr)
            opened.enter_context(contextlib.redirect_stderr(held))
            opened.callback(self._leave)
            self._enter_screen()
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()
        self._wakes = -1

    @property
    def size(self) -> Size:
        found = os.get_terminal_size(self._out.fileno())
        return Size(max(1, found.columns), max(1, found.lines))

    def wake(self) -> None:
        """End a wait for keys, from any thread: there is something new to be shown."""
        with contextlib.suppress(BlockingIOError, OSError):
            os.write(self._wakes, b"\0")

    def keys(self, timeout_s: float) -> Iterator[str]:
        """Wait, at most so long, for keys, a new size or :meth:`wake`; the keys. ``q`` when the terminal is gone."""
        fds = [self._woken] if self._fd is None else [self._woken, self._fd]
        ready, _, _ = select.select(fds, [], [], timeout_s)
        if self._woken in ready:
            os.read(self._woken, READ_BYTES_MAX)
        if self._fd is not None and self._fd in ready:
            try:
                data = os.read(self._fd, READ_BYTES_MAX)
            except OSError:
                data = b""
            yield from keys(self._decoder.decode(data)) if data else ("q",)

    def show(self, lines: Sequence[ScreenLine]) -> None:
        """Draw the whole screen, at once, over what is there."""
        text = "\x1b[H" + "\r\n".join(self._styled(line) + "\x1b[K" for line in lines) + "\x1b[J"
        self._write(text)

    def _styled(self, line: ScreenLine) -> str:
        style = self._styles.get(line.style)
        return f"\x1b[{style}m{line.text}\x1b[0m" if style else line.text

    def _write(self, text: str) -> None:
        data = text.encode(self._out.encoding or "utf-8", "replace")
        self._out.flush()
        fd = self._out.fileno()
        while data:
            data = data[os.write(fd, data) :]

    def _enter_screen(self) -> None:
        import termios
        import tty

        if self._fd is not None:
            self._before = termios.tcgetattr(self._fd)
            tty.setcbreak(self._fd)
        self._write(ENTER)

    def _leave(self) -> None:
        import termios

        with contextlib.suppress(OSError):
            self._write(LEAVE)
        if self._fd is not None and self._before is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        """Ctrl-Z: the shell gets its terminal, and the screen is taken again when the program goes on."""
        self._leave()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._stop)
        self._enter_screen()


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _nothing(number: int, frame: FrameType | None) -> None:
    """It wakes who waits, and that is all."""


def _say(held: HeldLines, where: Any) -> None:
    for line in held.lines:
        print(line, file=where)
