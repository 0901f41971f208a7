"""One group of commands a verb, and how they hang below the program; what they do is in the files of the objects."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Final

import typer

from raybroker.cli.exits import Checks, Commands
from raybroker.cli.grid_words import VERBS, add_missing
from raybroker.cli.outside import reachable

HELP: Final = {
    "create": "create dst|dur|quota|policy|saf|sch|tpl: a destination, subscription, quota, agent and so on.",
    "list": "list dst|con|dur|quota|policy|pool|saf|sch|txn|msg|tpl|bkr|svc|cxn: what there is.",
    "query": "query dst|con|quota|policy|saf|sch|txn|bkr|cls|store|svc|cxn: one of them in full.",
    "update": "update dst|quota|policy|tpl|bkr|svc: change attributes, or properties of brokers while they run.",
    "destroy": "destroy dst|dur|quota|policy|pool|saf|sch|tpl|cxn: remove one.",
    "purge": "purge dst|dur: discard messages.",
    "pause": "pause dst|svc|bkr: producers, consumers or both; a connection service, or all.",
    "resume": "resume dst|svc|bkr: undo a pause.",
    "compact": "compact dst: give back what stores do not need.",
    "metrics": "metrics dst|svc|cxn|bkr: counts, rates, connections, consumers, disk; again and again.",
    "commit": "commit txn: settle a prepared transaction.",
    "rollback": "rollback txn: undo a prepared transaction.",
    "delete": "delete msg: delete chosen messages.",
    "move": "move msg: move messages to another destination.",
    "retry": "retry msg: send dead messages back.",
    "export": "export msg|definitions: copy messages, or everything that administrators have made, to a file.",
    "import": "import msg|definitions: put messages of a file into a destination; make what definitions say.",
    "reload": "reload cls: take the list of brokers from a cluster file.",
    "changemaster": "changemaster cls: move the configuration change record.",
    "backup": "backup cls: write the configuration change record to a file.",
    "restore": "restore cls: make a backup the record, while brokers are down.",
    "reset": "reset dst: count from zero.",
    "adopt": "adopt dst: put what a restored record does not know into it.",
    "skip": "skip msg: let a halted destination go on without what is damaged.",
    "quiesce": "quiesce svc|bkr: take no new clients.",
    "unquiesce": "unquiesce bkr: take new clients again.",
    "shutdown": "shutdown bkr: let consumers finish, and end one broker.",
    "restart": "restart bkr: the same, and start it again.",
    "why": "why msg|con|prod|dst|dur|txn: why something waits, and what to do about it.",
    "check": "check bkr|cls|dst|svc: graded checks, for monitoring and probes.",
}
"""Verb → the help of its group, which begins with its commands in their order."""

groups: Final = {verb: typer.Typer(cls=Checks if verb == "check" else Commands, no_args_is_help=True) for verb in HELP}


def attach(app: typer.Typer, files: Iterable[ModuleType]) -> None:
    """Hang the grid below the program; ``files`` are those whose import puts commands into the groups."""
    assert all(files), "the files of commands are imported first"
    for verb, group in groups.items():
        for command in group.registered_commands:
            if command.callback is not None:
                command.callback = reachable(command.callback)
        if verb in VERBS:
            add_missing(group, verb, [command.name or "" for command in group.registered_commands])
        group.registered_commands.sort(key=lambda command: (command.hidden, HELP[verb].find(str(command.name))))
        app.add_typer(group, name=verb, help=HELP[verb])
