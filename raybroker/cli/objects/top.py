"""``top``: destinations, brokers, connections or consumers with their rates, renewed while one looks."""

from __future__ import annotations

import threading
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from raybroker.cli import connecting, output
from raybroker.cli.grid_words import Cluster, Json
from raybroker.cli.top.screen import Screen
from raybroker.cli.top.views import VIEWS, chosen
from raybroker.system.clock import SystemClock

if TYPE_CHECKING:
    from raybroker.cli.top.asking import Looking
    from raybroker.cli.top.figures import Sight

DRAW_S: Final = 0.5
"""The screen is drawn again at least so often: ages go on while nothing is told."""


class ShownView(StrEnum):
    """What is shown at first."""

    destinations = "destinations"
    brokers = "brokers"
    connections = "connections"
    consumers = "consumers"


def top(
    interval: Annotated[float, typer.Option("--interval", "-i", metavar="S", help="Between looks.", min=0.05)] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look twice, print one table, end.")] = False,
    show: Annotated[ShownView, typer.Option("--show", help="What is shown at first.")] = ShownView.destinations,
    sort: Annotated[str | None, typer.Option("--sort", metavar="COLUMN", help="Sort by this column.")] = None,
    reverse: Annotated[bool, typer.Option("--reverse", help="Turn the order round.")] = False,
    having: Annotated[str, typer.Option("--filter", metavar="TEXT", help="Only rows that have this text.")] = "",
    cluster: Cluster = "default",
    json: Json = False,
) -> None:
    """Show live what needs attention, and destinations with their rates: raybroker top --sort messages

    The first lines tell how old the figures are, who does not answer, and what is not well.

    Keys: 1 destinations, 2 brokers, 3 connections, 4 consumers; left and right choose the column to sort by, r turns
    the order round, / filters, p pauses, ? shows all keys, q or Ctrl-C ends. In a pipe, and with --once, tables are
    printed.
    """
    from raybroker.cli.top.asking import Looking

    screen = Screen(filter=having).showing(show.value)
    screen = screen.sorted_by(screen.table.column(sort or VIEWS[show.value].sort), reverse=reverse)
    looking = Looking(lambda: connecting.administering(cluster))
    try:
        sight = looking.first(screen.view)
        if once or json or not output.is_terminal():
            _print(looking, screen, interval, once=once, json=json)
        else:
            _live(looking, screen, sight, interval, cluster)
    finally:
        looking.close()


def _print(looking: Looking, screen: Screen, interval: float, *, once: bool, json: bool) -> None:
    """Tables one after the other, with what needs attention above each."""
    from raybroker.cli.top.drawing import attention, plain_rows

    clock, pause = SystemClock(), threading.Event()
    while True:
        pause.wait(interval)
        sight = looking.sample(screen.view)
        now_ns = clock.monotonic_ns()
        rows = chosen(sight.rows[screen.view], screen.table, screen.sort, screen.filter)
        told = plain_rows(rows, now_ns)
        if json:
            output.as_json(told)
        else:
            for line in attention(sight, now_ns):
                output.say(line.text)
            output.table(told, screen.table.columns, empty=f"no {screen.view}", less=screen.table.less)
        if once:
            return


def _live(looking: Looking, screen: Screen, sight: Sight, interval: float, cluster: str) -> None:
    from raybroker.cli.top.asking import Asker
    from raybroker.cli.top.drawing import ScreenTerms, picture
    from raybroker.cli.top.terminal import Terminal

    clock, latest, terms = SystemClock(), [sight], ScreenTerms(cluster, interval)

    with Terminal() as terminal:

        def told(new: Sight) -> None:
            latest[0] = new
            terminal.wake()

        asker = Asker(looking, interval, told, screen.view)
        asker.start()
        try:
            while not screen.ended:
                if not screen.paused:
                    sight = latest[0]
                drawn = picture(screen, sight, terms, terminal.size, clock.monotonic_ns())
                terminal.show(drawn.lines)
                screen = screen.within(drawn.rows, drawn.page)
                for key in terminal.keys(DRAW_S):
                    screen = screen.pressed(key, drawn.page)
                asker.show(screen.view, paused=screen.paused)
        except KeyboardInterrupt:
            return
        finally:
            asker.stop()
