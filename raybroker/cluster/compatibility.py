"""Compatibility of brokers: the properties that must be equal on two brokers, which refuse each other otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

PROTOCOL_VERSION: Final = 1
"""Version of the messages between brokers."""

CLUSTER: Final = "imq.cluster.clusterid"
VERSION: Final = "protocol version"
MODE: Final = "imq.cluster.nomasterbroker"
TABLE: Final = "imq.cluster.sharecc.persist.jdbc.url"
EQUAL: Final = (
    "imq.autocreate.queue",
    "imq.autocreate.topic",
    "imq.autocreate.queue.maxNumActiveConsumers",
    "imq.autocreate.queue.maxNumBackupConsumers",
)
"""Configuration properties that have to be equal. ``imq.service.activelist`` of the row comes with the services."""


class Difference(NamedTuple):
    """A property that has to be equal and is not; None: the other side does not know it."""

    property: str
    mine: object
    theirs: object


def properties(config: Mapping[str, object], *, version: int = PROTOCOL_VERSION) -> dict[str, object]:
    """The properties of a broker that others compare; ``config`` has the properties of ``EQUAL``.  A member adds
    cluster and mode."""
    return {VERSION: version, **{name: config[name] for name in EQUAL if name in config}}


def differences(
    mine: Mapping[str, object], theirs: Mapping[str, object], *, me_master: bool = False, they_master: bool = False
) -> list[Difference]:
    """The properties in which two brokers differ.  Versions are equal, or the master's is the lower one; a cluster id
    that is "" is not
    known yet."""
    found = []
    for name in sorted({*mine, *theirs}):
        ours, other = mine.get(name), theirs.get(name)
        if name == VERSION and isinstance(ours, int) and isinstance(other, int):
            apart = other < ours if me_master else ours < other if they_master else ours != other
        elif name == CLUSTER and "" in (ours, other):
            apart = False
        else:
            apart = ours != other or type(ours) is not type(other)
        if apart:
            found.append(Difference(name, ours, other))
    return found


def refusal(me: str, them: str, found: list[Difference]) -> str:
    """One text for the administrators of both brokers."""
    parts = ", ".join(f"{name} is {mine!r} on {me} and {theirs!r} on {them}" for name, mine, theirs in found)
    return f"brokers {me} and {them} cannot work together: {parts}; set them equal on all brokers"
