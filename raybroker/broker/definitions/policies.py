"""Policies of a broker: attributes by pattern, which its hosts hold for the destinations that match."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

from raybroker.broker.definitions.named import TELL_TIMEOUT_S, NamedAtHosts, Save, Saved
from raybroker.broker.definitions.quotas import Quotas
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
from raybroker.model.errors import ConfigError
from raybroker.model.naming.names import check_destination_type

NO_THRESHOLDS: Final = {"messagesHigh": -1, "bytesHigh": -1}
LOOK_STEP: Final = 200
"""Destinations that are held against policies before others get a turn."""
log = logging.getLogger("raybroker.broker")


class Policies(NamedAtHosts):
    """The policies of one broker. ``destinations``: those that there are; ``defaults``: all attributes that a
    destination has which says nothing itself; ``quotas``: those that policies may name."""

    word = "policy"
    words = "policies"
    most = POLICIES_MAX

    def __init__(
        self,
        saved: Saved | None,
        save: Save,
        hosts: Callable[[], Iterable[HostPort]],
        destinations: Callable[[], Iterable[Key]],
        defaults: Callable[[Key], Row] = lambda key: {},
        quotas: Quotas | None = None,
    ) -> None:
        super().__init__(saved, save, hosts, self._define_at)
        self._defaults = defaults
        self._quotas = quotas
        self._book = PolicyBook(self._policies())
        self._destinations = destinations

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
        self.refuse_new(name)
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
        """Return what holds of some attributes of a destination."""
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

    async def _replace(self, saved: Saved) -> None:
        """What has changed is in the log once all hosts that can be are told."""
        before = self._saved
        await super()._replace(saved)
        for name in [name for name in before if name not in saved]:
            log.info("policy %s holds no more", name)
        for name, fields in saved.items():
            if fields != before.get(name):
                shown = ", ".join(f"{key}={value}" for key, value in fields["attributes"].items())
                log.info("policy %s holds for %s (%s): %s", name, fields["pattern"], fields["applyTo"], shown)

    def _took(self) -> None:
        self._book = PolicyBook(self._policies())

    def _policies(self) -> list[Policy]:
        return [policy_of(name, fields) for name, fields in self._saved.items()]

    def named(self, name: str) -> Policy:
        """Raises UnknownDefinitionError when there is no such policy."""
        return policy_of(name, self.fields(name))

    async def _define_at(self, host: HostPort, policies: Saved) -> None:
        for policy in self._book.all() if self._quotas is not None else ():
            await self._quotas.known_at(host, dict(policy.attributes))  # type: ignore[union-attr]  # there is a policy only with quotas
        await asyncio.wait_for(host.pools.define_policies(policies), TELL_TIMEOUT_S)

    # ---- queries

    async def list_policies(self) -> list[Row]:
        """One row a policy: those of operators first, then by priority as they are asked; with its conflicts."""
        policies = self._policies()
        found = conflicts(policies)
        book = PolicyBook(policies)
        return [_row(policy, found) for policy in (*book.operator, *book.user)]

    async def query_policy(self, name: str) -> Row:
        """Raises ConfigError when there is none."""
        self.named(name)
        policies = self._policies()
        book = PolicyBook(policies)
        (row,) = (_row(policy, conflicts(policies)) for policy in policies if policy.name == name)
        governed = [
            f"{kind} {destination}"
            for kind, destination in sorted(self._destinations())
            if any(policy is not None and policy.name == name for policy in book.policies_of(kind, destination))
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
    user, operator = book.policies_of(*key)
    if user is None and operator is None:
        return own
    found = effective(key[0], own, defaults(key), user, operator)
    return {name: held.value for name, held in found.items()}
