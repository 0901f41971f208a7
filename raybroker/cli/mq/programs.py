"""The imq programs, as scripts of their own and as ``raybroker mq imqcmd …``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext, redirect_stdout
from typing import Any, Final, NamedTuple

import typer

from raybroker.cli import output
from raybroker.cli.exits import Commands
from raybroker.cli.grid_words import show_version
from raybroker.cli.mq import imqbrokerd, imqcmd, imqdbmgr, imqkeytool, imqobjmgr, imqusermgr
from raybroker.cli.mq.options import Form, Line, Option, help_of, parse


def _as_it_is(line: Line, command: list[str]) -> AbstractContextManager[list[str]]:
    return nullcontext(command)


class Program(NamedTuple):
    """One of the programs: how its line is read, and which commands of raybroker it is. ``within``: what holds while
    one of them runs."""

    about: str
    forms: Mapping[str, Form]
    options: Mapping[str, Option]
    commands: Callable[[Line], list[list[str]]]
    within: Callable[[Line, list[str]], AbstractContextManager[list[str]]] = _as_it_is
    silent: tuple[str, ...] = ("-s",)


PROGRAMS: Final = {
    imqcmd.NAME: Program(imqcmd.ABOUT, imqcmd.FORMS, imqcmd.OPTIONS, imqcmd.commands),
    imqbrokerd.NAME: Program(
        imqbrokerd.ABOUT, imqbrokerd.FORMS, imqbrokerd.OPTIONS, imqbrokerd.commands, silent=("-s", "-silent")
    ),
    imqusermgr.NAME: Program(
        imqusermgr.ABOUT, imqusermgr.FORMS, imqusermgr.OPTIONS, imqusermgr.commands, imqusermgr.with_password
    ),
    imqobjmgr.NAME: Program(imqobjmgr.ABOUT, imqobjmgr.FORMS, imqobjmgr.OPTIONS, imqobjmgr.commands),
    imqdbmgr.NAME: Program(imqdbmgr.ABOUT, imqdbmgr.FORMS, imqdbmgr.OPTIONS, imqdbmgr.commands),
    imqkeytool.NAME: Program(imqkeytool.ABOUT, imqkeytool.FORMS, imqkeytool.OPTIONS, imqkeytool.commands),
}
TOLERANT: Final = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    short_help="imqcmd, imqbrokerd and the other programs of Message Queue.",
    help="The programs of Sun's Message Queue and of Interstage, with the options of their manuals: they are scripts of"
    " their own too. imqcmd -h and so on show what each takes; raybroker help jms has what is different.",
)


def _add(name: str, program: Program) -> None:
    def run(ctx: typer.Context) -> None:
        _run(ctx.find_root().command, name, ctx.args)

    run.__doc__ = program.about
    app.command(name, context_settings=TOLERANT, short_help=program.about.partition("\n")[0].partition(": ")[2])(run)


for one in PROGRAMS.items():
    _add(*one)


def _run(root: Any, name: str, words: list[str]) -> None:
    program = PROGRAMS[name]
    if (not words and "" not in program.forms) or {"-h", "-H", "-help"} & set(words):
        output.say(help_of(name, program.about, program.forms.values(), program.options))
        return
    if {"-v", "-version"} & set(words):
        show_version(True)
    line = parse(name, program.options, words)
    with ExitStack() as quiet:
        if any(option in line for option in program.silent):
            nowhere = quiet.enter_context(open(os.devnull, "w", encoding="utf-8"))
            quiet.enter_context(redirect_stdout(nowhere))
        for command in program.commands(line):
            with program.within(line, command) as whole:
                _carry_out(root, _known(root, whole))


def _known(root: Any, command: list[str]) -> list[str]:
    """The command without the flags for quiet and for no questions, where it has no use for them."""
    found = root
    for word in command:
        found = getattr(found, "commands", {}).get(word, found)
    taken = {option for parameter in found.params for option in parameter.opts}
    return [word for word in command if word not in ("-f", "--silent") or word in taken]


def _carry_out(root: Any, command: list[str]) -> None:
    """Its errors and its exit status are those of the program."""
    with root.make_context("raybroker", command) as context:
        root.invoke(context)
