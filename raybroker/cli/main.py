"""The program ``raybroker``: puts its commands together. What they do is in the files beside this one."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from raybroker.cli import contexts, groups
from raybroker.cli.exits import Commands
from raybroker.cli.grid_words import show_version
from raybroker.cli.mq import programs
from raybroker.cli.objects import (
    auditing,
    brokers,
    checking,
    cluster,
    definitions,
    ending,
    messages,
    metrics,
    pools,
    schedules,
    services,
    stored,
    table,
    top,
    why,
)
from raybroker.cli.outside import reachable
from raybroker.cli.tools import (
    analyze,
    bench,
    boards,
    dbmgr,
    demo,
    instances,
    keytool,
    manual,
    objmgr,
    salvage,
    up,
    usermgr,
)
from raybroker.cli.tools import (
    context as context_commands,
)

EPILOG = (
    "Exit codes: 0 done, 1 refused by the broker (reason on standard error), 2 usage, 3 no cluster reachable, "
    "4 import or salvage with --dry-run has something to do; of check "
    "those of Nagios: 0 ok, 1 warning, 2 critical, 3 unknown, which a usage error is there too."
)

app = typer.Typer(
    name="raybroker",
    cls=Commands,
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EPILOG,
)


@app.callback()
def program(
    version: Annotated[
        bool, typer.Option("-v", "--version", callback=show_version, is_eager=True, help="Print the version and end.")
    ] = False,
    context: Annotated[
        str | None,
        typer.Option("--context", metavar="NAME", help="How a broker is reached, by a name: see raybroker context."),
    ] = None,
) -> None:
    """A durable message broker whose brokers and queues are Ray actors.

    \b
    See it work on real data:
      raybroker demo
    \b
    First steps:
      raybroker up                     a cluster, and a Ray for it if none runs
      raybroker create dst -t q -n orders -o consumerFlowLimit=20
      raybroker send orders hello
      raybroker list dst               what is where; --json for programs
      raybroker receive orders
      raybroker list msg -n mq.sys.dmq      what could not be delivered; retry msg sends it back
      raybroker top                    rates, live
      raybroker down                   messages stay on disk until the next up
      raybroker help                   the topics of the manual; help concepts shows a page
    \b
    Completion of commands in bash, zsh, fish and PowerShell:
      raybroker --install-completion
    \b
    From Python:
      import raybroker as rb
      with rb.connect() as conn: ...
    """
    contexts.wanted.set(context)


OUTSIDE: Final = (auditing.audit, top.top, services.why_denied, messages.send, messages.receive)
"""Commands that are no verbs of the grid, and work from outside the Ray cluster too."""

for function, short in (
    (up.up, "Start a cluster, and a Ray for it if none runs."),
    (up.down, "Stop a cluster; its messages stay on disk."),
    (instances.remove, "Delete an instance that is down, with its stores."),
    (demo.demo, "Real data through a queue, a kill, a check."),
    (bench.bench, "Measure the running cluster."),
    (top.top, "Destinations and their rates, live."),
    (auditing.audit, "What will hurt one day: numbered checks, with what to do."),
    (metrics.discover, "Write down for Prometheus where the brokers' metrics are."),
    (analyze.collect, "Write the brokers' metrics into a lake."),
    (analyze.analyze, "Analyse a lake of metrics with Spark."),
    (salvage.salvage, "Bring out what is intact in a damaged store."),
    (services.why_denied, "Whether a user may do something, and by which rule."),
    (messages.send, "Send messages to a queue or a topic."),
    (messages.receive, "Take or browse messages and print them."),
):
    app.command(short_help=short)(reachable(function) if function in OUTSIDE else function)
app.command("help", short_help="Show a page of the manual, or list its topics.")(manual.show)
groups.attach(
    app,
    (
        table,
        brokers,
        schedules,
        definitions,
        stored,
        cluster,
        metrics,
        services,
        ending,
        checking,
        pools,
        why,
    ),
)


app.add_typer(boards.app, name="boards")
app.add_typer(context_commands.app, name="context")
app.add_typer(dbmgr.app, name="dbmgr")
app.add_typer(keytool.app, name="keytool")
app.add_typer(programs.app, name="mq")
app.add_typer(objmgr.app, name="objmgr")
app.add_typer(usermgr.app, name="usermgr")


def main() -> None:
    """The entry point of the script ``raybroker`` and of ``python -m raybroker``."""
    app(prog_name="raybroker")
