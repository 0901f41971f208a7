"""The progress of the demo: a live picture at a terminal, a line now and then in a pipe, and the summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from raybroker.demo.check import Check
from raybroker.demo.watch import Picture

LINE_S: Final = 2.0
EVENTS_SHOWN: Final = 8


class Display:
    """``note`` says what happens; ``update`` renews the picture."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live: Live | None = None
        self._line_due_s = 0.0
        self._picture: Picture | None = None

    def note(self, picture: Picture, text: str) -> None:
        """Something happened that is worth a line."""
        picture.events.append((picture.seconds, text))
        if not self.console.is_terminal:
            self._plain(f"{picture.seconds:6.1f} s  {text}")

    def begin_progress(self, picture: Picture) -> None:
        """Begin to show progress."""
        if self.console.is_terminal:
            self._live = Live(draw(picture), console=self.console, auto_refresh=False, transient=False)
            self._live.start()

    def update(self, picture: Picture) -> None:
        if self._live is not None:
            self._live.update(draw(picture), refresh=True)
        elif picture.seconds >= self._line_due_s and not self.console.is_terminal:
            self._line_due_s = picture.seconds + LINE_S
            if picture.subscribers:
                self._plain(
                    f"{picture.seconds:6.1f} s  "
                    + "  ".join(f"{one['name']} {one['got']:,} of {one['of']:,}" for one in picture.subscribers)
                )
                return
            self._plain(
                f"{picture.seconds:6.1f} s  stored {picture.stored:,} ({picture.stored_rate.value:,.0f}/s)"
                f"  checked {picture.distinct:,} ({picture.done_rate.value:,.0f}/s)"
                f"  backlog {picture.queue.get('waiting', 0):,}  buffered {picture.buffered:,}"
                f"  redelivered {picture.redelivered:,}"
            )

    def end_progress(self, picture: Picture) -> None:
        """The last picture stays."""
        if self._live is not None:
            self._live.update(draw(picture), refresh=True)
            self._live.stop()
            self._live = None

    def say(self, text: str) -> None:
        if self.console.is_terminal:
            self.console.print(text, highlight=False)
        else:
            self._plain(text)

    def _plain(self, text: str) -> None:
        self.console.file.write(text + "\n")
        self.console.file.flush()

    def summary(self, facts: dict[str, str], checks: Sequence[Check]) -> None:
        """The checks, then the figures."""
        if not self.console.is_terminal:
            for check in checks:
                self._plain(f"{'ok  ' if check.good else 'FAIL'}  {check.name}: {check.found}")
            for name, value in facts.items():
                self._plain(f"{name}: {value}")
            return
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        for check in checks:
            mark = Text("✔", style="bold green") if check.good else Text("✘", style="bold red")
            table.add_row(mark, check.name, Text(check.found, style="dim" if check.good else "red"))
        self.console.print(Padding(table, (1, 2, 1, 2)))
        figures = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        for name, value in facts.items():
            figures.add_row(Text(name, style="bold"), value)
        self.console.print(Padding(figures, (0, 2, 1, 2)))


def draw(picture: Picture) -> Any:
    """The live picture."""
    return Group(
        Padding(_bars(picture), (1, 2, 0, 2)),
        Padding(_counts(picture), (1, 2, 0, 2)),
        Padding(_consumers(picture), (1, 2, 0, 2)),
        *([Padding(_subscribers(picture), (0, 2, 0, 2))] if picture.subscribers else []),
        Padding(_events(picture), (1, 2, 1, 2)),
    )


def _bars(picture: Picture) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(width=40)
    for _ in range(3):
        table.add_column(justify="right", min_width=10)
    for name, count, rate, style in (
        ("stored", picture.stored, picture.stored_rate.value, "cyan"),
        ("checked", picture.distinct, picture.done_rate.value, "green"),
    ):
        bar = ProgressBar(
            total=picture.rows, completed=min(count, picture.rows), width=40, complete_style=style, finished_style=style
        )
        share = f"{100 * count / picture.rows:.0f} %"
        table.add_row(name, bar, share, f"{count:,}", f"{rate:,.0f}/s")
    return table


def _counts(picture: Picture) -> Text:
    queue = picture.queue
    text = Text()
    for name, value in (
        ("backlog", queue.get("waiting", 0)),
        ("unacknowledged", queue.get("unacknowledged", 0)),
        ("buffered", picture.buffered),
        ("redelivered", picture.redelivered),
    ):
        text.append(f"{name} ", style="dim")
        text.append(f"{value:,}", style="bold yellow" if name == "redelivered" and value else "bold")
        text.append("    ")
    text.append(f"{picture.seconds:.1f} s", style="dim")
    return text


def _consumers(picture: Picture) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim")
    table.add_column("consumer")
    for name in ("process", "messages", "buffered", "redelivered"):
        table.add_column(name, justify="right", min_width=9)
    for number, consumer in enumerate(picture.consumers, start=1):
        handled = f"{picture.handled[number - 1]:,}" if number <= len(picture.handled) else "0"
        if "pid" in consumer:
            values = [str(consumer["pid"]), handled, f"{consumer['buffered']:,}", f"{consumer['redelivered']:,}"]
            table.add_row(str(number), *values)
        else:
            table.add_row(str(number), Text("restarting", style="bold red"), handled, "-", "-")
    return table


def _subscribers(picture: Picture) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim")
    table.add_column("subscriber")
    table.add_column("kind")
    for name in ("readings", "of"):
        table.add_column(name, justify="right", min_width=9)
    table.add_column("selector")
    for one in picture.subscribers:
        kind = Text("durable" if one["durable"] else "plain")
        if not one["open"]:
            kind = Text("away", style="bold red")
        table.add_row(one["name"], kind, f"{one['got']:,}", f"{one['of']:,}", one["selector"] or "")
    return table


def _events(picture: Picture) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", style="dim")
    for seconds, text in picture.events[-EVENTS_SHOWN:]:
        table.add_row(f"{seconds:.1f} s", text)
    return table
