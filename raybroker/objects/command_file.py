"""Commands for administered objects as values, and from files as MQ's ``imqobjmgr -i`` reads them.

    version=2.0
    cmdtype=add
    obj.type=qf
    obj.lookupName=cn=orders
    obj.readOnly=true
    obj.attrs.imqAddressList=mq://broker:7676/jms
    objstore.attrs.java.naming.provider.url=ldap://directory/ou=objects,dc=example,dc=org

A file is one command, and may be a part of one: what the command line says is added, and wins. It is a file of
properties of Java: # and ! begin comments, = or : ends a name, a backslash at the end of a line goes on in the next,
and \\uXXXX is a character.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from raybroker.model.errors import ConfigError
from raybroker.objects import operations
from raybroker.objects.addresses import CREDENTIALS, ObjectStore, store_address
from raybroker.objects.administered import AdministeredObject, check_kind, check_lookup_name, is_secret
from raybroker.security.private_files import read_public

COMMANDS: Final = ("add", "delete", "list", "query", "update")
VERSIONS: Final = ("2.0", "1.0")
FILE_BYTES_MAX: Final = 1 << 20
_OBJECT: Final = "obj.attrs."
_STORE: Final = "objstore.attrs."
_NAMED: Final = ("version", "cmdtype", "obj.lookupName", "obj.type", "obj.readOnly")
_PAIR: Final = re.compile(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_SIGNS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True, slots=True)
class ObjectCommand:
    """``verb``: one of COMMANDS; None and empty: not said. Its ``repr`` shows no attributes, which may be passwords."""

    verb: str | None = None
    name: str | None = None
    kind: str | None = None
    attributes: Mapping[str, str] = field(default_factory=dict, repr=False)
    store: Mapping[str, str] = field(default_factory=dict, repr=False)
    read_only: bool | None = None

    def over(self, other: ObjectCommand) -> ObjectCommand:
        """What this one says, and for the rest what ``other`` says. Raises ConfigError for two verbs."""
        if self.verb is not None and other.verb not in (None, self.verb):
            raise ConfigError(f"the file has the command {other.verb}, and the command line {self.verb}; leave one out")
        return ObjectCommand(
            self.verb or other.verb,
            self.name if self.name is not None else other.name,
            self.kind if self.kind is not None else other.kind,
            {**other.attributes, **self.attributes},
            {**other.store, **self.store},
            self.read_only if self.read_only is not None else other.read_only,
        )

    def check(self) -> None:
        """Raises ConfigError for what is missing or cannot be; the store is not asked."""
        if self.verb not in COMMANDS:
            raise ConfigError(f"command {self.verb!r:.40}: it is one of {', '.join(COMMANDS)}")
        if self.kind is not None:
            check_kind(self.kind)
        if self.verb != "list":
            if self.name is None:
                raise ConfigError(f"{self.verb} needs a lookup name: -l, or obj.lookupName in the file")
            check_lookup_name(self.name)
        elif self.name is not None:
            raise ConfigError("list has no lookup name: query shows one object")
        if self.verb not in ("add", "update") and (self.attributes or self.read_only is not None):
            raise ConfigError(f"{self.verb} sets no attributes: leave out -o and -r")
        if self.verb == "add":
            if self.kind is None:
                raise ConfigError("add needs a type: -t, or obj.type in the file")
            AdministeredObject.checked(self.name or "", self.kind, self.attributes)
        if self.verb == "update" and not self.attributes and self.read_only is None:
            raise ConfigError("update: say what changes, with -o attribute=value or -r true|false")
        store_address(self.store or None)

    def carry_out(self, store: ObjectStore, *, replace: bool = False) -> list[AdministeredObject]:
        """Do it in an open store; returns the objects that it is about. ``replace``: see operations.add."""
        name, kind = self.name or "", self.kind
        doing: Mapping[str, Callable[[], list[AdministeredObject]]] = {
            "add": lambda: [
                operations.add(
                    store, name, kind or "", self.attributes, read_only=self.read_only or False, replace=replace
                )
            ],
            "delete": lambda: [operations.delete(store, name, kind)],
            "list": lambda: operations.list_objects(store, kind),
            "query": lambda: [operations.query(store, name, kind)],
            "update": lambda: [operations.update(store, name, self.attributes, kind, read_only=self.read_only)],
        }
        return doing[self.verb or ""]()

    def shown(self) -> dict[str, str]:
        """What it says, for people: names as in a file, without passwords."""
        found = {
            "cmdtype": self.verb,
            "obj.lookupName": self.name,
            "obj.type": self.kind,
            "obj.readOnly": None if self.read_only is None else str(self.read_only).lower(),
            **{_OBJECT + name: "*****" if is_secret(name) else value for name, value in self.attributes.items()},
            **{_STORE + name: "*****" if name == CREDENTIALS else value for name, value in self.store.items()},
        }
        return {name: value for name, value in found.items() if value is not None}


def read_command(path: Path) -> ObjectCommand:
    """The command of a file; raises ConfigError naming the line."""
    try:
        text = read_public(path, "command file", FILE_BYTES_MAX).decode()
    except UnicodeDecodeError:
        raise ConfigError(f"command file {path} is no text in UTF-8") from None
    named: dict[str, str] = {}
    attributes: dict[str, str] = {}
    store: dict[str, str] = {}
    for number, name, value in _pairs(text):
        where = f"command file {path}, line {number}"
        if name.startswith(_OBJECT):
            into, key = attributes, name.removeprefix(_OBJECT)
        elif name.startswith(_STORE):
            into, key = store, name.removeprefix(_STORE)
        elif name in _NAMED:
            into, key = named, name
        else:
            raise ConfigError(
                f"{where}: {name!r:.80} is not known; there are {', '.join(_NAMED)}, {_OBJECT}…, {_STORE}…"
            )
        if key in into:
            raise ConfigError(f"{where}: {name} is there twice")
        into[key] = value
    if named.get("version", VERSIONS[0]) not in VERSIONS:
        raise ConfigError(f"command file {path}: version={named['version']!r:.20}; it is {' or '.join(VERSIONS)}")
    verb = named.get("cmdtype")
    if verb is not None and verb not in COMMANDS:
        raise ConfigError(f"command file {path}: cmdtype={verb!r:.40}; it is one of {', '.join(COMMANDS)}")
    read_only = named.get("obj.readOnly")
    return ObjectCommand(
        verb,
        named.get("obj.lookupName"),
        named.get("obj.type"),
        attributes,
        store,
        None if read_only is None else truth("obj.readOnly", read_only),
    )


def truth(name: str, text: str) -> bool:
    """Raises ConfigError for what is neither true nor false."""
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ConfigError(f"{name} {text!r:.40}: it is true or false")
    return word == "true"


def _pairs(text: str) -> Iterator[tuple[int, str, str]]:
    """(line, name, value) of a file of properties."""
    whole, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        part = line.lstrip(" \t\f")
        if not whole and (not part or part[0] in "#!"):
            continue
        first = first or number
        if (len(part) - len(part.rstrip("\\"))) % 2:
            whole += part[:-1]
            continue
        yield first, *_pair(whole + part)
        whole, first = "", 0
    if whole:
        yield first, *_pair(whole)


def _pair(line: str) -> tuple[str, str]:
    match = _PAIR.fullmatch(line)
    assert match is not None, "every text is a name and a value"
    return _plain(match[1]), _plain(match[2])


def _plain(text: str) -> str:
    return _ESCAPED.sub(
        lambda found: chr(int(found[1][1:], 16)) if len(found[1]) > 1 else _SIGNS.get(found[1], found[1]), text
    )
