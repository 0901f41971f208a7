"""Words that may come next on a command line: commands, options, and values of options, also of what there is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from raybroker.cli.completion import live

FILES: Final = frozenset(
    {
        "checkpoint",
        "class_archive",
        "config",
        "definitions",
        "directory",
        "file",
        "hdr",
        "key",
        "key_passfile",
        "lake",
        "out",
        "outside_passfile",
        "outside_token",
        "passfile",
        "report",
        "source",
        "store",
        "token_file",
        "trust",
    }
)
"""Options and arguments that are files, which the shell completes itself."""
FIXED: Final = {
    "type": ("queue", "topic"),
    "target_type": ("queue", "topic"),
    "destination_type": ("queue", "topic"),
    "shell": ("bash", "fish", "zsh"),
}
"""Option → its values, where it has the same of all commands."""
_OF_DESTINATION: Final = {
    "name": "list_destinations name",
    "target": "list_destinations name",
    "destination": "list_destinations name",
}
LIVE: Final[Mapping[str, Mapping[str, str]]] = {
    "dst": _OF_DESTINATION,
    "msg": _OF_DESTINATION,
    "replica": {**_OF_DESTINATION, "old": "list_brokers broker", "to": "list_brokers broker"},
    "con": {"id": "list_consumers id", "destination": "list_destinations name"},
    "cxn": {
        "id": "list_connections id",
        "user": "list_users user",
        "client_id": "list_connections client_id",
        "destination": "list_destinations name",
        "consumer": "list_consumers id",
    },
    "dur": {
        "name": "list_subscriptions name",
        "topic": "list_destinations name topic",
        "destination": "list_destinations name topic",
        "client_id": "list_subscriptions client_id",
    },
    "prod": {"destination": "list_destinations name"},
    "txn": {"id": "list_transactions id"},
    "tpl": {"name": "list_templates name"},
    "quota": {"name": "list_quotas name"},
    "policy": {"name": "list_policies name"},
    "sch": {"id": "list_schedules id", "destination": "list_destinations name"},
    "saf": {"name": "list_forwardings name", "queue": "list_destinations name queue"},
    "bkr": {"broker": "list_brokers broker", "only": "list_brokers broker", "name": "list_brokers broker"},
    "svc": {"broker": "list_brokers broker"},
    "version": {"name": "list_destinations name queue"},
    "send": {"destination": "list_destinations name"},
    "receive": {"destination": "list_destinations name"},
    "why-denied": {"user": "list_users user", "destination": "list_destinations name"},
}
"""Object, or command that is no verb of the grid → option or argument → verb and key of the list that has its names,
also the type of destinations where there is but one."""
NEW: Final = frozenset({"name"})
"""What a command ``create`` makes has no name yet."""


class Fitting(NamedTuple):
    """What may come next. ``words``: word → what it is, "" for a name. ``files``: the shell knows what fits.
    ``open``: more has to follow without a space, such as a value behind ``name=``."""

    words: Mapping[str, str] = {}
    files: bool = False
    open: bool = False


class _Read(NamedTuple):
    """A line until the cursor. ``waiting``: the option whose value comes next."""

    path: list[str]
    command: Any
    given: dict[str, Any]
    arguments: list[str]
    waiting: Any


def found(root: Any, words: Sequence[str], last: str) -> Fitting:
    """What may stand in the place of the ``last`` word, behind the others; ``root`` is the whole program.

    Of ``--name=or`` what is found is that which comes behind the equals sign.
    """
    read = _read(root, words)
    if read is None:
        return Fitting()
    text, equals, value = last.partition("=")
    if read.waiting is not None:
        return _beginning(last, _values(read, read.waiting))
    if equals and text.startswith("--"):
        option = _option(read.command, text)
        return Fitting() if option is None else _beginning(value, _values(read, option))
    if last.startswith("-"):
        return Fitting(_options(read, last))
    if hasattr(read.command, "commands"):
        return _beginning(last, Fitting(dict(_commands(read.command))))
    arguments = [one for one in read.command.params if one.param_type_name == "argument"]
    if arguments and (len(read.arguments) < len(arguments) or arguments[-1].nargs == -1):
        place = min(len(read.arguments), len(arguments) - 1)
        return _beginning(last, _values(read, arguments[place]))
    return Fitting() if last else Fitting(_options(read, "-"))


def _beginning(text: str, found: Fitting) -> Fitting:
    return found._replace(words={word: about for word, about in found.words.items() if word.startswith(text)})


def _read(root: Any, words: Sequence[str]) -> _Read | None:
    """None where a command is unknown."""
    command, path, arguments = root, [], []
    given: dict[str, Any] = {}
    waiting = None
    for word in words:
        if waiting is not None:
            given[waiting.name] = [*given.get(waiting.name, ()), word] if waiting.multiple else word
            waiting = None
        elif word.startswith("-") and word != "-":
            text, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
            option = _option(command, text)
            if option is not None and option.is_flag:
                given[option.name] = True
            elif option is not None and equals:
                given[option.name] = [value] if option.multiple else value
            else:
                waiting = option
        elif hasattr(command, "commands"):
            command = command.commands.get(word)
            if command is None:
                return None
            path.append(word)
        else:
            arguments.append(word)
    return _Read(path, command, given, arguments, waiting)


def _option(command: Any, text: str) -> Any:
    texts = (text, f"-{text}", text[1:])  # One dash will do where an option has two, and the other way round.
    known = {one: option for option in _shown(command) for one in (*option.opts, *option.secondary_opts)}
    return next((known[one] for one in texts if one in known), None)


def _shown(command: Any) -> Iterator[Any]:
    return (one for one in command.params if one.param_type_name == "option")


def _options(read: _Read, last: str) -> dict[str, str]:
    """Options that were not given yet, or that may be repeated: by their long words, unless one dash is not all."""
    options: dict[str, str] = {}
    for option in _shown(read.command):
        if option.hidden or (option.name in read.given and not option.multiple):
            continue
        for texts in (option.opts, option.secondary_opts):
            fitting = [text for text in texts if text.startswith(last)]
            longest = [text for text in fitting if text.startswith("--")]
            for text in longest or fitting[:1]:
                options[text] = _sentence(option.help)
    return options


def _commands(group: Any) -> Iterable[tuple[str, str]]:
    about: Mapping[str, str] | None = getattr(group.commands, "about", None)
    if about is not None:
        return about.items()
    return ((name, one.get_short_help_str()) for name, one in group.commands.items() if not one.hidden)


def _sentence(help: str | None) -> str:
    return " ".join((help or "").split()).partition(". ")[0].rstrip(".")


def _values(read: _Read, option: Any) -> Fitting:
    """The values that an option or an argument may have."""
    verb, word, name = read.path[0] if read.path else "", read.path[-1] if read.path else "", option.name
    own = OWN.get((" ".join(read.path), name)) or OWN.get((word, name)) or OWN.get(("", name))
    if own is not None:
        return own()
    if name in FILES:
        return Fitting(files=True)
    if name in FIXED:
        return Fitting(dict.fromkeys(FIXED[name], ""))
    what = LIVE.get(word, {}).get(name)
    if what is None or (verb == "create" and name in NEW):
        return Fitting()
    kind = str(read.given.get("type") or _default(read.command, "type") or "")
    kinds = {"q": "queue", "queue": "queue", "t": "topic", "topic": "topic"}
    return Fitting(dict.fromkeys(live.names(what, kinds.get(kind), read.given), ""))


def _default(command: Any, name: str) -> Any:
    return next((one.default for one in command.params if one.name == name), None)


def _contexts() -> Fitting:
    from raybroker.cli.tools.context import names

    return Fitting(dict.fromkeys(names(), ""))


def _topics() -> Fitting:
    from raybroker.cli.tools.manual import pages

    return Fitting(dict.fromkeys(pages(), ""))


def _services() -> Fitting:
    from raybroker.model.settings.setting_services import SERVICE_KINDS

    return Fitting(dict.fromkeys(SERVICE_KINDS, ""))


def _settings(scope: Literal["broker", "destination"]) -> Callable[[], Fitting]:
    def settings() -> Fitting:
        from raybroker.model.settings.settings import settings_of

        live_ones = (one for one in settings_of(scope) if scope != "broker" or one.reload == "live")
        return Fitting({f"{one.name}=": _sentence(one.help) for one in live_ones}, open=True)

    return settings


def _pauses() -> Fitting:
    from raybroker.model.definitions.pauses import WORDS

    return Fitting(dict.fromkeys(map(str.upper, WORDS), ""))


def _apply_to() -> Fitting:
    from raybroker.model.definitions.policy import APPLY_TO

    return Fitting(dict.fromkeys(APPLY_TO, ""))


def _if_exists() -> Fitting:
    from raybroker.admin.verb_types import IF_EXISTS

    return Fitting(dict.fromkeys(IF_EXISTS, ""))


OWN: Final[Mapping[tuple[str, str], Callable[[], Fitting]]] = {
    ("", "context"): _contexts,
    ("", "which"): _pauses,
    ("", "apply_to"): _apply_to,
    ("", "if_exists"): _if_exists,
    ("context use", "name"): _contexts,
    ("context delete", "name"): _contexts,
    ("context add", "name"): _contexts,
    ("help", "topic"): _topics,
    ("svc", "name"): _services,
    ("cxn", "service"): _services,
    ("dst", "option"): _settings("destination"),
    ("tpl", "option"): _settings("destination"),
    ("policy", "option"): _settings("destination"),
    ("update bkr", "option"): _settings("broker"),
}
"""Words of a command, or its last one, and an option or argument → its values."""
