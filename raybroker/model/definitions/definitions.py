"""Definitions: everything that administrators have made, as one value that can be written to a file and read back.

As plain values it is a table with these entries; those that are empty are left out::

    raybroker      {"definitions": 1}: the version of the format; ``missing``: brokers that could not be asked
    properties     broker properties that ``update bkr`` has changed on all brokers → value
    brokers        name of a broker → properties that it has alone, or with another value than the others
    quotas         name → attributes
    templates      name → attributes
    policies       name → pattern, applyTo, priority, operator, attributes
    queues         name → attributes; mq.sys.dmq among them when an administrator has changed it
    topics         name → attributes
    subscriptions  a list: name, topic, client_id, shared, selector, no_local of durable ones
    agents         forwarding agents: name → queue, to and attributes
    pauses         a list: type, name and which (producers, consumers or insertion) of destinations that are paused
                   until an administrator resumes them
    users          of the file of users, where they are asked for: name → verifier, group, active; no passwords

Attributes are those that differ from their defaults; what is not said has its default.  What administrators make and
what stays until they change it is a definition.  Messages are none, and neither are recurring schedules, which clients
send as messages and which have bodies; nor pauses that end by themselves or, as those of services, with the broker; nor
what was created automatically, and pauses of that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from raybroker.model.definitions.kinds.kind import ListedKind, Reading
from raybroker.model.definitions.kinds.table import KINDS
from raybroker.model.definitions.values import Defaults, Definitions
from raybroker.model.errors import ConfigError
from raybroker.model.naming.nearest import nearest

VERSION: Final = 1
"""Of the format; a release reads files up to its own."""
ENTRIES_MAX: Final = 20_000
"""Entries of one file."""
HEADER: Final = "raybroker"


def plain(definitions: Definitions) -> dict[str, Any]:
    """Return the definitions as plain values, in order of names, so that equal definitions are written as equal
    files."""
    found: dict[str, Any] = {HEADER: {"definitions": VERSION}}
    if definitions.missing:
        found[HEADER]["missing"] = sorted(definitions.missing)
    for kind in sorted(KINDS, key=lambda kind: isinstance(kind, ListedKind)):
        if table := kind.table(definitions):
            found[kind.section] = kind.plain(table)
    return found


def definitions_of(
    given: Mapping[str, Any], defaults: Defaults, selector: Callable[[str], str] = lambda text: text
) -> Definitions:
    """The checked definitions; raises ConfigError naming the entry that is wrong. ``selector`` checks one, and brings
    it into the form that brokers keep."""
    _check_header(given)
    reading = Reading(defaults, selector)
    found = {
        kind.section: kind.read(given.get(kind.section, () if isinstance(kind, ListedKind) else {}), reading)
        for kind in KINDS
    }
    if (count := sum(map(len, found.values()))) > ENTRIES_MAX:
        raise ConfigError(f"there are {count} entries; at most {ENTRIES_MAX} are read: divide the definitions")
    return Definitions(**found, missing=tuple(given[HEADER].get("missing", ())))


def _check_header(given: Mapping[str, Any]) -> None:
    header = given.get(HEADER)
    version = header.get("definitions") if isinstance(header, Mapping) else None
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ConfigError(f"these are no definitions: {HEADER} says nothing of their version (definitions = {VERSION})")
    if version > VERSION:
        raise ConfigError(
            f"these are definitions of version {version}; this release reads up to {VERSION}: take a newer raybroker"
        )
    missing = header.get("missing", []) if isinstance(header, Mapping) else []
    if not isinstance(missing, list | tuple) or not all(isinstance(name, str) for name in missing):
        raise ConfigError(f"{HEADER}, missing = {str(missing)[:80]!r}; it is a list of names of brokers")
    known = [HEADER, *(kind.section for kind in KINDS)]
    for section in given:
        if section not in known:
            near = nearest(str(section), known, least=0.0)
            raise ConfigError(f"{section!r} is no part of definitions; the nearest is {near!r}")
