"""imqcmd: the commands of administration. Verbs, objects and most options are those of ``raybroker`` itself."""

from __future__ import annotations

import sys
from typing import Final

import typer

from raybroker.cli.exits import UsageError
from raybroker.cli.mq.options import Form, Line, Option, form_of
from raybroker.config.brokers import MASTER

NAME: Final = "imqcmd"
ABOUT: Final = """imqcmd: administration of brokers and destinations, as in the manuals of Message Queue and Interstage.

Without -b and -u it goes to the cluster in the Ray of this machine, where nobody logs in; with one of them to the
broker at that address (localhost:7676), as that user."""
ADDRESS: Final = ("localhost", "7676")

GENERAL: Final = {
    "-b": Option("The broker, HOST:PORT of its port mapper; localhost and 7676 may be left out.", "HOST:PORT"),
    "-u": Option("The user; without it that is asked, where -b is given.", "NAME"),
    "-passfile": Option("File with imq.imqcmd.password=…, or the password alone; without it that is asked.", "FILE"),
    "-secure": Option("Over TLS, by the service ssladmin."),
    "-rtm": Option("How long the first answer is waited for; then longer, -rtr times.", "S"),
    "-rtr": Option("How many times to wait longer.", "N"),
    "-D": Option("An attribute of the connection, -Dname=value.", "NAME=VALUE"),
    "-f": Option("Do not ask."),
    "-s": Option("Print nothing; errors and the exit status stay."),
    "-p": Option(
        "Refused.",
        "PASSWORD",
        refused="a password on a command line is seen by others; put imq.imqcmd.password=… into a file that you alone"
        " may read, and give that with -passfile",
    ),
}
"""What every command takes."""
OPTIONS: Final = {
    **GENERAL,
    "-t": Option("Type of the destination: q or t.", "q|t"),
    "-n": Option(
        "Name of the destination, service or subscription, or id of the connection or transaction; without -b that of"
        " the broker.",
        "NAME",
    ),
    "-o": Option("An attribute. Repeatable.", "NAME=VALUE"),
    "-c": Option("Client id of the subscription.", "ID"),
    "-d": Option("Topic of the subscriptions.", "TOPIC"),
    "-m": Option("What to show: ttl totals, rts rates, cxn connections, con consumers, dsk disk.", "KIND"),
    "-int": Option("Seconds between looks; 5 without it.", "S"),
    "-msp": Option("How many looks; -1: until Ctrl-C.", "N"),
    "-pst": Option("What is paused: PRODUCERS, CONSUMERS, ALL.", "KIND"),
    "-svn": Option("Only connections of this service.", "SERVICE"),
    "-tmp": Option("Temporary destinations as well."),
    "-time": Option("Do it in S seconds, and return at once.", "S"),
    "-nofailover": Option("Taken and not used.", ignored="a broker that is shut down is not taken over"),
}
OF_ONE: Final = ("update bkr", "shutdown bkr", "restart bkr")
"""Forms whose -n is the name of one of several brokers."""
LOOKS: Final = "-m -int -msp"
FORMS: Final = {
    form.words: form
    for form in (
        Form("create dst", "-t -n", "-o", "Create a destination."),
        Form("list dst", "", "-t -tmp", "List destinations."),
        Form("query dst", "-t -n", "", "Show a destination."),
        Form("update dst", "-t -n -o", "", "Change attributes of a destination."),
        Form("destroy dst", "-t -n", "", "Remove a destination with its messages."),
        Form("purge dst", "-t -n", "", "Discard the messages of a destination."),
        Form("pause dst", "", "-t -n -pst", "Pause a destination, or all."),
        Form("resume dst", "", "-t -n -pst", "Resume a destination, or all."),
        Form("compact dst", "", "-t -n", "Give back what the store of a paused destination, or of all, does not need."),
        Form("metrics dst", "-t -n", LOOKS, "Show counts of a destination, again and again."),
        Form("list bkr", "", "", "List the brokers of the cluster."),
        Form("query bkr", "", "", "Show the broker."),
        Form("update bkr", "-o", "-n", "Change properties of brokers while they run."),
        Form("pause bkr", "", "", "Pause all services but those for administration."),
        Form("resume bkr", "", "", "Resume them."),
        Form("quiesce bkr", "", "", "Take no new clients."),
        Form("unquiesce bkr", "", "", "Take new clients again."),
        Form("shutdown bkr", "", "-time -nofailover -n", "Shut the broker down."),
        Form("restart bkr", "", "-n", "Shut the broker down and start it again."),
        Form("metrics bkr", "", LOOKS, "Show counts of the broker, again and again."),
        Form("takeover bkr", "-n", "", "Have a lost broker's messages served by another one."),
        Form("reload cls", "", "", "Have the brokers take the list of brokers from the cluster file (--config)."),
        Form("changemaster cls", "-o", "", f"Move the change record: -o {MASTER}=BROKER."),
        Form("list svc", "", "", "List connection services."),
        Form("query svc", "-n", "", "Show a service."),
        Form("update svc", "-n -o", "", "Change port, minThreads or maxThreads of a service."),
        Form("pause svc", "-n", "", "Pause a service."),
        Form("resume svc", "-n", "", "Resume a service."),
        Form("metrics svc", "-n", LOOKS, "Show counts of a service, again and again."),
        Form("list cxn", "", "-svn", "List connections."),
        Form("query cxn", "-n", "", "Show a connection."),
        Form("destroy cxn", "-n", "", "Close a connection."),
        Form("list dur", "", "-d", "List durable subscriptions."),
        Form("purge dur", "-n", "-c", "Discard the messages of a durable subscription."),
        Form("destroy dur", "-n", "-c", "End a durable subscription."),
        Form("list txn", "", "", "List transactions."),
        Form("query txn", "-n", "", "Show a transaction."),
        Form("commit txn", "-n", "", "Commit a prepared transaction."),
        Form("rollback txn", "-n", "", "Roll a prepared transaction back."),
    )
}


def commands(line: Line) -> list[list[str]]:
    """The command of raybroker that an imqcmd is; raises UsageError."""
    form = form_of(NAME, FORMS, line, GENERAL)
    if form.words == "changemaster cls":
        _check_master(line)
    verb, word = line.words
    way, of_one = _way(line), form.words in OF_ONE
    if of_one and way and "-n" in line:
        raise UsageError(f"{NAME} {form.words}: the broker is the one at the address; leave -n out, or -b and -u")
    options = line.passed(
        *("-t", "-o", "-c", "-d", "-m", "-int", "-msp", "-pst", "-svn", "-tmp", "-rtm", "-rtr", "-D", "-f"),
        *("--cluster", "--config", "--json", "--token-file"),
        n="-b" if of_one else "-n",
        s="--silent",
        time="--time",
        secure="--secure",
        passfile="--passfile",
    )
    return [[verb, word, *options, *way]]


def _way(line: Line) -> list[str]:
    """The address and the user, where one of them is given."""
    address, user = line.last("-b"), line.last("-u")
    if "--token-file" in line:
        return ["-b", _address(address or "")]
    if address is None and user is None and "-passfile" not in line:
        return []
    if user is None:
        if not sys.stdin.isatty():
            raise UsageError(f"{NAME}: say as which user, with -u")
        user = str(typer.prompt("user", err=True))
    return ["-b", _address(address or ""), "-u", user]


def _address(text: str) -> str:
    """host:port of "host", ":port" or nothing; a URL stays as it is."""
    if "://" in text or text.endswith("]"):
        return text if "://" in text else f"{text}:{ADDRESS[1]}"
    host, _, port = text.rpartition(":") if ":" in text else (text, "", "")
    return f"{host or ADDRESS[0]}:{port or ADDRESS[1]}"


def _check_master(line: Line) -> None:
    name, _, broker = (line.last("-o") or "").partition("=")
    if name == MASTER and ":" in broker:
        raise UsageError(
            f"{NAME} changemaster cls: brokers have names here and no addresses; -o {MASTER}=BROKER with one that"
            " imqcmd list bkr shows"
        )
