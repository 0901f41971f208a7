"""The scripts ``imqcmd``, ``imqbrokerd`` and so on: each is ``raybroker mq`` with its name."""

from __future__ import annotations

import sys

from raybroker.cli.main import app


def _run(name: str) -> None:
    app(["mq", name, *sys.argv[1:]], prog_name="raybroker")


def imqcmd() -> None:
    """The entry point of the script ``imqcmd``."""
    _run("imqcmd")


def imqbrokerd() -> None:
    """The entry point of the script ``imqbrokerd``."""
    _run("imqbrokerd")


def imqusermgr() -> None:
    """The entry point of the script ``imqusermgr``."""
    _run("imqusermgr")


def imqobjmgr() -> None:
    """The entry point of the script ``imqobjmgr``."""
    _run("imqobjmgr")


def imqdbmgr() -> None:
    """The entry point of the script ``imqdbmgr``."""
    _run("imqdbmgr")


def imqkeytool() -> None:
    """The entry point of the script ``imqkeytool``."""
    _run("imqkeytool")
