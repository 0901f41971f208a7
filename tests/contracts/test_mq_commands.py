"""The programs of Message Queue with the command lines of its manuals; mq_commands.txt has what comes of each."""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from raybroker.cli import connecting
from raybroker.cli.mq.options import parse
from raybroker.cli.mq.programs import PROGRAMS
from tests import program
from tests.contracts.test_cli_outside import Shell, outside, shell
from tests.contracts.test_services import Outside
from tests.ports import free_port

__all__ = ["outside", "shell"]
ROOT = Path(__file__).parents[2]


class Row(NamedTuple):
    """A command and what comes of it: ``becomes``, or an exit status and texts."""

    command: str
    status: int
    texts: tuple[str, ...]
    becomes: tuple[str, ...]


def sections() -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    rows: list[Row] = []
    for line in (Path(__file__).parent / "mq_commands.txt").read_text().splitlines():
        sign, _, rest = line.partition(" ")
        if sign == "##":
            rows = found.setdefault(rest, [])
        elif sign == "$":
            rows.append(Row(rest, -1, (), ()))
        elif sign == ">":
            rows[-1] = rows[-1]._replace(becomes=(*rows[-1].becomes, rest))
        elif sign.isdigit():
            rows[-1] = rows[-1]._replace(status=int(sign), texts=(*rows[-1].texts, rest))
        else:
            assert not sign or sign == "#", line
    return found


SECTIONS = sections()
IN_RAY = "in Ray: what the commands are for is there"


@pytest.mark.parametrize("title", [title for title in SECTIONS if title != IN_RAY])
def test_command_lines_of_the_manuals(
    title: str, outside: Outside, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "connect", lambda cluster, broker=None: Inside(outside.inside))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    shell.passfile.write_text("secret\n")
    for name, text in (("passfile", "imq.imqcmd.password=secret\n"), ("password", "secret\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    database = f"-Dimq.persist.store=sql -Dimq.persist.jdbc.sqlite.opendburl=sqlite:///{tmp_path}/store.db"
    known = {
        "b": shell.address,
        "w": f"-b {shell.address} -u root -passfile {tmp_path}/passfile",
        "d": str(tmp_path),
        "p": str(free_port()),
        "n": "loopback",
        "db": database,
    }
    wrong = outcome(SECTIONS[title], known)
    assert not wrong, "\n\n".join(wrong)


def outcome(rows: Iterable[Row], known: dict[str, str]) -> list[str]:
    """What comes of rows that is not what they say; ``known``: what stands for their words in braces."""
    wrong = []
    for row in (filled(one, known) for one in rows):
        name, *words = shlex.split(row.command)
        if row.becomes:
            of = PROGRAMS[name]
            made = of.commands(parse(name, of.options, words))
            assert [shlex.join(["raybroker", *one]) for one in made] == list(row.becomes)
            continue
        done = program.invoke("mq", name, *words)
        quiet = "-s" in words and row.status == 0
        if (
            done.exit_code != row.status
            or (quiet and done.stdout)
            or any(text not in done.output for text in row.texts)
        ):
            wrong.append(f"{row}\n→ {done.exit_code}\n{done.output}{done.exception or ''}")
    return wrong


def filled(row: Row, known: dict[str, str]) -> Row:
    """The row with what stands for its words in braces."""
    command, texts = row.command, list(row.texts)
    for name, value in known.items():
        command, texts = command.replace(f"{{{name}}}", value), [one.replace(f"{{{name}}}", value) for one in texts]
    return row._replace(command=command, texts=tuple(texts))


class Inside:
    """A connection inside, that stays when a command closes it."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def close(self) -> None:
        """It is the test's."""


def test_each_program_is_a_script() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert set(PROGRAMS) == set(scripts) - {"raybroker"}
    for place in scripts.values():
        module, _, function = place.partition(":")
        assert callable(getattr(import_module(module), function))


def test_every_form_has_a_row() -> None:
    """A form that nobody has tried is not there."""
    commands = [shlex.split(row.command) for rows in SECTIONS.values() for row in rows]
    for name, of in PROGRAMS.items():
        for words in of.forms:
            wanted = [name, *words.split()]
            assert [one for one in commands if one[0] == name and set(wanted) <= set(one)], wanted
