"""Reads shell lines of the deployment files and has the programs themselves say whether they understand them.

``ray`` and ``raybroker`` lines are parsed by the programs' own option parsers, without carrying anything out, so that
an option that is misspelled, gone or of the wrong type is found here and not on somebody's machine.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import typer

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
_BETWEEN = frozenset({";", "&", "&&", "|", "||", "(", ")"})
_KEYWORDS = frozenset({"until", "while", "do", "done", "if", "then", "fi", "!", "exec", "nohup", "setsid"})
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*")
_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)\}?")


def syntax_fault(line: str) -> str:
    """What bash says of a line; "" when it can be parsed."""
    return subprocess.run(["bash", "-n", "-c", line], capture_output=True, text=True, check=False).stderr


def simple_commands(line: str) -> Iterator[list[str]]:
    """The words of each command of a shell line, without assignments and redirections; ``sh -c`` is looked into."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    redirection = False
    for token in [*lexer, ";"]:
        if token in _BETWEEN:
            yield from _command(words)
            words = []
        elif token[0] in "<>":
            redirection = True
            if words and words[-1].isdigit():
                words.pop()
        elif redirection:
            redirection = False
        else:
            words.append(token)


def _command(words: list[str]) -> Iterator[list[str]]:
    while words and (words[0] in _KEYWORDS or _ASSIGNMENT.fullmatch(words[0])):
        words = words[1:]
    if not words:
        return
    if PurePosixPath(words[0]).name in {"bash", "sh"} and "-c" in words:
        yield from simple_commands(words[words.index("-c") + 1])
    else:
        yield words


def expanded(words: list[str], variables: Mapping[str, str]) -> list[str]:
    """``words`` with variables in their places; a word that is only ``$NAME`` becomes as many as its value has."""
    found: list[str] = []
    for word in words:
        bare = re.fullmatch(r"\$([A-Za-z_]\w*)", word)
        if bare:
            found += shlex.split(variables[bare[1]])
        else:
            found.append(_VARIABLE.sub(lambda match: variables[match[1]], word))
    return found


def faults(line: str, variables: Mapping[str, str] | None = None) -> list[str]:
    """What ``ray`` and ``raybroker`` do not understand in a shell line."""
    if fault := syntax_fault(line):
        return [fault]
    found = []
    for words in simple_commands(line):
        program = PurePosixPath(words[0]).name
        if program in {"ray", "raybroker"}:
            try:
                parse(program, expanded(words, variables or {})[1:])
            except KeyError as error:
                found.append(f"{shlex.join(words)}: nobody sets {error}")
            except Exception as error:  # click's own, or those of the copy of click inside typer
                if not hasattr(error, "format_message"):
                    raise
                found.append(f"{shlex.join(words)}: {error.format_message()}")
    return found


def parse(program: str, arguments: list[str]) -> None:
    """Have the program's own parser read its arguments; raises click's errors."""
    command, context = _root(program), None
    name = program
    while True:
        context = command.make_context(name, list(arguments), parent=context)
        if not hasattr(command, "resolve_command"):
            return
        name, command, arguments = command.resolve_command(context, _left(context))


def _left(context: Any) -> list[str]:
    """Arguments that a group has not read: its subcommand's."""
    return [*(getattr(context, "_protected_args", None) or getattr(context, "protected_args", [])), *context.args]


def _root(program: str) -> Any:
    if program == "ray":
        from ray.scripts.scripts import cli

        return cli
    from raybroker.cli.main import app

    return typer.main.get_command(app)


def comment_commands(text: str) -> Iterator[str]:
    """The command lines that a file's comments show: those that are indented."""
    for line in text.splitlines():
        shown = re.match(r"#  +(\S.*)", line)
        if shown:
            yield re.sub(r"\s{2,}# .*", "", shown[1])


def environment(path: Path) -> dict[str, str]:
    """The variables of an environment file that both a shell and systemd understand; raises AssertionError."""
    found = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if line.strip() and not line.startswith("#"):
            match = re.fullmatch(r"""([A-Za-z_]\w*)=(?:'([^']*)'|"([^"$`\\]*)"|([^\s'"$`\\;&|]*))""", line)
            assert match, f"{path.name}, line {number}: {line!r} is read differently by a shell and by systemd"
            found[match[1]] = next((value for value in match.groups()[1:] if value is not None), "")
    return found


def without(text: str, mark: str) -> str:
    """``text`` without the line that has ``mark``, which has to be there: for tests that a check bites."""
    kept = [line for line in text.splitlines() if mark not in line]
    assert len(kept) == len(text.splitlines()) - 1, mark
    return "\n".join(kept) + "\n"
