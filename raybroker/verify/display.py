"""The progress of a run on standard error: a live picture at a terminal, a line now and then elsewhere."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

LINE_S: Final = 2.0
EVENTS_SHOWN: Final = 10
COUNTS: Final = ("sent", "confirmed", "delivered", "acknowledged", "flagged")


class VerifyDisplay:
    """``note`` says what happens; ``update`` renews the counts. The picture stays when it is closed."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._events: deque[tuple[float, str]] = deque(maxlen=EVENTS_SHOWN)
        self._live: Live | None = None
        self._due_s = 0.0
        self._seconds = 0.0
        self._counts: dict[str, Any] = {}

    def note(self, text: str) -> None:
        """Something happened that is worth a line."""
        self._events.append((self._seconds, text))
        if self._console.is_terminal:
            self._renew()
        else:
            self._line(text)

    def update(self, seconds: float, counts: dict[str, Any]) -> None:
        """Show the counts so far."""
        self._seconds, self._counts = seconds, counts
        if self._console.is_terminal:
            self._renew()
        elif seconds >= self._due_s:
            self._due_s = seconds + LINE_S
            said = "  ".join(f"{name} {counts[name]:,}" for name in COUNTS)
            self._line(f"{said}  findings {counts['broken']:,}")

    def _line(self, text: str) -> None:
        self._console.file.write(f"{self._seconds:7.1f} s  {text}\n")
        self._console.file.flush()

    def _renew(self) -> None:
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        self._live.update(self._picture(), refresh=True)

    def _picture(self) -> Any:
        counts = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        for name in COUNTS:
            counts.add_row(Text(name, style="bold"), Text(f"{self._counts.get(name, 0):,}", justify="right"))
        broken = self._counts.get("broken", 0)
        counts.add_row(
            Text("findings", style="bold"),
            Text(f"{broken:,}", justify="right", style="bold red" if broken else "green"),
        )
        events = Table.grid(padding=(0, 2))
        events.add_column(justify="right", style="dim")
        for seconds, text in self._events:
            events.add_row(f"{seconds:.1f} s", text)
        return Group(Padding(counts, (1, 2, 0, 2)), Padding(events, (1, 2, 1, 2)))

    def end_progress(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
