"""``boards render``: the boards of the metrics as pictures, without Grafana."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from raybroker.cli import output
from raybroker.cli.exits import Commands, Exit, UsageError
from raybroker.cli.tools.analyze import asking_of
from raybroker.system.clock import SystemClock

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    short_help="The boards of the metrics, drawn without Grafana.",
    help="The boards of the metrics, which Grafana shows, drawn without it.",
)


@app.callback()
def group() -> None:
    """Keeps the word render: a program of a single command would go without it."""


@app.command()
def render(
    prometheus: Annotated[
        str, typer.Option("--prometheus", metavar="URL", help="The Prometheus server, such as http://localhost:9090.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the pictures come, as BOARD.png.")],
    board: Annotated[list[str] | None, typer.Argument(metavar="[BOARD]...", help="These; else all of them.")] = None,
    cluster: Annotated[str, typer.Option("--cluster", metavar="NAME", help="The cluster they show.")] = "default",
    broker: Annotated[str, typer.Option("--broker", metavar="REGEX", help="Its brokers that are shown.")] = ".*",
    destination: Annotated[
        str, typer.Option("--destination", metavar="REGEX", help="The destinations that are shown.")
    ] = ".*",
    minutes: Annotated[float, typer.Option("--minutes", help="The time they show, up to now.", min=0.1)] = 15.0,
    window: Annotated[str, typer.Option("--window", metavar="TIME", help="What rates are over; a few scrapes.")] = "1m",
    token_file: Annotated[
        Path | None, typer.Option("--token-file", metavar="FILE", help="With the token that the server asks for.")
    ] = None,
    trust: Annotated[
        Path | None, typer.Option("--trust", metavar="FILE", help="Of https: certificates that are accepted, as PEM.")
    ] = None,
) -> None:
    """Draw boards as PNG files: raybroker boards render --prometheus http://localhost:9090 --out pictures"""
    from raybroker.boards.catalogue import boards
    from raybroker.boards.drawing import Drawing
    from raybroker.boards.queries import Prometheus

    found = boards()
    for name in board or ():
        if name not in found:
            raise UsageError(f"there is no board {name}; there are {', '.join(found)}")
    end_s = SystemClock().now_ms() / 1000
    variables = {"cluster": cluster, "broker": broker, "destination": destination, "__rate_interval": window}
    asked = Prometheus(prometheus, asking_of(token_file, trust, ""))
    drawing = Drawing(asked, variables, end_s - minutes * 60, end_s)
    out.mkdir(parents=True, exist_ok=True)
    for name in board or found:
        try:
            drawing.draw(found[name], out / f"{name}.png")
        except (OSError, ValueError, KeyError) as error:
            output.error(f"{prometheus} does not answer as a Prometheus server: {error}")
            raise typer.Exit(Exit.UNREACHABLE) from None
        output.say(str(out / f"{name}.png"))
