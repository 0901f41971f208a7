"""Plain commands: each made of the declaration of a verb and of a row that says what a command line has beyond it.

The declaration (raybroker.admin) has the arguments with their types and defaults, and the kind of the answer. The row,
in :mod:`raybroker.cli.objects.table`, has the words, the help, the columns of a list, and the question that is asked.
An argument without a default is a required option. A list is printed as a table, a row as its fields, both as JSON with
--json; of anything else the command says that it is done.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import partial
from types import NoneType
from typing import Annotated, Any, Final, NamedTuple, get_args, get_origin, get_type_hints

import typer

from raybroker.admin.verb import Verb
from raybroker.admin.verb_types import Type
from raybroker.admin.verbs import VERBS
from raybroker.cli import output
from raybroker.cli.answers import show_list, show_one, things
from raybroker.cli.command import Epilog, administrative
from raybroker.cli.exits import UsageError
from raybroker.cli.grid_words import AnyType, Attributes, Force, Ids, Json, Selector, ask, attributes
from raybroker.cli.grid_words import Type as OneType
from raybroker.cli.groups import Made, grid
from raybroker.client.admin.admin import Admin
from raybroker.model.listing import Row
from raybroker.model.settings.setting_services import SERVICE_KINDS

_PLACES: Final = {"name": 0, "type": 1, "unset": 3, "if_exists": 3, "idempotent": 3}
"""Where an option stands in the help of a command with -n; all others have 2."""
_KIND: Final = inspect.Parameter.POSITIONAL_OR_KEYWORD


class Opt(NamedTuple):
    """How an argument is written: what ``typer.Option`` takes. ``type`` and ``default`` of the declaration hold unless
    given here."""

    info: Any
    type: Any = None
    default: Any = inspect.Parameter.empty


def opt(
    *words: str, type: Any = None, default: Any = inspect.Parameter.empty, metavar: str | None = None, **more: Any
) -> Opt:
    """An option by its words; ``more``: help, parser, min and so on."""
    return Opt(typer.Option(*words, metavar=metavar, **more), type, default)


class Thing(NamedTuple):
    """What an object of commands is. ``shown``: one of them, in what is said; ``name``: the help of its -n."""

    shown: str
    name: str = ""


OBJECTS: Final = {
    "dst": Thing("{type} {name}", "Name of the destination."),
    "msg": Thing("{answer:message} of {type} {name}", "Name of the destination."),
    "replica": Thing("copy of {type} {name}", "Name of the queue."),
    "dur": Thing("subscription {name}", "Name of the subscription."),
    "txn": Thing("transaction {id}"),
    "tpl": Thing("template {name}", "Name of the template."),
    "quota": Thing("quota {name}", "Name of the quota."),
    "policy": Thing("policy {name}", "Name of the policy."),
    "sch": Thing("schedule {id}"),
    "saf": Thing("forwarding agent {name}", "Name of the agent."),
    "version": Thing("version {version} of {type} {name}", "Name of the queue."),
    "svc": Thing("service {name}", f"One of {', '.join(SERVICE_KINDS)}."),
}
DONE: Final = {"purge": "purged", "skip": "skipped", "commit": "committed", "rollback": "rolled back"}
"""Verb → what it has done, where that is not the verb and -d or -ed."""
OPTIONS: Final = {
    "selector": Selector,
    "ids": Ids,
    "option": Attributes,
    "topic": opt("-d", "--destination", metavar="TOPIC", help="Only of this topic."),
    "destination": opt("-d", "--destination", metavar="NAME", help="Only those of this destination."),
    "client_id": opt("-c", "--client-id", metavar="ID", help="Client id it belongs to; none: it has none."),
}
"""Argument of verbs → the option that it is in all commands whose row has none for it. Attributes are ``option``."""


class Plain(NamedTuple):
    """A plain command.

    words    verb and object, "purge dst"; they name the verb that is declared
    options  argument of the verb → its option; ``more``: options that are no arguments of it, for the other functions
    columns  of a list, "key: title, …"; ``empty``: what is said when there are none
    shown    a row of the answer as people read it; ``titled``: entries that come below the others, under a title
    ask      the question before; -f answers it
    done     what is said then, or a function of what was given and of the answer; without it "purged queue orders"
    check    raises UsageError for what was given, before a broker is asked
    show     prints the answer in a way of its own: of the answer, whether as JSON, and what was given
    such_as  an attribute, for the error of one that is not written as such
    """

    words: str
    help: str
    options: Mapping[str, Opt] = {}
    more: Mapping[str, Opt] = {}
    columns: str = ""
    empty: str = ""
    shown: Callable[[Row], Row] = dict
    titled: Mapping[str, str] = {}
    ask: str = ""
    done: str | Callable[[Row, Any], str] = ""
    check: Callable[[Row], None] | None = None
    show: Callable[[Any, bool, Row], None] | None = None
    such_as: str = "consumerFlowLimit=20"
    epilog: Epilog = str


class _Count(int):
    """A count, that ``{answer:message}`` shows as "2 messages"."""

    def __format__(self, what: str) -> str:
        return things(self, what) if what else str(int(self))


def verb_of(words: str) -> Verb[..., Any]:
    """The verb that is declared: purge_destination of "purge dst", list_destinations of "list dst"."""
    verb, _, word = words.partition(" ")
    names = (f"{verb}_{name}{many}" for name, short in output.OBJECTS.items() for many in ("", "s") if short == word)
    return VERBS[next(name for name in names if name in VERBS)]


def make(rows: Iterable[Plain]) -> None:
    """Make the commands of a table."""
    for row in rows:
        grid[row.words] = partial(_made, row)


def _made(row: Plain) -> Made:
    return Made(administrative(row.words.partition(" ")[0], _function(row)), row.epilog() or None)


def _function(row: Plain) -> Callable[..., None]:
    """What the command does, with its options as arguments."""
    verb, _, word = row.words.partition(" ")
    declared = verb_of(row.words)
    hints = get_type_hints(declared.declared, include_extras=True)
    kind = get_origin(hints["return"]) or hints["return"]
    listed, one = (isinstance(kind, type) and issubclass(kind, sort) for sort in (list, dict))
    options = [_option(row, word, found, hints[found.name]) for found in declared.signature.parameters.values()]
    options += [_parameter(name, given, bool, False) for name, given in row.more.items()]
    options.sort(key=_place if "name" in declared.signature.parameters else _required_first)
    if row.ask:
        options.append(_parameter("force", Force, bool, False))
    if listed or one:
        options.append(_parameter("json", Json, bool, False))

    def run(admin: Admin, **given: Any) -> None:
        force, json = given.pop("force", False), given.pop("json", False)
        given = {name: value.value if isinstance(value, Enum) else value for name, value in given.items()}
        attributes = _checked(row, given)
        if row.ask:
            ask(force, row.ask.format(**given))
        sent = {name: value for name, value in given.items() if name in hints and value is not None}
        answer = getattr(admin, declared.name)(**sent, **attributes)
        if row.show is not None:
            row.show(answer, json, given)
        elif listed:
            show_list(answer, row.columns, empty=row.empty, json=json, shown=row.shown)
        elif one:
            show_one(answer, json=json, shown=row.shown, **row.titled)
        elif callable(row.done):
            output.say(row.done(given, answer))
        else:
            done = row.done or f"{DONE.get(verb) or verb.removesuffix('e') + 'ed'} {OBJECTS[word].shown}"
            output.say(done.format(**given, answer=_Count(answer) if isinstance(answer, int) else answer))

    admin = inspect.Parameter("admin", _KIND)
    run.__signature__ = inspect.Signature([admin, *options])  # type: ignore[attr-defined]  # inspect looks for it
    run.__name__, run.__doc__ = row.words.replace(" ", "_"), row.help
    return run


def _checked(row: Plain, given: Row) -> dict[str, str]:
    """The attributes of -o, after all that can be said without a broker; raises UsageError."""
    if given.get("name") is not None and given.get("type", "") is None:
        given["type"] = "queue"  # The verb is for one or for all, and a name alone means a queue everywhere.
    if "option" in given:
        given["option"] = attributes(given["option"], row.such_as)
        changes = [value for name, value in given.items() if name not in ("name", "type")]
        if row.words.startswith("update") and all(value in (None, {}) for value in changes):
            more = " or another option" if len(changes) > 1 else ""
            raise UsageError(f"{row.words}: nothing to change; give -o attribute=value{more}")
        if both := [name for name in given["option"] if name in given]:
            raise UsageError(f"-o {both[0]}=…: it is no attribute, and has an option of its own")
    if row.check is not None:
        row.check(given)
    found: dict[str, str] = given.get("option", {})
    return found


def _required_first(option: inspect.Parameter) -> tuple[bool, int]:
    return option.default is not option.empty, 0


def _place(option: inspect.Parameter) -> tuple[bool, int]:
    """The type of a destination comes behind its name."""
    return option.default is not option.empty, _PLACES.get(option.name, 2)


def _option(row: Plain, word: str, declared: inspect.Parameter, hint: Any) -> inspect.Parameter:
    """The option for an argument of the verb."""
    if declared.kind is declared.VAR_KEYWORD:
        return _parameter("option", row.options.get("option", OPTIONS["option"]), list[str], None)
    name, required, base = declared.name, declared.default is declared.empty, _base(hint)
    option = row.options.get(name)
    if option is None and Type in (hint, *get_args(hint)):
        annotation, default = (OneType, "q") if required else (AnyType, None)
        return _parameter(name, annotation, str, default)
    if option is None and name in ("name", "id"):
        option = _of_object(word, name, required)
    return _parameter(name, option or OPTIONS[name], base, declared.default)


def _of_object(word: str, name: str, required: bool) -> Opt:
    """-n, as it is for the commands of an object."""
    if name == "id":
        return opt("-n", "--id", metavar="ID", help=f"The id that list {word} shows.")
    return opt("-n", "--name", metavar="NAME", help=OBJECTS[word].name if required else "This one; without it: all.")


def _base(hint: Any) -> Any:
    """The type of what is written for an argument: str, int or bool, or a list of texts."""
    if get_origin(hint) is Annotated:
        return _base(get_args(hint)[0])
    if isinstance(hint, type):
        return hint
    inner = [found for found in get_args(hint) if found is not NoneType]
    if get_origin(hint) is Iterable:
        return list[str]
    return _base(inner[0]) if len(inner) == 1 else str


def _parameter(name: str, option: Any, base: Any, default: Any) -> inspect.Parameter:
    """``option``: an Opt, or an annotation that has the type as well."""
    annotation = option
    if isinstance(option, Opt):
        base = option.type or base
        default = option.default if option.default is not inspect.Parameter.empty else default
        annotation = Annotated[base | None if default is None else base, option.info]
    return inspect.Parameter(name, _KIND, default=default, annotation=annotation)
