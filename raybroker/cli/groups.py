"""The grid of commands: a group a verb, and the file that has each command. What they do is in those files.

A group makes its commands when they are asked for, so that a command line imports what its own command needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any, Final, NamedTuple

import typer
from typer.main import get_group

from raybroker.cli.exits import Checks, Commands
from raybroker.cli.grid_words import OBJECTS, missing_words, refusal
from raybroker.cli.outside import reachable

HELP: Final = {
    "create": "create dst|dur|quota|policy|saf|sch|tpl: a destination, subscription, quota, agent and so on.",
    "list": "list dst|con|dur|quota|policy|pool|saf|sch|txn|msg|tpl|bkr|node|svc|cxn: what there is.",
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
    "publish": "publish version: say from which version on messages of a queue are stale.",
    "skip": "skip msg: let a halted destination go on without what is damaged.",
    "quiesce": "quiesce svc|bkr: take no new clients.",
    "unquiesce": "unquiesce bkr: take new clients again.",
    "shutdown": "shutdown bkr: let consumers finish, and end one broker.",
    "restart": "restart bkr: the same, and start it again.",
    "takeover": "takeover bkr: have another broker serve what a lost one has stored.",
    "drain": "drain bkr|node: have others serve what a broker serves, or do what a Ray node does, before it goes.",
    "replace": "replace replica: have another broker keep a copy of a queue.",
    "why": "why msg|con|prod|dst|dur|txn: why something waits, and what to do about it.",
    "check": "check bkr|cls|dst|svc: graded checks, for monitoring and probes.",
}
"""Verb → the help of its group, which begins with its commands in their order."""

FILES: Final = {
    "brokers": "list bkr, query bkr, update bkr",
    "checking": "check bkr, check cls, check dst, check svc",
    "cluster": "reload cls, changemaster cls, backup cls, restore cls",
    "definitions": "export definitions, import definitions",
    "ending": "shutdown bkr, restart bkr",
    "metrics": "metrics dst, metrics svc, metrics cxn, metrics bkr",
    "pools": "list pool, destroy pool",
    "schedules": "create sch",
    "drains": "drain bkr, drain node, list node",
    "takeovers": "takeover bkr",
    "services": "query svc, update svc, pause bkr, quiesce bkr, resume bkr, unquiesce bkr, query cxn, destroy cxn",
    "stored": "list msg, retry msg, export msg, import msg",
    "why": "why msg, why con, why prod, why dst, why dur, why txn",
}
"""File of cli/objects → the commands that it makes. All others are made by its table."""
FILE_OF: Final = {words: file for file, text in FILES.items() for words in text.split(", ")}


class Made(NamedTuple):
    """What a command is made of."""

    function: Callable[..., Any]
    epilog: str | None = None


grid: Final[dict[str, Callable[[], Made]]] = {}
"""Verb and object → what makes the command; filled by the import of the file that has it."""


def as_command(verb: str, word: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make ``function`` the command ``verb word`` as it stands, without the options that others have."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        grid[f"{verb} {word}"] = lambda: Made(function)
        return function

    return register


class Parts(MutableMapping[str, Any]):
    """The commands of a group by name, each made when it is looked up first."""

    def __init__(self, makers: dict[str, Callable[[str], Any]], about: Mapping[str, str]) -> None:
        self.about = about
        """Name → what it is, of those that are shown."""
        self._makers = makers
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = self._makers[name](name)
        return self._made[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._makers[name] = lambda name: command
        self._made.pop(name, None)

    def __delitem__(self, name: str) -> None:
        del self._makers[name]
        self._made.pop(name, None)

    def __contains__(self, name: object) -> bool:
        return name in self._makers

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


def built(name: str, fill: Callable[[typer.Typer], Any]) -> Any:
    """The command or the group of that name that ``fill`` has put into a program."""
    program = typer.Typer(rich_markup_mode=None, add_completion=False)
    fill(program)
    return get_group(program).commands[name]


def words_of(verb: str) -> list[str]:
    """The objects of a verb, in the order of its help."""
    return HELP[verb].partition(":")[0].removeprefix(f"{verb} ").split("|")


def group_of(verb: str) -> Any:
    """The group of a verb; those of its words that this version does not have say so, and no help shows them."""
    group = built(
        verb,
        lambda program: program.add_typer(
            typer.Typer(cls=Checks if verb == "check" else Commands, no_args_is_help=True),
            name=verb,
            help=HELP[verb],
            short_help=HELP[verb].partition(": ")[2],
        ),
    )
    shown = words_of(verb)
    makers = {word: lambda word: _command(verb, word) for word in shown}
    makers |= {word: lambda word: _missing(verb, word) for word in missing_words(verb, shown)}
    group.commands = Parts(makers, {word: OBJECTS.get(word, "") for word in shown})
    return group


def made(verb: str, word: str) -> Made:
    """What a command of the grid is made of; its file is imported."""
    words = f"{verb} {word}"
    import_module(f"raybroker.cli.objects.{FILE_OF.get(words, 'table')}")
    function, epilog = grid[words]()
    return Made(reachable(function), epilog)


def _command(verb: str, word: str) -> Any:
    function, epilog = made(verb, word)
    return built(word, lambda program: program.command(word, epilog=epilog)(function))


def _missing(verb: str, word: str) -> Any:
    settings = {"ignore_unknown_options": True, "allow_extra_args": True}
    return built(
        word,
        lambda program: program.command(word, hidden=True, context_settings=settings)(refusal(verb, word)),
    )
