"""Definitions of a cluster: destinations, durable subscriptions, templates, quotas and policies.

They are changed through the configuration change record, which every broker carries out.  What one broker has for its
own clients alone is changed there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NamedTuple

from raybroker.broker.broker import Broker
from raybroker.broker.cluster.broker_calls import BrokerCalls
from raybroker.broker.cluster.cluster_admin import ClusterAdmin
from raybroker.broker.cluster.record_application import ONLY_HERE
from raybroker.broker.copies.copied_logs import CopiedLogs
from raybroker.broker.copies.member_moves import MemberMoves
from raybroker.broker.copies.placing import Placing
from raybroker.broker.definitions.policies import Policies
from raybroker.broker.definitions.quotas import Quotas, refuse_used
from raybroker.broker.definitions.quotas import merged as merged_quota
from raybroker.broker.definitions.templates import Templates
from raybroker.broker.destinations.destination_registry import DMQ, Key, Registry
from raybroker.broker.destinations.destinations import HOW_TO_ADOPT, ORPHANED, Destinations
from raybroker.broker.destinations.error_destinations import refuse_circle
from raybroker.broker.destinations.if_exists import create_or
from raybroker.broker.destinations.subscriptions import new_identity
from raybroker.broker.host_listing import require_whole
from raybroker.cluster.change_record import Change, RecordState
from raybroker.core.selector import compile_selector, normalised
from raybroker.hosting.host_port import Row
from raybroker.model.copies import OF_COPIES, has_copies
from raybroker.model.definitions.policy import SWITCHED_ON, Policy
from raybroker.model.errors import BrokerGoneError, ConfigError, IllegalStateError, InvalidDestinationError
from raybroker.model.listing import Listing
from raybroker.model.naming.names import (
    check_destination_name,
    check_destination_type,
    is_reserved_name,
    is_temporary_name,
)
from raybroker.model.settings.settings import (
    check_attribute_names,
    merged_attributes,
)

SHOWN_MAX: Final = 5
"""Destinations that an error names."""
Propose = Callable[[Change], Awaitable[None]]


class RecordedWays(NamedTuple):
    """``agreed``: what the record says; ``propose`` changes it and waits for the brokers that are up; ``copies``:
    of logs; ``placing`` makes them; ``moves``: of what had none."""

    agreed: Callable[[], RecordState]
    propose: Propose
    copies: CopiedLogs
    placing: Placing
    moves: MemberMoves


class RecordedDestinations:
    """Destinations of the whole cluster."""

    def __init__(
        self,
        registry: Registry,
        destinations: Destinations,
        quotas: Quotas,
        policies: Policies,
        brokers: BrokerCalls,
        everywhere: ClusterAdmin,
        ways: RecordedWays,
    ) -> None:
        self._registry = registry
        self._destinations = destinations
        self._quotas = quotas
        self._policies = policies
        self._brokers = brokers
        self._all = everywhere
        self._agreed = ways.agreed
        self._propose = ways.propose
        self.placing = ways.placing
        self.copies = ways.copies
        self.moves = ways.moves

    def is_local(self, type_: str, name: str) -> bool:
        traits = self._registry.traits.get((check_destination_type(type_), name), {})
        return bool(traits.get(ONLY_HERE))

    def recorded(self, key: Key) -> Row | None:
        found = self._agreed().destinations.get(key)
        return dict(found) if found is not None else None

    async def create_destination(self, type: str, name: str, attributes: Row, if_exists: str = "error") -> str:
        key: Key = (check_destination_type(type), name)

        async def update() -> None:
            if attributes:
                await self.update_destination(type, name, attributes)

        def exists() -> bool:
            there = key in self._registry.where or self.recorded(key) is not None
            return there and key not in self._registry.orphans

        return await create_or(
            if_exists, create=lambda: self._create_new(type, name, attributes), exists=exists, update=update
        )

    async def _create_new(self, type: str, name: str, attributes: Row) -> None:
        """Create a destination on all brokers; one with isLocalOnly on this one alone."""
        key: Key = (check_destination_type(type), check_destination_name(name))
        if key in self._registry.orphans:
            raise InvalidDestinationError(f"{key[0]} {name!r} exists and is orphaned: {HOW_TO_ADOPT}")
        if key in self._registry.where or self.recorded(key) is not None:
            raise InvalidDestinationError(f"{key[0]} {name!r} exists already; update or destroy it")
        if self._registry.away.refused:  # The record would have it, and nobody could use it until that host is back.
            self._registry.require_all_asked(f"{key[0]} {name!r}")
        checked = self._destinations.checked(*key, attributes).as_dict(key[0])
        if checked.get(ONLY_HERE):
            await self._destinations.create_destination(type, name, attributes)
        else:
            await self._refuse_others(key)
            await refuse_circle(self._registry.where, key, checked.get("errorDestination"))
            if has_copies(checked):
                await self.placing.create(key, checked)
            else:
                await self._propose(Change("create_destination", key, checked))

    async def _refuse_others(self, key: Key) -> None:
        """What another broker has for its own clients, or as an orphan, is no member of a new one."""
        if self._brokers.live() == [self._brokers.name]:
            return
        try:
            rows = await self._all.everywhere("query_destination", {"type": key[0], "name": key[1]})
        except (InvalidDestinationError, BrokerGoneError):
            return
        for broker, row in rows:
            if row["state"] == ORPHANED:
                raise InvalidDestinationError(
                    f"{key[0]} {key[1]!r} exists on broker {broker} and is orphaned: {HOW_TO_ADOPT}"
                )
            if row["attributes"].get(ONLY_HERE):
                raise InvalidDestinationError(
                    f"{key[0]} {key[1]!r} exists already on broker {broker}, for clients of that broker alone"
                    " (isLocalOnly): destroy it there, or take another name"
                )

    async def adopt_destination(self, type: str, name: str) -> None:
        """Put an orphaned destination into the record, with its messages and durable subscriptions, or one whose log
        has copies that are in no record.

        Raises IllegalStateError for one that is not orphaned. Where its attributes differ, those of the coordinator
        hold.
        """
        key: Key = (check_destination_type(type), name)
        try:
            found = await self._all.everywhere("query_destination", {"type": key[0], "name": name})
        except InvalidDestinationError:
            if self.recorded(key) is not None:
                raise
            await self.placing.adopt(key)
            return
        rows = {broker: row for broker, row in found if row["state"] == ORPHANED}
        if not rows:
            raise IllegalStateError(f"{key[0]} {name!r} is not orphaned: the configuration change record has it")
        attributes = rows.get(self._brokers.coordinator, next(iter(rows.values())))["attributes"]
        await self._propose(Change("create_destination", key, attributes))
        known = self._agreed().subscriptions
        for row in await self._all.list_subscriptions(name) if key[0] == "topic" else ():
            identity = (row["client_id"] or "", row["name"])
            if row["durable"] and identity not in known:
                fields = {field: row[field] for field in ("topic", "shared", "selector", "no_local")}
                await self._propose(Change("create_subscription", identity, fields))

    async def update_destination(self, type: str, name: str, changes: Row) -> None:
        key: Key = (check_destination_type(type), name)
        check_attribute_names(changes, key[0])
        known = self.recorded(key)
        if known is None:
            await self._all.everywhere("update_destination", {"type": type, "name": name, "changes": changes})
            return
        after = merged_attributes(known, changes, key[0], name)
        held = self._policies.traits(key, {name: known[name] for name in (SWITCHED_ON, "unitOfOrderRouting")})
        if after[SWITCHED_ON] and not held[SWITCHED_ON] and len(self._brokers.known()) > 1:
            raise ConfigError(
                f"duplicateWindowMs of {key[0]} {name!r} is 0, and in a cluster it is switched on when a destination is"
                " created: producers that are open would go on sending one id to different brokers; destroy and create"
                " it"
            )
        self._quotas.check(f"{key[0]} {name!r}", after)
        await refuse_circle(self._registry.where, key, changes.get("errorDestination"))
        if any(after[name] != known.get(name) for name in OF_COPIES):
            await self.placing.change(key, after)
        await self._propose(Change("update_destination", key, {name: after[name] for name in changes}))

    async def destroy_destination(self, type: str, name: str) -> None:
        key: Key = (check_destination_type(type), name)
        if key == DMQ or is_temporary_name(name):
            await self._destinations.destroy_destination(type, name)
        elif self.recorded(key) is not None:
            await self._propose(Change("destroy_destination", key))
        else:
            if is_reserved_name(name):
                raise IllegalStateError(f"{key[0]} {name!r} is the broker's own")
            await self._all.everywhere("destroy_destination", {"type": type, "name": name})
            for subscription, fields in list(self._agreed().subscriptions.items()):
                if key == ("topic", fields.get("topic")):
                    await self._propose(Change("destroy_subscription", subscription))


class RecordedSubscriptions:
    """Durable subscriptions; ``is_local(type, name)``: only this broker has the destination."""

    def __init__(
        self,
        local: Broker,
        is_local: Callable[[str, str], bool],
        brokers: BrokerCalls,
        everywhere: ClusterAdmin,
        agreed: Callable[[], RecordState],
        propose: Propose,
    ) -> None:
        self._local = local
        self._is_local = is_local
        self._brokers = brokers
        self._all = everywhere
        self._agreed = agreed
        self._propose = propose

    async def create_subscription(
        self,
        name: str,
        topic: str,
        client_id: str | None = None,
        shared: bool = False,
        selector: str | None = None,
        no_local: bool = False,
    ) -> None:
        """One of a topic that only this broker has is made here alone."""
        if selector:
            compile_selector(selector)
        identity = new_identity(self._agreed().subscriptions.keys(), name, client_id)  # type: ignore[arg-type]  # keys are identities, whatever the record calls them
        if self._is_local("topic", topic):
            await self._local.create_subscription(name, topic, client_id, shared, selector, no_local)
            return
        await self._local.locate("topic", topic, True)
        fields = {"topic": topic, "shared": shared, "selector": normalised(selector), "no_local": no_local}
        await self._propose(Change("create_subscription", identity, fields))

    async def destroy_subscription(self, name: str, client_id: str | None = None, topic: str | None = None) -> None:
        key = (client_id or "", name)
        known = self._agreed().subscriptions.get(key)
        if known is None or topic not in (None, known.get("topic")):
            await self._all.everywhere("destroy_subscription", {"name": name, "client_id": client_id, "topic": topic})
            return
        await self.refuse_active(name, client_id)
        await self._propose(Change("destroy_subscription", key))

    async def refuse_active(self, name: str, client_id: str | None) -> None:
        """A subscription that a consumer uses, on whichever broker, is not ended."""
        rows, live = await self._all.list_subscriptions(), self._brokers.live()
        silent = {name: why for name, why in rows.missing.items() if name.partition("/")[0] in live}
        require_whole(Listing((), silent), f"whether subscription {name!r} is in use")
        for row in rows:
            if row["durable"] and (row["client_id"] or "", row["name"]) == (client_id or "", name) and row["active"]:
                raise IllegalStateError(
                    f"subscription {name!r} of topic {row['topic']} is in use; close its consumers first"
                )


class RecordedNamed:
    """What destinations name, or is named for them: templates, quotas and policies; ``update_destination`` takes type,
    name and changes."""

    def __init__(
        self,
        templates: Templates,
        quotas: Quotas,
        policies: Policies,
        brokers: BrokerCalls,
        everywhere: ClusterAdmin,
        propose: Propose,
        update_destination: Callable[[str, str, Row], Awaitable[None]],
    ) -> None:
        self._templates = templates
        self._quotas = quotas
        self._policies = policies
        self._brokers = brokers
        self._all = everywhere
        self._propose = propose
        self._update_destination = update_destination

    # ---- templates

    async def create_template(self, name: str, attributes: Row) -> None:
        checked = self._templates.checked(name, attributes)
        await self._propose(Change("set_template", (name,), checked))

    async def update_template(self, name: str, changes: Row) -> int:
        after, follow = await self._templates.following(name, changes)
        await self._propose(Change("set_template", (name,), after))
        for (kind, destination), followed in follow:
            await self._update_destination(kind, destination, followed)
        return len(follow)

    async def destroy_template(self, name: str) -> None:
        self._templates.fields(name)
        await self._propose(Change("drop_template", (name,)))

    # ---- quotas

    async def create_quota(self, name: str, attributes: Row) -> None:
        checked = self._quotas.checked(name, attributes)
        await self._propose(Change("create_quota", (name,), dict(checked)))

    async def update_quota(self, name: str, changes: Row) -> None:
        """Each broker checks that its destinations go on having thresholds below the limits."""
        after = await self._quotas.changed(name, changes)
        await self._propose(Change("update_quota", (name,), {key: after[key] for key in changes}))

    async def destroy_quota(self, name: str) -> None:
        """Destroy a quota that nothing refers to; what has no entry in the record may do so too: auto-created
        destinations, and those of one broker."""
        self._quotas.fields(name)
        refuse_used(name, (await self.query_quota(name))["users"])
        await self._propose(Change("destroy_quota", (name,)))

    async def query_quota(self, name: str) -> Row:
        self._quotas.fields(name)
        return merged_quota([row for _, row in await self._all.everywhere("query_quota", {"name": name})])

    # ---- policies

    async def create_policy(
        self, name: str, pattern: str, attributes: Row, apply_to: str = "all", priority: int = 0, operator: bool = False
    ) -> None:
        made = self._policies.checked(name, pattern, attributes, apply_to, priority, operator)
        await self._refuse_switching_on(name, made)
        await self._propose(Change("create_policy", (name,), made.fields()))

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
        after = self._policies.changed(name, changes, pattern, apply_to, priority, operator, unset)
        await self._refuse_switching_on(name, after)
        await self._propose(Change("update_policy", (name,), after.fields()))

    async def destroy_policy(self, name: str) -> None:
        self._policies.named(name)
        await self._refuse_switching_on(name, None)
        await self._propose(Change("destroy_policy", (name,)))

    async def _refuse_switching_on(self, name: str, after: Policy | None) -> None:
        """Raise ConfigError, as for a change of a destination, when it would switch on deduplication of those there
        are, where there are several brokers. Destinations that are created later have what the policy says."""
        if len(self._brokers.known()) < 2 or not self._policies.may_switch_on(name, after):
            return
        found = await self._policies.switched_on(name, after, await self._all.list_destinations(None, True))
        if found:
            raise ConfigError(
                f"policy {name!r} would switch on {SWITCHED_ON} of {', '.join(found[:SHOWN_MAX])}"
                f"{f' and {len(found) - SHOWN_MAX} more' if len(found) > SHOWN_MAX else ''}, and in a cluster it is"
                " switched on when a destination is created: producers that are open would go on sending one id to"
                " different brokers; destroy and create those, or choose another pattern"
            )
