"""Policies of a broker: attributes by pattern, which its hosts hold for the destinations that match."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from raybroker.broker.destinations.destination_registry import Key
from raybroker.hosting.host_port import HostPort, Row
from raybroker.model.definitions.policy import (
    POLICIES_MAX,
    SWITCHED_ON,
    Policy,
    PolicyBook,
    conflicts,
    effective,
    policy_of,
)
from raybroker.model.errors import BrokerError, ConfigError, UnknownDefinitionError
from raybroker.model.naming.names import check_destination_type

Saved = dict[str, dict[str, Any]]
"""Name → fields, see Policy.fields."""
Save = Callable[[Saved], Awaitable[None]]

NO_THRESHOLDS: Final = {"messagesHigh": -1, "bytesHigh": -1}
LOOK_STEP: Final = 200
"""Destinations that are held against policies before others get a turn."""
TELL_TIMEOUT_S: Final = 5.0
"""How long a host may take for a change; then it is told again later."""

log = logging.getLogger("raybroker.broker")


class KnownQuotas(Protocol):
    """See broker.definitions.quotas."""

    def check(self, label: str, attributes: Mapping[str, object]) -> None: ...

    async def known_at(self, host: Any, attributes: Row) -> None: ...


async def keep_nothing(saved: Saved) -> None:
    """For brokers whose policies end with them."""


class Policies:
    """``saved`` is what there is, ``save`` makes a new state durable before it holds; ``hosts``: those that serve;
    ``destinations``: those that there are; ``defaults``: all attributes that a destination has which says nothing
    itself; ``quotas``: those that policies may name."""

    def __init__(
        self,
        saved: Saved | None,
        save: Save,
        hosts: Callable[[], Iterable[HostPort]],
        destinations: Callable[[], Iterable[Key]],
        defaults: Callable[[Key], Row] = lambda key: {},
        quotas: KnownQuotas | None = None,
    ) -> None:
        self._defaults = defaults
        self._quotas = quotas
        self._book = PolicyBook(policy_of(name, fields) for name, fields in (saved or {}).items())
        self._saved: Saved = dict(saved or {})
        self._save = save
        self._hosts = hosts
        self._destinations = destinations
        self._changing = asyncio.Lock()
        self._behind: set[str] = set()
        """Hosts that were not told yet what there is."""

    # ---- definitions

    async def create_policy(
        self, name: str, pattern: str, attributes: Row, apply_to: str = "all", priority: int = 0, operator: bool = False
    ) -> None:
        """Raises ConfigError for a bad name, one that exists, a bad pattern and attributes that cannot be."""
        await self.put(name, self.checked(name, pattern, attributes, apply_to, priority, operator).fields())

    def checked(self, name: str, pattern: str, attributes: Row, apply_to: str, priority: int, operator: bool) -> Policy:
        """A new policy; raises as :meth:`create_policy`."""
        made = self._known(
            policy_of(
                name,
                {
                    "pattern": pattern,
                    "applyTo": apply_to,
                    "priority": priority,
                    "operator": operator,
                    "attributes": attributes,
                },
            )
        )
        if name in self._saved:
            raise ConfigError(f"policy {name!r} exists already; update or destroy it")
        if len(self._saved) >= POLICIES_MAX:
            raise ConfigError(f"there are {POLICIES_MAX} policies, which is the most there can be")
        return made

    async def update_policy(
        self,
        name: str,
        changes: Row,
        pattern: str | None = None,
        apply_to: str | None = None,
        priority: int | None = None,
        operator: bool | None = None,
        unset: Iterable[str] = (),
    ) -> None:
        """Raises ConfigError, and then nothing has changed."""
        after = self.changed(name, changes, pattern, apply_to, priority, operator, unset)
        await self.put(name, after.fields())

    def changed(
        self,
        name: str,
        changes: Row,
        pattern: str | None,
        apply_to: str | None,
        priority: int | None,
        operator: bool | None,
        unset: Iterable[str],
    ) -> Policy:
        """A policy after changes; raises ConfigError."""
        before = self.named(name).fields()
        attributes, gone = before["attributes"], set(unset)
        for attribute in gone:
            if attribute not in attributes:
                raise ConfigError(f"policy {name!r} has no attribute {attribute!r} to unset")
            if attribute in changes:
                raise ConfigError(f"policy {name!r}: {attribute} cannot be set and unset at a time")
        given = {"pattern": pattern, "applyTo": apply_to, "priority": priority, "operator": operator}
        kept = {key: value for key, value in attributes.items() if key not in gone}
        said = {key: value for key, value in given.items() if value is not None}
        return self._known(policy_of(name, {**before, **said, "attributes": {**kept, **changes}}))

    def _known(self, policy: Policy) -> Policy:
        """Raises ConfigError when it names a quota that there is not, or has a threshold above its limit."""
        if self._quotas is not None and policy.attributes.get("quota"):
            self._quotas.check(f"policy {policy.name!r}", {**NO_THRESHOLDS, **policy.attributes})
        return policy

    # ---- what holds

    def traits(self, key: Key, own: Row) -> Row:
        """Of some attributes of a destination, what holds."""
        return _held(self._book, key, own, self._defaults)

    def may_switch_on(self, name: str, after: Policy | None) -> bool:
        """Whether :meth:`switched_on` can find any."""
        return any(policy.attributes.get(SWITCHED_ON) for policy in (*self._book.all(), *([after] if after else [])))

    async def switched_on(self, name: str, after: Policy | None, rows: Iterable[Row]) -> list[str]:
        """Which of these destinations would have SWITCHED_ON and do not have it, with that policy in place of the one
        of its name (None: without it). ``rows``: type, name, attributes."""
        policies = [policy for policy in self._book.all() if policy.name != name] + ([after] if after else [])
        book, found = PolicyBook(policies), []
        for number, row in enumerate(rows, 1):
            key = (check_destination_type(row["type"]), str(row["name"]))
            own = {each: row["attributes"][each] for each in (SWITCHED_ON, "unitOfOrderRouting")}
            before, then = self.traits(key, own), _held(book, key, own, self._defaults)
            if then[SWITCHED_ON] and not before[SWITCHED_ON]:
                found.append(f"{key[0]} {key[1]}")
            if number % LOOK_STEP == 0:
                await asyncio.sleep(0)
        return found

    def names(self, quota: str) -> list[str]:
        """The policies that give destinations that quota."""
        return sorted(policy.name for policy in self._book.all() if policy.attributes.get("quota") == quota)

    async def destroy_policy(self, name: str) -> None:
        """What it said holds no more, at once. Raises ConfigError when there is none."""
        self.named(name)
        await self.drop(name)

    async def put(self, name: str, fields: Row) -> None:
        """Make this the policy of that name."""
        async with self._changing:
            if fields != self._saved.get(name):
                await self._replace({**self._saved, name: dict(fields)})
                shown = ", ".join(f"{key}={value}" for key, value in fields["attributes"].items())
                log.info("policy %s holds for %s (%s): %s", name, fields["pattern"], fields["applyTo"], shown)

    async def drop(self, name: str) -> None:
        """Nothing happens when there is none."""
        async with self._changing:
            if name in self._saved:
                await self._replace({key: value for key, value in self._saved.items() if key != name})
                log.info("policy %s holds no more", name)

    async def _replace(self, policies: Saved) -> None:
        await self._save(policies)
        self._saved = policies
        self._book = PolicyBook(policy_of(name, fields) for name, fields in policies.items())
        self._behind = {host.key for host in self._hosts()}
        await self.tell()

    def named(self, name: str) -> Policy:
        """Raises UnknownDefinitionError when there is no such policy."""
        found = self._saved.get(name)
        if found is None:
            known = ", ".join(sorted(self._saved)) or "none"
            raise UnknownDefinitionError(f"there is no policy {name!r}; there are: {known}")
        return policy_of(name, found)

    def saved(self) -> Saved:
        """Name → fields."""
        return dict(self._saved)

    # ---- hosts

    async def tell(self) -> None:
        """Tell the hosts that do not know yet, for a bounded time."""
        hosts = [host for host in self._hosts() if host.key in self._behind]
        self._behind = {host.key for host in hosts}
        await asyncio.gather(*(self._tell(host) for host in hosts))

    async def greet(self, host: HostPort, new: bool) -> None:
        """The broker has a host from now on; one that is not ``new`` may know of other policies."""
        if self._saved or not new:
            self._behind.add(host.key)
            await self._tell(host)

    async def _tell(self, host: HostPort) -> None:
        told = self._saved
        try:
            for policy in self._book.all() if self._quotas is not None else ():
                await self._quotas.known_at(host, dict(policy.attributes))  # type: ignore[union-attr]  # there is a policy only with quotas
            await asyncio.wait_for(host.pools.define_policies(dict(told)), TELL_TIMEOUT_S)
        except (BrokerError, TimeoutError) as error:
            log.warning("host %s was not told of the policies: %s; it will be", host.key, error)
            return
        if told is self._saved:
            self._behind.discard(host.key)

    # ---- queries

    async def list_policies(self) -> list[Row]:
        """One row a policy: those of operators first, then by priority as they are asked; with its conflicts."""
        policies = [policy_of(name, fields) for name, fields in self._saved.items()]
        found = conflicts(policies)
        book = PolicyBook(policies)
        return [_row(policy, found) for policy in (*book.operator, *book.user)]

    async def query_policy(self, name: str) -> Row:
        """Raises ConfigError when there is none."""
        self.named(name)
        policies = [policy_of(other, fields) for other, fields in self._saved.items()]
        book = PolicyBook(policies)
        (row,) = (_row(policy, conflicts(policies)) for policy in policies if policy.name == name)
        governed = [
            f"{kind} {destination}"
            for kind, destination in sorted(self._destinations())
            if any(policy is not None and policy.name == name for policy in book.of(kind, destination))
        ]
        return {**row, "destinations": governed}


def _row(policy: Policy, found: Iterable[Any]) -> Row:
    others = {}
    for conflict in found:
        if policy in (conflict.first, conflict.second):
            other = conflict.second if policy is conflict.first else conflict.first
            others[other.name] = conflict.example
    return {"name": policy.name, **policy.fields(), "conflicts": others}


def _held(book: PolicyBook, key: Key, own: Row, defaults: Callable[[Key], Row]) -> Row:
    user, operator = book.of(*key)
    if user is None and operator is None:
        return own
    found = effective(key[0], own, defaults(key), user, operator)
    return {name: held.value for name, held in found.items()}
