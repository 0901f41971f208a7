"""Writes the reference pages of the manual from the tables of the source.

python -m tests.tidy.reference_pages
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import typer

from raybroker.admin.broker_verbs import BrokerVerbs
from raybroker.admin.definition_verbs import DefinitionVerbs
from raybroker.admin.destination_verbs import DestinationVerbs
from raybroker.admin.transaction_verbs import ManagerVerbs, TransactionVerbs
from raybroker.admin.verb import declared_in
from raybroker.cli.main import EPILOG, app
from raybroker.metrics.catalogue import BROKERS, DESTINATIONS, Quantity
from raybroker.model import errors
from raybroker.model.settings.setting import Scope, Setting
from raybroker.model.settings.settings import settings_of
from tests.tidy.source import ROOT

FOLDER: Final = "raybroker/manual/reference"
HEAD: Final = "<!-- Generated from the tables of the source by `python -m tests.tidy.reference_pages`. -->\n"
_ROLE: Final = re.compile(r":\w+:`~?([^`]+)`")
_ITEM: Final = re.compile(r"([a-z_]+(?:, [a-z_]+)*) {2,}(\S.*)")
_RELOAD: Final = {
    "start": "at the next start",
    "live": "at once",
    "gradual": "step by step, while it is used",
    "fixed": "never: fixed at creation",
}


# ---- settings ------------------------------------------------------------------------------------------------------


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("<", "&lt;").replace("\n", " ")


def _values(setting: Setting) -> str:
    """What a setting may be, in a few words."""
    if setting.choices:
        return ", ".join(choice or '""' for choice in setting.choices)
    bounds = [
        f"from {setting.format(setting.low)}" if setting.low is not None else "",
        f"to {setting.format(setting.high)}" if setting.high is not None else "",
        setting.unit,
    ]
    minus_one = f"; -1: {setting.minus_one}" if setting.unlimited else ""
    return " ".join((setting.kind, *filter(None, bounds))) + minus_one


def _settings(scope: Scope) -> Iterator[str]:
    for setting in sorted(settings_of(scope), key=lambda each: each.name.lower()):
        default = f"`{setting.format(setting.default)}`" if setting.format(setting.default) else "empty"
        only = f" Of a {setting.only} alone." if setting.only else ""
        effect = "" if scope == "factory" else f" A change takes effect {_RELOAD[setting.reload]}."
        yield f"### {setting.name}\n"
        yield f"Default {default}; {_values(setting)}.{only}{effect}\n"
        yield f"{_text(setting.help)}\n"


def settings_page() -> str:
    return _page(
        "Reference: settings",
        "Broker properties stand in a cluster file, in the environment or behind `-D`; `raybroker query bkr --explain`"
        " says what each is now and who said so. Attributes of connections are arguments of `rb.connect` and of"
        " `rb.ConnectionFactory`.\n",
        "## Broker properties\n",
        *_settings("broker"),
        "## Attributes of connections\n",
        *_settings("factory"),
    )


def attributes_page() -> str:
    return _page(
        "Reference: destination attributes",
        "`raybroker create dst` and `update dst` take them behind `-o`, `conn.admin().create_destination` as"
        " arguments. Policies and templates have them too.\n",
        *_settings("destination"),
    )


# ---- verbs ---------------------------------------------------------------------------------------------------------

KINDS: Final = (
    ("Destinations and messages", (DestinationVerbs,)),
    ("Transactions", (TransactionVerbs, ManagerVerbs)),
    ("Brokers, services and connections", (BrokerVerbs,)),
    ("Definitions", (DefinitionVerbs,)),
)


def _plain(text: str) -> str:
    """Prose of a docstring, as Markdown: roles and double quotes of code become single ones."""
    return _ROLE.sub(r"`\1`", text).replace("``", "`")


def _text(text: str) -> str:
    """A help text as Markdown, where nothing but code has a meaning of its own."""
    return _plain(text).replace("<", "&lt;").replace("*", r"\*").replace(">", "&gt;")


def _described(docstring: str) -> Iterator[str]:
    """The paragraphs of a docstring; lines that explain arguments become a list."""
    for paragraph in inspect.cleandoc(docstring).split("\n\n"):
        lines: list[str] = []
        for line in paragraph.splitlines():
            if found := _ITEM.fullmatch(line):
                if lines and not lines[-1].startswith("* "):
                    lines.append("")
                lines.append(f"* `{found[1]}`: {_text(found[2].strip())}")
            elif lines and lines[-1].startswith("* ") and not line.startswith(" "):
                lines += ["", _text(line)]
            elif lines and lines[-1]:
                lines[-1] += f" {_text(line.strip())}"
            else:
                lines.append(_text(line.strip()))
        yield "\n".join(lines) + "\n"


def _call(name: str, declared: Callable[..., Any]) -> str:
    """The call with its arguments and their defaults; types have their words in the text."""
    parameters = list(inspect.signature(declared).parameters.values())[1:]
    shown = inspect.Signature(
        [each.replace(annotation=inspect.Parameter.empty) for each in parameters], __validate_parameters__=False
    )
    return f"{name}{shown}".replace("(*, )", "()")


def verbs_page() -> str:
    parts: list[str] = []
    for title, classes in KINDS:
        parts.append(f"## {title}\n")
        for name, verb in sorted(declared_in(*classes).items()):
            parts.append(f"### {_call(name, verb.declared)}\n")
            parts += _described(verb.declared.__doc__ or "")
    return _page(
        "Reference: administrative verbs",
        "Each verb is a method of `conn.admin()`, blocking and in `raybroker.aio` a coroutine; most are also"
        " [commands](commands.md) and resources of administration over HTTP.\n",
        *parts,
    )


# ---- commands ------------------------------------------------------------------------------------------------------


OFTEN: Final = 20
"""An option that so many commands have in the same words is described once, above them."""


def commands_of(group: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Words and command of everything below a group that a help shows, groups before what is in them."""
    for name, command in sorted(group.commands.items()):
        if not command.hidden:
            words = f"{path} {name}".strip()
            if hasattr(command, "commands"):
                yield from commands_of(command, words)
            else:
                yield words, command


def _usage(words: str, command: Any) -> str:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    return " ".join(("raybroker", words, "[OPTIONS]", *map(_argument, arguments)))


def _argument(argument: Any) -> str:
    name = argument.metavar or argument.human_readable_name
    name += "..." if argument.nargs == -1 and not name.endswith("...") else ""
    return name if argument.required else f"[{name}]"


def _option(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    required = " Required." if option.required else ""
    given = option.default if isinstance(option.default, str | int | float) else None
    default = f" Default: `{given}`." if given not in (None, "", False, True) else ""
    return f"* {names}: {_text(option.help or '')}{required}{default}"


def _help(text: str) -> Iterator[str]:
    """The paragraphs of a command's help; those that are marked as set by hand stay as they are."""
    for paragraph in inspect.cleandoc(text).replace("\f", "").split("\n\n"):
        if paragraph.startswith("\b\n"):
            yield textwrap.indent(paragraph.removeprefix("\b\n"), "    ") + "\n"
        else:
            yield _text(" ".join(paragraph.split())) + "\n"


def commands_page() -> str:
    there = list(commands_of(typer.main.get_command(app)))
    shown = {words: [_option(each) for each in command.params if _is_shown(each)] for words, command in there}
    count = Counter(option for options in shown.values() for option in options)
    often = [option for option, times in count.items() if times >= OFTEN]
    parts: list[str] = []
    for words, command in there:
        parts.append(f"## {words}\n\n`{_usage(words, command)}`\n")
        parts += _help(command.help or "")
        parts += [
            f"* `{_argument(each)}`: {_text(each.help)}"
            for each in command.params
            if each.param_type_name == "argument" and each.help
        ]
        parts += [option for option in shown[words] if option not in often]
        if also := [option[2:].partition(":")[0] for option in shown[words] if option in often]:
            parts.append(f"* Options of many commands: {', '.join(also)}")
        parts.append("")
    return _page(
        "Reference: commands",
        "`raybroker COMMAND --help` shows the same.\n",
        f"{_text(EPILOG)}\n",
        "## Options of many commands\n",
        *often,
        "",
        *parts,
    )


def _is_shown(parameter: Any) -> bool:
    return parameter.param_type_name == "option" and not parameter.hidden


# ---- metrics and errors --------------------------------------------------------------------------------------------


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(head), ["---"] * len(list(head)), *map(list, rows)]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines) + "\n"


def _quantities(rows: Iterable[Quantity]) -> str:
    found = ((f"`{row.key}`", row.kind, ", ".join(row.labels) or "-", row.help) for row in rows)
    return _table(("metric", "kind", "labels", "what"), found)


def metrics_page() -> str:
    return _page(
        "Reference: metrics",
        "Every metric has the labels `cluster` and `broker`. [Monitoring](../monitoring.md) says where they are read"
        " and what the two tiers are.\n",
        "## Of destinations, in both tiers\n",
        "`raybroker_…` by type, `raybroker_destination_…` by destination and type.\n",
        _quantities(row for row in DESTINATIONS if row.scope == "destination"),
        "## Of destinations, in the destination tier alone\n",
        "`raybroker_destination_…`.\n",
        _quantities(row for row in DESTINATIONS if row.scope == "only"),
        "## Of brokers\n",
        "`raybroker_…`.\n",
        _quantities(BROKERS),
    )


def _errors(kind: type[errors.BrokerError], depth: int = 0) -> Iterator[tuple[str, ...]]:
    yield (
        f"{'· ' * depth}`{kind.__name__}`",
        f"`{kind.code}`",
        "yes" if kind.definite else "no",
        "yes" if kind.retryable else "no",
        _text(" ".join((kind.__doc__ or "").split())),
    )
    for other in kind.__subclasses__():
        if other.__module__ == errors.__name__:
            yield from _errors(other, depth + 1)


def errors_page() -> str:
    return _page(
        "Reference: errors",
        "All are in `raybroker.errors`; a dot stands before a subclass of the one above. *Not done*: the operation"
        " certainly did not happen. *Again*: the same call may succeed later. `code` is stable text for programs.\n",
        _table(("error", "code", "not done", "again", "what"), _errors(errors.BrokerError)),
    )


def _page(title: str, *parts: str) -> str:
    text = "\n".join((f"# {title}\n", HEAD, *parts))
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "attributes.md": attributes_page,
    "commands.md": commands_page,
    "errors.md": errors_page,
    "metrics.md": metrics_page,
    "settings.md": settings_page,
    "verbs.md": verbs_page,
}


def generated() -> Iterator[tuple[str, str]]:
    """Path and text of each page."""
    for name, page in PAGES.items():
        yield f"{FOLDER}/{name}", page()


def main() -> None:
    for path, text in generated():
        (ROOT / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
