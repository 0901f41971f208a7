"""imqkeytool: the key pair and the certificate of the broker."""

from __future__ import annotations

import socket
import sys
from typing import Final

import typer

from raybroker.cli.exits import UsageError
from raybroker.cli.mq.options import Form, Line, Option, form_of

NAME: Final = "imqkeytool"
ABOUT: Final = """imqkeytool: a key pair and a certificate signed by itself, in the keystore of this machine's brokers.

Programs from elsewhere are signed with: raybroker keytool import."""
OPTIONS: Final = {
    "-broker": Option("Make them for the broker."),
    "-servicename": Option(
        "Refused.",
        "NAME",
        refused="all services with TLS have the keystore of the broker; make it with: imqkeytool -broker",
    ),
    "-passfile": Option("Passfile whose imq.keystore.password encrypts the key.", "FILE"),
    "-f": Option("Replace a keystore that is there."),
    "-s": Option("Print nothing; errors and the exit status stay."),
}
FORMS: Final = {"": Form("", "-broker", "-passfile -f", "Make key and certificate.")}


def commands(line: Line) -> list[list[str]]:
    """The command of raybroker that an imqkeytool is; raises UsageError.

    At a terminal the names of the host are asked, as MQ asks for a distinguished name.
    """
    form_of(NAME, FORMS, line, ("-s",))
    if "-broker" not in line:
        raise UsageError(f"{NAME}: say for whom: {NAME} -broker")
    host = socket.getfqdn()
    if sys.stdin.isatty():
        host = str(typer.prompt("host name by which clients reach the broker", default=host, err=True))
    names = [word for name in dict.fromkeys((host, "localhost")) for word in ("--name", name)]
    taken = line.passed("--file", "--cluster", "--config", "--json", passfile="--passfile", f="--replace")
    return [["keytool", "make", *names, *taken]]
