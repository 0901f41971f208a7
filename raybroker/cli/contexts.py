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

import json
from collections.abc import Mapping
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
        if not name or len(name) > NAME_CHARS_MAX or not name.isprintable() or name != name.strip() or name[0] == "-":
            raise UsageError(f"context {name!r:.80}: a name has 1 to {NAME_CHARS_MAX} characters that can be printed")
        if len(self.contexts) >= CONTEXTS_MAX and name not in self.contexts:
            raise UsageError(f"there are {CONTEXTS_MAX} contexts; delete some of them first")
        return self._replace(contexts={**self.contexts, name: context})

    def without(self, name: str) -> Contexts:
        """Raises UsageError for an unknown name."""
        self.named(name)
        rest = {key: context for key, context in self.contexts.items() if key != name}
        return Contexts(rest, "" if self.in_use == name else self.in_use)


def file() -> Path:
    """Return the path of the file that has them."""
    configured = variable("XDG_CONFIG_HOME")
    return (Path(configured) if configured else Path.home() / ".config") / "raybroker" / "contexts.json"


def load() -> Contexts:
    """Those of the file, none without one; raises UsageError, which names the file, for one that is damaged."""
    path = file()
    if not path.exists():
        return Contexts()
    try:
        found = json.loads(read_public(path, "the file of contexts"))
        contexts = {str(name): _context(fields) for name, fields in found["contexts"].items()}
        in_use = str(found.get("in_use", ""))
    except ConfigError as error:
        raise UsageError(str(error)) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path} is no file of contexts: {error!r:.200}; mend it, or delete it") from None
    return Contexts(contexts, in_use if in_use in contexts else "")


def _context(fields: Mapping[str, Any]) -> Context:
    texts = {name: str(fields[name]) for name in _TEXTS if fields.get(name)}
    define = tuple(map(str, fields.get("define", ())))
    return Context(**texts, secure=fields.get("secure") is True, define=define)


def save(contexts: Contexts) -> None:
    """Make these all that the file has; raises ConfigError."""
    rows = {name: contexts.contexts[name].fields() for name in sorted(contexts.contexts)}
    write_private(file(), json.dumps({"in_use": contexts.in_use, "contexts": rows}, indent=2).encode())


def current() -> Context | None:
    """The one that the command takes; None: none. Raises UsageError for an unknown name."""
    name = wanted.get() or variable(CONTEXT)
    if name is not None:
        return load().named(name)
    found = load()
    return found.contexts.get(found.in_use)
