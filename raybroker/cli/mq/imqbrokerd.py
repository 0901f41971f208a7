"""imqbrokerd: the start of brokers. They are actors of Ray: the command ends when they run, and they go on."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from raybroker.cli import output
from raybroker.cli.exits import UsageError
from raybroker.cli.mq.options import Form, Line, Option, form_of
from raybroker.config import Config
from raybroker.config.brokers import LIST
from raybroker.model.errors import ConfigError

NAME: Final = "imqbrokerd"
ABOUT: Final = """imqbrokerd: start a broker, or what of a cluster does not run.

It ends when the brokers run; raybroker down, or imqcmd shutdown bkr, ends them. Unless the configuration says which
services listen, these are jms and admin."""
SERVICES: Final = "imq.service.activelist"
ACTIVE: Final = "jms,admin"
"""MQ's default of that."""
CONSOLE: Final = "imq.log.console.output"
RESETS: Final = ("store", "messages", "durables", "props")
PASSWORD: Final = Option(
    "Refused.",
    "PASSWORD",
    refused="a password on a command line is seen by others; put it into a passfile that you alone may read, and give"
    " that with -passfile",
)
OPTIONS: Final = {
    "-name": Option("Name of the instance, which is that of the cluster.", "NAME"),
    "-port": Option("Port of the port mapper.", "PORT"),
    "-cluster": Option("Names of the brokers, with commas between: b1,b2 or b1@node.", "LIST"),
    "-D": Option("A property, -Dname=value. A wrong name is refused.", "NAME=VALUE"),
    "-reset": Option("First empty the store, or drop messages, durable subscriptions, or changed properties.", "WHAT"),
    "-backup": Option("Write the configuration change record of the running cluster to a file, and end.", "FILE"),
    "-restore": Option("Make a backup the record, while brokers are down, and end.", "FILE"),
    "-remove": Option("Delete the stores, logs and changed properties of the instance, and end.", "instance"),
    "-force": Option("With -remove: do not ask; -reset asks nothing."),
    "-f": Option("With -remove: do not ask."),
    "-loglevel": Option("NONE, ERROR, WARNING or INFO.", "LEVEL"),
    "-metrics": Option("How often metrics are written to the log.", "S"),
    "-tty": Option("All lines of the log go to the console, which is that of Ray's processes."),
    "-silent": Option("No line of the log goes to the console, and this command prints nothing."),
    "-s": Option("The same."),
    "-passfile": Option("The brokers' passfile.", "FILE"),
    "-dbuser": Option("User of the database.", "NAME"),
    "-dbpassword": PASSWORD,
    "-ldappassword": PASSWORD,
    "-password": PASSWORD,
    "-shared": Option("Taken and not used.", ignored="all connections of a host share one event loop in any case"),
    "-bgnd": Option("Taken and not used.", ignored="brokers run in the background in any case"),
    "-vmargs": Option("Taken and not used.", "ARGS", ignored="there is no Java here"),
    "-upgrade-store-nobackup": Option("Taken and not used.", ignored="stores are not converted at a start"),
}
FORMS: Final = {"": Form("", "", " ".join(OPTIONS), "Start.")}
ALONE: Final = ("-backup", "-restore", "-remove")


def commands(line: Line) -> list[list[str]]:
    """The commands of raybroker that an imqbrokerd is; raises UsageError."""
    form_of(NAME, FORMS, line, ())
    name = line.passed("--config", name="--name")
    tools = line.passed("--config", name="--cluster")
    chosen = [option for option in ALONE if option in line]
    if len(chosen) > 1:
        raise UsageError(f"{NAME}: {' and '.join(chosen)} are not done together; give one")
    if "-backup" in line:
        return [["backup", "cls", "-f", line.last("-backup") or "", *line.passed(name="--cluster")]]
    if "-restore" in line:
        return [["restore", "cls", "-f", line.last("-restore") or "", *tools]]
    if "-remove" in line:
        if line.last("-remove") != "instance":
            raise UsageError(f"{NAME} -remove {line.last('-remove')}: write -remove instance, with -name NAME")
        force = ["--force"] if "-force" in line or "-f" in line else []
        return [["remove", *tools, *force]]
    for what in line.all("-reset"):
        if what not in RESETS:
            raise UsageError(f"{NAME} -reset {what}: it is one of {', '.join(RESETS)}")
    taken = line.passed(reset="--reset", port="--port", passfile="--passfile", dbuser="--dbuser")
    taken += ["--force"] if "-reset" in line else []
    return [["up", *name, *taken, *(word for each in _properties(line) for word in ("-D", each))]]


def _properties(line: Line) -> list[str]:
    """The options that are properties, and what MQ has as its default; -D wins, as it does there."""
    level, seconds, listed = line.last("-loglevel"), line.last("-metrics"), line.last("-cluster")
    found = {
        **({"imq.log.level": level} if level is not None else {}),
        **({"imq.metrics.interval": seconds} if seconds is not None else {}),
        **({CONSOLE: "ALL"} if "-tty" in line else {}),
        **({CONSOLE: "NONE"} if "-silent" in line or "-s" in line else {}),
        **({LIST: _checked(listed)} if listed is not None else {}),
    }
    given = line.all("-D")
    named = {text.partition("=")[0].strip() for text in given}
    try:
        config = Config.load(cluster_file=Path(file) if (file := line.last("--config")) else None, flags=given)
    except ConfigError as error:
        raise UsageError(str(error)) from None
    if SERVICES not in named and config.origin(SERVICES) == "default":
        found[SERVICES] = ACTIVE
        output.error(f"{NAME}: services {ACTIVE} listen, MQ's default; -D{SERVICES}=… says otherwise")
    return [*(f"{name}={value}" for name, value in found.items() if name not in named), *given]


def _checked(listed: str) -> str:
    if ":" in listed:
        raise UsageError(
            f"{NAME} -cluster {listed}: brokers are found by Ray and have names here, no addresses: -cluster b1,b2, or"
            " b1@node for the Ray node that a broker is to run on"
        )
    return listed
