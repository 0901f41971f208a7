"""Named contexts: how a broker is reached, kept under a name, so that commands need no -b, -u and --passfile.

    raybroker context add prod -b mq.example:7676 -u admin --passfile ~/.prod
    raybroker --context prod list dst

A command takes the context of --context, else that of RAYBROKER_CONTEXT, else the one in use (``context use``). What is
written on its command line goes first: with -b no context is looked at, and a --cluster of its own holds. A context has
paths of files with passwords and tokens, and never a password.

They are in ``contexts.json`` below $XDG_CONFIG_HOME/raybroker, or ~/.config/raybroker: {"in_use": name, "contexts":
{name: fields}}.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, NamedTuple

from raybroker.cli.exits import UsageError
from raybroker.config.layers import CONTEXT, variable
from raybroker.model.errors import ConfigError
from raybroker.model.naming.nearest import nearest
from raybroker.security.private_files import read_public, write_private

NAME_CHARS_MAX: Final = 64
CONTEXTS_MAX: Final = 1000
CHANGEABLE: Final = 0o022
AGAIN_S: Final = 0.02
TRIES_MAX: Final = 250
"""How often a command tries to be the only one that changes them, and after which time again."""
_TEXTS: Final = ("broker", "user", "passfile", "token_file", "cluster")

wanted: ContextVar[str | None] = ContextVar("raybroker_cli_context", default=None)
"""The name that --context gave."""


class Context(NamedTuple):
    """How a broker is reached; None: not said. ``define``: attributes of the connection, each "name=value"."""

    broker: str | None = None
    user: str | None = None
    passfile: str | None = None
    token_file: str | None = None
    secure: bool = False
    define: tuple[str, ...] = ()
    cluster: str | None = None

    def fields(self) -> dict[str, Any]:
        """What the file has: all that is said."""
        return {name: value for name, value in self._asdict().items() if value}


class Contexts(NamedTuple):
    """All contexts of this user. ``in_use``: the name of the one that holds without --context, "" for none."""

    contexts: Mapping[str, Context] = {}
    in_use: str = ""

    def named(self, name: str) -> Context:
        """Raises UsageError, with those that there are, for an unknown name."""
        if name in self.contexts:
            return self.contexts[name]
        near = nearest(name, self.contexts)
        meant = f"; did you mean {near}?" if near else ""
        there = f"there are: {', '.join(sorted(self.contexts))}" if self.contexts else "there are none"
        raise UsageError(
            f"there is no context {name!r}{meant or f'; {there}'}; raybroker context add {name} -b … makes it"
        )

    def with_context(self, name: str, context: Context) -> Contexts:
        """Raises UsageError for a name that is not one, and for one context too many."""
        if not is_name(name):
            raise UsageError(f"context {name!r:.80}: a name has 1 to {NAME_CHARS_MAX} characters that can be printed")
        if len(self.contexts) >= CONTEXTS_MAX and name not in self.contexts:
            raise UsageError(f"there are {CONTEXTS_MAX} contexts; delete some of them first")
        return self._replace(contexts={**self.contexts, name: context})

    def without(self, name: str) -> Contexts:
        """Raises UsageError for an unknown name."""
        self.named(name)
        rest = {key: context for key, context in self.contexts.items() if key != name}
        return Contexts(rest, "" if self.in_use == name else self.in_use)


def is_name(name: str) -> bool:
    return 0 < len(name) <= NAME_CHARS_MAX and name.isprintable() and name == name.strip() and name[0] != "-"


def file() -> Path:
    """Return the path of the file that has them; raises UsageError where no user has a place for it."""
    configured = Path(variable("XDG_CONFIG_HOME") or "")
    try:
        folder = configured if configured.is_absolute() else Path.home() / ".config"
    except RuntimeError:
        raise UsageError("there is no place for contexts: set HOME, or XDG_CONFIG_HOME") from None
    return folder / "raybroker" / "contexts.json"


def load() -> Contexts:
    """Those of the file, none without one; raises UsageError, which names the file, for one that is damaged, or that
    others may change: they could lead commands to a broker of their own."""
    path = file()
    try:
        of_file = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return Contexts()
    except OSError as error:
        raise UsageError(f"the file of contexts {path} cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(of_file.st_mode):
        raise UsageError(f"{path} is no file of contexts, and no file; move it away")
    if of_file.st_mode & CHANGEABLE or of_file.st_uid not in (0, os.geteuid()):
        raise UsageError(f"the file of contexts {path} may be changed by others than its owner; chmod 600 {path}")
    try:
        found = json.loads(read_public(path, "the file of contexts"))
        contexts = {_named(name): _context(fields) for name, fields in found["contexts"].items()}
        in_use = _text(found.get("in_use", ""))
    except ConfigError as error:
        raise UsageError(str(error)) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{path} is no file of contexts: {error!r:.200}; mend it, or delete it") from None
    return Contexts(contexts, in_use)


def _named(name: str) -> str:
    if not is_name(name):
        raise ValueError(f"{name!r:.80} is no name of a context")
    return name


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise TypeError(f"{value!r:.80} is no text that can be printed")
    return value


def _context(fields: Mapping[str, Any]) -> Context:
    texts = {name: _text(fields[name]) for name in _TEXTS if fields.get(name) is not None}
    define = fields.get("define", [])
    if not isinstance(define, list):
        raise TypeError(f"{define!r:.80} is no list of attributes")
    return Context(**texts, secure=fields.get("secure") is True, define=tuple(map(_text, define)))


def save(contexts: Contexts) -> None:
    """Make these all that the file has; raises ConfigError. See ``changing``."""
    rows = {name: contexts.contexts[name].fields() for name in sorted(contexts.contexts)}
    write_private(file(), json.dumps({"in_use": contexts.in_use, "contexts": rows}, indent=2).encode())


@contextmanager
def changing() -> Iterator[Contexts]:
    """Those of the file, for one command at a time that reads, changes and saves them; raises UsageError where another
    one takes too long."""
    path = file().with_suffix(".lock")
    pause = threading.Event()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with path.open("a", encoding="utf-8") as lock:
            for _ in range(TRIES_MAX):
                with suppress(BlockingIOError):
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                pause.wait(AGAIN_S)
            else:
                raise UsageError(f"another command changes the contexts, and has {path} for long; try again")
            yield load()
    except OSError as error:
        raise UsageError(f"contexts cannot be changed: {error}") from None


def current() -> Context | None:
    """The one that the command takes; None: none. Raises UsageError for an unknown name."""
    name = wanted.get() or variable(CONTEXT)
    found = load()
    if name is None:
        name = found.in_use
    return found.named(name) if name else None
