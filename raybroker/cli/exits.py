"""Exit codes of commands, and the one place where errors become one.

    0  done
    1  refused by the broker, or failed there; the reason is on standard error
    2  usage: an option, argument, file or variable that cannot be right, found before anybody was asked
    3  no cluster or broker can be reached, or a list lacks what some of them would have told
    4  import definitions or salvage with --dry-run: there is something to do
  130  interrupted by Ctrl-C

The commands of ``check`` have those of Nagios' plugins: 0 ok, 1 warning, 2 critical, 3 unknown. There a broker that
does not answer is critical, and what cannot be asked, a usage error too, is unknown.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import Any, Final

import typer
from typer.core import TyperGroup

from raybroker.admin.checks import EXIT_CODES, Grade
from raybroker.cli import output
from raybroker.model.errors import BrokerError, ConnectionLostError, NoClusterError, RequestTimeoutError
from raybroker.model.naming.nearest import nearest
from raybroker.model.packages import how_to_install


class Exit(IntEnum):
    """Exit codes."""

    DONE = 0
    REFUSED = 1
    USAGE = 2
    UNREACHABLE = 3
    CHANGES = 4
    INTERRUPTED = 130


UNREACHABLE = (NoClusterError, ConnectionLostError, RequestTimeoutError)


USAGE: Final = "usage"
"""The code of what the user wrote, for programs; errors of the broker have their own."""
_WrongOption: Any = typer.BadParameter.__base__
"""What typer raises for options that it does not understand; it does not name that."""
WATCH: Final = "--watch"
EVERY_S: Final = 2.0
"""Between two looks of --watch without a number."""


class UsageError(Exception):
    """What the user wrote cannot be right; the text says why and what would be."""


def code_of(error: BrokerError) -> Exit:
    """The exit code for an error of the broker's table."""
    return Exit.UNREACHABLE if isinstance(error, UNREACHABLE) else Exit.REFUSED


def end_of_list(rows: Any) -> None:
    """Write to standard error what is missing in a list that was shown; the exit code is 3 then."""
    missing = getattr(rows, "missing", {})
    for name, why in sorted(missing.items()):
        output.error(f"the list is not whole: {name} has not answered ({why})")
    if missing:
        raise typer.Exit(Exit.UNREACHABLE)


@contextmanager
def answering() -> Iterator[None]:
    """What a command raises becomes its reason on standard error, and its exit code: typer.Exit."""
    try:
        yield
        sys.stdout.flush()
    except UsageError as error:
        raise _ended(str(error), USAGE, Exit.USAGE) from None
    except _WrongOption as error:
        if not output.objects.get():
            raise
        raise _ended(error.format_message(), USAGE, Exit.USAGE) from None
    except BrokerError as error:
        raise _ended(str(error), error.code, code_of(error)) from None
    except ModuleNotFoundError as error:
        if (hint := how_to_install(error)) is None:
            raise
        raise _ended(hint, "not_installed", Exit.REFUSED) from None
    except BrokenPipeError:
        output.nobody_reads()
        raise typer.Exit(Exit.DONE) from None
    except KeyboardInterrupt:
        raise _ended("interrupted", "interrupted", Exit.INTERRUPTED) from None


def _ended(text: str, code: str, status: int) -> typer.Exit:
    """The end of a command, after its reason; ``code``: stable text for programs."""
    output.error(text, code=code, exit_code=int(status))
    return typer.Exit(status)


@contextmanager
def grading() -> Iterator[None]:
    """Errors of commands of ``check``: what they cannot find out is told by the exit code of a grade."""
    try:
        yield
    except UsageError as error:
        raise _ended(str(error), USAGE, EXIT_CODES[Grade.UNKNOWN]) from None
    except BrokerError as error:
        critical = isinstance(error, UNREACHABLE)
        grade = Grade.CRITICAL if critical else Grade.UNKNOWN
        raise _ended(f"{'no answer: ' if critical else ''}{error}", error.code, EXIT_CODES[grade]) from None


class Commands(TyperGroup):
    """A group whose commands may raise the broker's errors: reason to standard error, class to exit code."""

    def invoke(self, ctx: Any) -> Any:
        before = output.objects.set(False)
        try:
            with answering():
                return super().invoke(ctx)
        finally:
            output.objects.reset(before)  # The next command of this thread has its own.

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Do what click does, but name what could have been meant: list queues is list dst."""
        output.objects.set(False)
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            names = [name for name in self.list_commands(ctx) if not self.commands[name].hidden]
            meant = OTHER_WORDS.get(args[0].lower(), "")
            group = OTHER_WORDS.get(ctx.info_name or "", "")  # publish orders, where publish is a group: send.
            near = meant if meant in names else nearest(args[0], names)
            path = f"{ctx.command_path.removeprefix('raybroker').strip()} {args[0]}".strip()
            hint = f"did you mean {near or group}? " if near or group else ""
            ctx.fail(f"there is no {path}; {hint}There are: {', '.join(names)}.")
        name, found, rest = super().resolve_command(ctx, args)
        if not isinstance(found, TyperGroup):
            output.objects.set(_has_flag(found, "--json", rest))
            rest = _with_known_dashes(found, rest)
        return name, found, rest


def _has_flag(command: Any, flag: str, args: list[str]) -> bool:
    """Whether the line has that option, where the command has one without a value."""
    known = any(flag in parameter.opts and parameter.is_flag for parameter in command.params)
    return known and flag in (args[: args.index("--")] if "--" in args else args)


def _with_known_dashes(command: Any, args: list[str]) -> list[str]:
    """The arguments, where an option of several letters may have one dash or two, as -src and --src. Raises UsageError,
    see ``_meant``."""
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    options = args[: args.index("--")] if "--" in args else args
    options = with_seconds(options) if WATCH in known else options
    return [_meant(text, known) for text in options] + args[len(options) :]


def with_seconds(words: Sequence[str]) -> list[str]:
    """The words of a line, with a number behind each --watch that has none."""
    return [
        f"{WATCH}={EVERY_S:g}" if word == WATCH and not _is_number(words[place + 1 : place + 2]) else word
        for place, word in enumerate(words)
    ]


def _is_number(words: Sequence[str]) -> bool:
    return bool(words) and words[0].replace(".", "", 1).isdecimal()


def _meant(text: str, known: set[str]) -> str:
    """The option that was meant. A word behind one dash that is no option would be read as one letter with the rest as
    its value: raises UsageError."""
    name, equals, value = text.partition("=")
    word = name.lstrip("-")
    if not name.startswith("-") or name in known or len(word) < 2 or word[0].isdigit():
        return text
    other = f"-{word}" if name.startswith("--") else f"--{word}"
    if other not in known:
        return text
    if not name.startswith("--") and f"-{word[0]}" in known:
        raise UsageError(f"{name}: write {other}; {name} would be -{word[0]} with the value {word[1:]!r}")
    return other + equals + value


class Checks(Commands):
    """The group of ``check``: what its commands cannot find out is told by the grade's exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            with grading():
                return TyperGroup.invoke(self, ctx)
        except _WrongOption as error:
            if output.objects.get():
                raise _ended(error.format_message(), USAGE, EXIT_CODES[Grade.UNKNOWN]) from None
            error.exit_code = EXIT_CODES[Grade.UNKNOWN]
            raise


OTHER_WORDS: Final = {
    **dict.fromkeys(("queue", "queues", "topic", "topics", "destination", "destinations", "q", "t"), "dst"),
    **dict.fromkeys(("consumer", "consumers"), "con"),
    **dict.fromkeys(("broker", "brokers"), "bkr"),
    **dict.fromkeys(("message", "messages"), "msg"),
    **dict.fromkeys(("transaction", "transactions"), "txn"),
    **dict.fromkeys(("subscription", "subscriptions", "durables"), "dur"),
    **dict.fromkeys(("cluster",), "cls"),
    **dict.fromkeys(("connection", "connections"), "cxn"),
    **dict.fromkeys(("schedule", "schedules"), "sch"),
    **dict.fromkeys(("template", "templates"), "tpl"),
    "quotas": "quota",
    "policies": "policy",
    **dict.fromkeys(("publish", "put"), "send"),
    **dict.fromkeys(("consume", "get"), "receive"),
    "start": "up",
    "stop": "down",
}
"""What other programs call it → what it is called here."""
