"""imqusermgr: the file of users on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from raybroker.cli import output
from raybroker.cli.exits import UsageError
from raybroker.cli.mq.options import Form, Line, Option, form_of
from raybroker.security.private_files import write_private

NAME: Final = "imqusermgr"
ABOUT: Final = "imqusermgr: users of the connection services, in the file of this machine. It needs no broker."
GENERAL: Final = {"-f": Option("Do not ask."), "-s": Option("Print nothing; errors and the exit status stay.")}
OPTIONS: Final = {
    **GENERAL,
    "-i": Option("Name of the instance, which is the cluster's.", "INSTANCE"),
    "-u": Option("Name of the user.", "NAME"),
    "-p": Option("The password; others see it on a command line, so leave it out: it is asked.", "PASSWORD"),
    "-passfile": Option("File whose first line is the password.", "FILE"),
    "-g": Option("The group: admin, user or anonymous; user without it.", "GROUP"),
    "-a": Option("Whether the user may connect.", "true|false"),
    "-src": Option("The passfile to read.", "FILE"),
    "-target": Option("The file to write.", "FILE"),
}
FORMS: Final = {
    form.words: form
    for form in (
        Form("add", "-u", "-p -passfile -g -i", "Make a user."),
        Form("delete", "-u", "-i", "Remove a user."),
        Form("update", "-u", "-p -passfile -a -i", "Change the password, or whether the user may connect."),
        Form("list", "", "-u -i", "List users."),
        Form("encode", "-src", "-target", "Write the passwords of a passfile encoded."),
        Form("decode", "-src", "-target", "Write them in clear again."),
    )
}
ACTIVE: Final = {"true": "--active", "false": "--inactive"}


def commands(line: Line) -> list[list[str]]:
    """The command of raybroker that an imqusermgr is; raises UsageError."""
    form = form_of(NAME, FORMS, line, GENERAL)
    taken = line.passed("-u", "-g", "-src", "-target", "-f", "--file", "--cluster", "--config", "--json")
    taken += line.passed(i="--cluster", passfile="--passfile")
    active = line.last("-a")
    if active is not None:
        if active not in ACTIVE:
            raise UsageError(f"{NAME} -a {active}: it is true or false")
        taken.append(ACTIVE[active])
    return [["usermgr", form.words, *taken]]


@contextmanager
def with_password(line: Line, command: list[str]) -> Iterator[list[str]]:
    """The command with the password of -p in a file that is there as long as it runs, and that nobody else may read."""
    password = line.last("-p")
    if password is None:
        yield command
        return
    if "-passfile" in line:
        raise UsageError(f"{NAME}: -p and -passfile are two ways to say the password; leave one out")
    output.error(f"{NAME} -p: others see a password on a command line; leave it out, and it is asked")
    with TemporaryDirectory(prefix="raybroker-") as folder:
        file = Path(folder) / "password"
        write_private(file, f"{password}\n".encode())
        yield [*command, "--passfile", str(file)]
