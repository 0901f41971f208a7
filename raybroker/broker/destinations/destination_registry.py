"""Registry of destinations: those that there are, the host on which each lives, and the topics that match a pattern."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from raybroker.hosting.host_port import HostPort
from raybroker.model.errors import ConfigError, ConnectionLostError, InvalidDestinationError
from raybroker.model.naming.names import (
    DEAD_MESSAGE_QUEUE,
    DestinationType,
    check_destination_type,
    check_topic_pattern,
    is_destination_type,
    is_metrics_topic,
)
from raybroker.model.naming.wildcard import matching
from raybroker.system import entropy

Key = tuple[DestinationType, str]
"""A destination: a queue and a topic may share a name."""

DMQ: Final[Key] = ("queue", DEAD_MESSAGE_QUEUE)
TRAITS: Final = (
    "isLocalOnly",
    "unitOfOrder",
    "unitOfOrderRouting",
    "distributed",
    "loadBalancingPolicy",
    "forwardingPolicy",
    "unitOfWorkHandlingPolicy",
    "forwardDelay",
    "duplicateWindowMs",
)
"""Attributes of a destination that its clients and brokers act on."""
CHANGED_WAIT_S_MAX: Final = 20.0
"""Longest time that one question for changes waits; below the time after which a call counts as lost."""

NAMED_MAX: Final = 5
"""Hosts that one line names."""
NOT_ASKED: Final = "it has not answered since the broker started"


class AwayHosts:
    """Hosts that do not serve. ``key_of``: the key of a host that is known by its name.

    starting  those whose processes have not answered yet: they serve once they have
    refused   host that answers → why it does not start: nobody waits for it but who wants what it may have
    awaited   destinations that the configuration change record has, and that must be on one of those hosts
    """

    def __init__(self, key_of: Callable[[str], str]) -> None:
        self._key_of = key_of
        self.starting: set[str] = set()
        self.refused: dict[str, str] = {}
        self.awaited: set[tuple[DestinationType, str]] = set()

    def reasons(self, names: Iterable[str]) -> dict[str, str]:
        """Keys of hosts that could not be asked what they serve → why."""
        return {self._key_of(name): self.refused.get(name, NOT_ASKED) for name in names}

    def told(self, names: Iterable[str]) -> str:
        """Why those of them do not start that say so; "" when none does."""
        return "; ".join(self.refused[name] for name in sorted(names) if name in self.refused)

    def under_way(self) -> str:
        """Which hosts are starting, in words; "" when none is."""
        names = [self._key_of(name) for name in sorted(self.starting, key=_by_number)]
        more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
        what = "host" if len(names) == 1 else "hosts"
        return f"it waits for {what} {', '.join(names[:NAMED_MAX])}{more} to start" if names else ""


def _by_number(name: str) -> tuple[int, str]:
    return len(name), name  # h2 before h10.


class Registry:
    """What the hosts said that they serve, kept up to date by the broker; ``hold``: what policies make of a
    destination's own attributes; ``has_copies``: its log has copies at several brokers, and it may be served at another
    one."""

    def __init__(
        self,
        broker: str = "",
        hold: Callable[[Key, dict[str, Any]], dict[str, Any]] = lambda key, own: own,
        has_copies: Callable[[Key], bool] = lambda key: False,
    ) -> None:
        self._broker = broker
        self._hold = hold
        self.hosts: list[HostPort] = []
        self.where: dict[Key, HostPort] = {}
        self.auto: set[Key] = set()
        self.owners: dict[Key, str] = {}
        """Temporary destinations → the connection they live as long as; "" when it is not known any more."""
        self.traits: dict[Key, dict[str, Any]] = {}
        """The destinations' own attributes that clients act on, see TRAITS."""
        self.orphans: set[Key] = set()
        """Those that a restored record does not know: an administrator adopts or destroys them."""
        self.unasked: dict[str, str] = {}
        """Hosts (name → hosting) that could not be asked yet what they serve: meanwhile nothing is surely missing."""
        self.away = AwayHosts(self.host_key)
        """Those of them that answer, and do not start."""
        self.version = int.from_bytes(entropy.token(6), "little")
        """Grows with each topic that comes or goes. Starts anywhere, so that a broker that came back is a change."""
        self._bell = asyncio.Event()
        self._has_copies = has_copies

    def put(
        self,
        key: Key,
        host: HostPort,
        *,
        auto: bool = False,
        owner: str | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """A destination is there; what was auto-created and is created by an administrator is so no more."""
        new = key not in self.where
        self.where[key] = host
        self.away.awaited.discard(key)
        if attributes is not None:
            self.traits[key] = {name: attributes[name] for name in TRAITS if name in attributes}
        if auto and new:
            self.auto.add(key)
        elif not auto:
            self.auto.discard(key)
        if owner is not None:
            self.owners[key] = owner
        if new:
            self._note(key)

    def held_traits(self, key: Key) -> dict[str, Any]:
        """What holds of the attributes that clients act on."""
        return self._hold(key, dict(self.traits.get(key, {})))

    def drop(self, key: Key) -> None:
        known = self.where.pop(key, None)
        self.auto.discard(key)
        self.owners.pop(key, None)
        self.traits.pop(key, None)
        self.orphans.discard(key)
        self.away.awaited.discard(key)
        if known is not None:
            self._note(key)

    def remove_host(self, host: HostPort) -> None:
        if host in self.hosts:
            self.hosts.remove(host)

    def has(self, type_: str, name: str) -> bool:
        """Whether a destination is known here."""
        return self.find(type_, name) is not None

    def find(self, type_: str, name: str) -> HostPort | None:
        """The host of a destination; None when none is known, or the type is none."""
        return self.where.get((type_, name)) if is_destination_type(type_) else None

    def host_of(self, type_: str, name: str) -> HostPort:
        """Raises InvalidDestinationError when there is none, ConnectionLostError when that is not sure now."""
        kind = check_destination_type(type_)
        host = self.where.get((kind, name))
        if host is None:
            self.require_all_asked(f"{kind} {name!r}")
            if self._has_copies((kind, name)):
                raise InvalidDestinationError(
                    f"{kind} {name!r} is not served by broker {self._broker} now: its log, which has copies, is led at"
                    " another broker, or by none until a majority of its copies is up"
                )
            raise InvalidDestinationError(f"{kind} {name!r} does not exist")
        return host

    def require_all_asked(self, what: str) -> None:
        """What is not known may live on a host that has not answered since the broker started."""
        if self.unasked:
            hosts, why = ", ".join(sorted(self.unasked)), self.away.told(self.unasked)
            why = why or ("" if self.unasked.keys().isdisjoint(self.away.starting) else self.away.under_way())
            told = f" ({why})" if why else ""
            raise ConnectionLostError(f"{what} is not known, and hosts {hosts} cannot be asked now{told}; try again")

    def require_started(self, what: str) -> None:
        """Do what :meth:`require_all_asked` does, but what does not start is not waited for."""
        if self.unasked.keys() - self.away.refused.keys():
            self.require_all_asked(what)

    def note_answered(self, name: str) -> None:
        """A host was asked what it serves."""
        self.unasked.pop(name, None)
        self.away.starting.discard(name)
        self.away.refused.pop(name, None)

    def host_key(self, name: str) -> str:
        """The key of a host that is known by its name alone."""
        return f"{self._broker}/{name}" if self._broker else name

    def keys(self, type_: DestinationType | None) -> list[Key]:
        """All destinations, of one type if given, by name."""
        return sorted((key for key in self.where if type_ in (None, key[0])), key=lambda key: (key[1], key[0]))

    # ---- patterns

    def matching(self, pattern: str) -> tuple[int, list[str]]:
        """The version and the names of the topics that match now; raises InvalidDestinationError for a bad pattern.

        Metrics topics have no wildcards: whoever wants one names it.
        """
        check_topic_pattern(pattern)
        names = (name for kind, name in self.where if kind == "topic" and not is_metrics_topic(name))
        return self.version, matching(pattern, names)

    async def changed(self, version: int, timeout_s: float) -> int:
        """The version, as soon as it is another one or the time is over, at most CHANGED_WAIT_S_MAX."""
        if timeout_s < 0:
            raise ConfigError(f"timeout {timeout_s:g} s is less than 0")
        if version == self.version:
            try:
                await asyncio.wait_for(self._bell.wait(), min(timeout_s, CHANGED_WAIT_S_MAX))
            except TimeoutError:
                pass
        return self.version

    def _note(self, key: Key) -> None:
        if key[0] == "topic":
            self.version += 1
            bell, self._bell = self._bell, asyncio.Event()
            bell.set()
