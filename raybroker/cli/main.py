"""The program ``raybroker``: puts its commands together. What they do is in the files beside this one."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated, Any, Final, NamedTuple, NoReturn

import typer

from raybroker.cli import contexts, output
from raybroker.cli.exits import Commands
from raybroker.cli.grid_words import show_version
from raybroker.cli.groups import HELP, Parts, built, group_of
from raybroker.cli.outside import reachable

EPILOG = (
    "Exit codes: 0 done, 1 refused by the broker (reason on standard error), 2 usage, 3 no cluster reachable, "
    "4 import or salvage with --dry-run has something to do; of check "
    "those of Nagios: 0 ok, 1 warning, 2 critical, 3 unknown, which a usage error is there too."
)


class Tool(NamedTuple):
    """A command that is no verb of the grid: a function of a file below ``cli``."""

    file: str
    function: str
    about: str
    outside: bool = False
    """It works from outside the Ray cluster too, with the options for that."""


TOOLS: Final = {
    "up": Tool("tools.up", "up", "Start a cluster, and a Ray for it if none runs."),
    "down": Tool("tools.up", "down", "Stop a cluster; its messages stay on disk."),
    "remove": Tool("tools.instances", "remove", "Delete an instance that is down, with its stores."),
    "demo": Tool("tools.demo", "demo", "Real data through a queue, a kill, a check."),
    "bench": Tool("tools.bench", "bench", "Measure the running cluster."),
    "verify": Tool("tools.verify", "verify", "Load a cluster, injure it as allowed, check its promises."),
    "top": Tool("objects.top", "top", "Destinations and their rates, live.", outside=True),
    "audit": Tool(
        "objects.auditing", "audit", "What will hurt one day: numbered checks, with what to do.", outside=True
    ),
    "discover": Tool("objects.metrics", "discover", "Write down for Prometheus where the brokers' metrics are."),
    "collect": Tool("tools.analyze", "collect", "Write the brokers' metrics into a lake."),
    "analyze": Tool("tools.analyze", "analyze", "Analyse a lake of metrics with Spark."),
    "salvage": Tool("tools.salvage", "salvage", "Bring out what is intact in a damaged store."),
    "why-denied": Tool(
        "objects.services", "why_denied", "Whether a user may do something, and by which rule.", outside=True
    ),
    "send": Tool("objects.messages", "send", "Send messages to a queue or a topic.", outside=True),
    "receive": Tool("objects.messages", "receive", "Take or browse messages and print them.", outside=True),
    "completion": Tool("completion.shells", "completion", "What bash, zsh or fish loads to complete command lines."),
    "help": Tool("tools.manual", "show", "Show a page of the manual, or list its topics."),
}
PROGRAMS: Final = {
    "boards": "tools.boards",
    "context": "tools.context",
    "dbmgr": "tools.dbmgr",
    "keytool": "tools.keytool",
    "mq": "mq.programs",
    "objmgr": "tools.objmgr",
    "usermgr": "tools.usermgr",
}
"""Name → the file with the group of commands."""


def _tool(name: str) -> Any:
    tool = TOOLS[name]
    function = getattr(import_module(f"raybroker.cli.{tool.file}"), tool.function)
    made = reachable(function) if tool.outside else function
    return built(name, lambda program: program.command(name, short_help=tool.about)(made))


def _program(name: str) -> Any:
    app = import_module(f"raybroker.cli.{PROGRAMS[name]}").app
    return built(name, lambda program: program.add_typer(app, name=name))


class WholeProgram(Commands):
    """The whole program. A command line makes of it what it names, and a help what it shows."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = Parts(
            {
                **dict.fromkeys(TOOLS, _tool),
                **dict.fromkeys(HELP, group_of),
                **dict.fromkeys(PROGRAMS, _program),
            },
            {
                **{name: tool.about for name, tool in TOOLS.items()},
                **{verb: text.partition(": ")[2] for verb, text in HELP.items()},
                **dict.fromkeys(PROGRAMS, ""),
            },
        )


app = typer.Typer(
    name="raybroker",
    cls=WholeProgram,
    no_args_is_help=True,
    add_completion=False,
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
    Completion in bash, zsh and fish, with the names of what there is:
      source <(raybroker completion bash)
    \b
    From Python:
      import raybroker as rb
      with rb.connect() as conn: ...
    """
    contexts.wanted.set(context)


COMPLETES: Final = ["completion", "words"]
"""What the scripts of shells call, with the words of a line."""


def complete(words: list[str]) -> NoReturn:
    """Print what may come next on a line; see ``completion.shells``."""
    from raybroker.cli.completion.shells import answer

    answer(typer.main.get_command(app), words)


def main() -> None:
    """The entry point of the script ``raybroker`` and of ``python -m raybroker``."""
    output.show_everything()
    words = sys.argv[1:]
    if words[:2] == COMPLETES:
        complete(words[2:])
    app(prog_name="raybroker")
