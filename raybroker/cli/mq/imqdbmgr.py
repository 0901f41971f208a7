"""imqdbmgr: tables in databases, those with the messages and the one that brokers share."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from raybroker.cli.exits import UsageError
from raybroker.cli.mq.options import Form, Line, Option, form_of

NAME: Final = "imqdbmgr"
ABOUT: Final = "imqdbmgr: tables in databases, which the configuration names. It needs no broker."
GENERAL: Final = {
    "-b": Option("Name of the instance, which is the cluster's.", "INSTANCE"),
    "-D": Option("A property, -Dname=value.", "NAME=VALUE"),
    "-u": Option("User of the database.", "NAME"),
    "-passfile": Option("The brokers' passfile.", "FILE"),
    "-f": Option("Do not ask."),
    "-s": Option("Print nothing; errors and the exit status stay."),
    "-p": Option(
        "Refused.",
        "PASSWORD",
        refused="a password on a command line is seen by others; put imq.persist.jdbc.postgresql.password=… into a file"
        " that you alone may read, and give that with -passfile",
    ),
}
OPTIONS: Final = {
    **GENERAL,
    "-n": Option("The broker, of which the tables are.", "BROKER"),
    "-dir": Option("Folder of the backup.", "DIR"),
    "-file": Option("File of the backup.", "FILE"),
}
BACKUP: Final = "messages.backup"
RECORD: Final = "record.backup"
ANY_BROKER: Final = "-n"
FORMS: Final = {
    form.words: form
    for form in (
        Form("create all", "", ANY_BROKER, "Make the database, and the tables with messages."),
        Form("create tbl", "", ANY_BROKER, "Make the tables with messages."),
        Form("create sharecc_tbl", "", "", "Make the table that brokers share instead of a master."),
        Form("delete tbl", "", ANY_BROKER, "Remove the tables with all messages."),
        Form("delete oldtbl", "", ANY_BROKER, "Remove tables that older releases have left."),
        Form("delete sharecc_tbl", "", "", "Remove the shared table."),
        Form("recreate tbl", "", ANY_BROKER, "Empty tables in place of those that there are."),
        Form("recreate sharecc_tbl", "", "", "An empty shared table in place of the one that there is."),
        Form("query", "", ANY_BROKER, "Show the tables with messages."),
        Form("backup", "", "-dir -file -n", f"Write the messages of one broker to DIR/{BACKUP}, or to FILE."),
        Form("backup sharecc_tbl", "", "-dir -file", f"Write the shared record to DIR/{RECORD}, or to FILE."),
        Form("restore", "", "-dir -file -n", "Put that in place of the tables that there are."),
        Form("restore sharecc_tbl", "", "-dir -file", "Put that in place of the shared record."),
        Form("reset lck", "", ANY_BROKER, "Clear the locks of the tables with messages."),
        Form("remove bkr", "-n", "", "Remove a broker that is over from the store that brokers share."),
        Form("upgrade hastore", "", ANY_BROKER, "Have brokers take over from each other in the tables that they have."),
    )
}
ASKS: Final = ("delete", "recreate", "restore", "reset", "remove")
"""Verbs that ask, and take --force."""


def commands(line: Line) -> list[list[str]]:
    """The command of raybroker that an imqdbmgr is; raises UsageError."""
    form = form_of(NAME, FORMS, line, GENERAL)
    verb, what = line.words[0], line.words[1:]
    before = line.passed("-D", u="--dbuser", passfile="--passfile")
    taken = line.passed("--cluster", "--config", "--json", b="--cluster", n="--broker")
    if verb in ASKS and "-f" in line and form.words != "delete oldtbl":
        taken.append("--force")
    if verb in ("backup", "restore"):
        taken += ["--file", _file(line, verb, RECORD if what else BACKUP)]
        what = what or ("tbl",)
    return [["dbmgr", *before, verb, *what, *taken]]


def _file(line: Line, verb: str, name: str) -> str:
    files = [*line.all("-file"), *(str(Path(folder) / name) for folder in line.all("-dir"))]
    if len(files) != 1:
        raise UsageError(f"{NAME} {verb}: say where, with -dir DIR or with -file FILE")
    return files[0]
