"""Reads the shell commands of documentation, and says what in them is not there."""

from __future__ import annotations

import importlib.util
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import typer

from raybroker.cli.exits import UsageError
from raybroker.cli.mq.options import parse
from raybroker.cli.mq.programs import PROGRAMS
from tests import program
from tests.tidy.source import ROOT

_OPERATORS: Final = ("&&", "||", "|", ";", "&")
_MODULES: Final = {"venv": "python3 -m venv", "pytest": "pytest", "pip": "pip"}
_REQUIREMENT: Final = re.compile(r"(?:raybroker|\.)(?:\[([a-z,]+)\])?")


def commands(text: str) -> Iterator[list[str]]:
    """The simple commands of a shell text, as words; comments are left out."""
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="&|;")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in lexer:
            if word in _OPERATORS:
                yield words
                words = []
            else:
                words.append(word)
        if words:
            yield words


def fault(words: list[str]) -> str:
    """What is wrong with one command; "" when nothing is."""
    name, *rest = words
    name = name.removeprefix(".venv/bin/")
    match name:
        case "raybroker":
            return _unparsed(rest)
        case "python" | "python3":
            return _no_module(rest)
        case "pip":
            return _no_extra(rest)
        case "pytest":
            return _no_path(rest)
        case ".ci/run":
            return _no_stage(rest)
    if name in PROGRAMS:
        return _unparsed_of(name, rest)
    return f"the program {name} is not known here"


def _unparsed_of(name: str, words: list[str]) -> str:
    """What is wrong with a command of Message Queue, or with those of raybroker that it becomes."""
    try:
        becomes = PROGRAMS[name].commands(parse(name, PROGRAMS[name].options, words))
    except UsageError as error:
        return str(error)
    return next((text for command in becomes if (text := _unparsed(command))), "")


def _unparsed(words: list[str]) -> str:
    command: Any = program.commands()
    name, parent = "raybroker", None
    try:
        while True:
            context = command.make_context(name, list(words), parent=parent)
            if not hasattr(command, "commands"):
                return ""
            if not [*context._protected_args, *context.args]:
                return ""  # A group that does something of its own.
            found, command, words = command.resolve_command(context, [*context._protected_args, *context.args])
            if command.hidden:
                return f"{found} is a command that this version has not"
            name, parent = str(found), context
    except typer.Exit as end:
        return "" if end.exit_code == 0 else f"ends with {end.exit_code}"
    except UsageError as error:
        return str(error)
    except typer.BadParameter.__base__ as error:  # type: ignore[misc]
        return str(error.format_message())


def _no_module(words: list[str]) -> str:
    if len(words) < 2 or words[0] != "-m":
        return "python is run with -m here"
    module, *rest = words[1:]
    if module == "pytest":
        return _no_path(rest)
    if importlib.util.find_spec(module) is None:
        return f"there is no module {module}"
    return ""


def _no_extra(words: list[str]) -> str:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    if words[:1] != ["install"]:
        return "pip is for install here"
    for word in words[1:]:
        if word.startswith("-"):
            continue
        found = _REQUIREMENT.fullmatch(word)
        if found is None:
            return f"{word} is not this package"
        if unknown := set(filter(None, (found[1] or "").split(","))) - set(extras):
            return f"there is no extra {', '.join(unknown)}"
    return ""


def _no_path(words: list[str]) -> str:
    paths = [Path(word.partition("::")[0]) for word in words if word.startswith(("tests", "benchmarks"))]
    return next((f"there is no {path}" for path in paths if not (ROOT / path).exists()), "")


def _no_stage(words: list[str]) -> str:
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    return next((f"there is no stage {word}" for word in words if f"\nrun_{word}()" not in text), "")
