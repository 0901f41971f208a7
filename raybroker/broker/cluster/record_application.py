"""Application of the configuration change record: its entries are carried out on one broker.

Carrying a change out twice does no harm.  A destination that was auto-created here and is now created for the whole
cluster keeps its messages and takes the attributes.

While a host does not start, what is not known may be there: it is neither made elsewhere nor taken for gone.
Everything else is carried out, and all of the record once more when the host is back.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

from raybroker.broker.cluster.cluster_pauses import PausesHere, paused_by_hand
from raybroker.broker.definitions.drained_nodes import DrainedNodes
from raybroker.broker.definitions.named import NamedDefinitions
from raybroker.broker.definitions.policies import Policies
from raybroker.broker.definitions.quotas import Quotas
from raybroker.broker.definitions.templates import Templates
from raybroker.broker.destinations.destination_registry import Key, Registry
from raybroker.broker.destinations.placement import Placement
from raybroker.broker.destinations.subscriptions import Subscriptions
from raybroker.broker.host_listing import require_asked
from raybroker.cluster.change_record import KIND_OF, Change, RecordState, differences, of_subscription
from raybroker.hosting.host_port import Row
from raybroker.model.copies import has_copies
from raybroker.model.definitions.kinds.destination import DESTINATION
from raybroker.model.definitions.kinds.kind import Recorded
from raybroker.model.definitions.kinds.pause import PAUSE
from raybroker.model.definitions.kinds.policy import POLICY
from raybroker.model.definitions.kinds.quota import QUOTA
from raybroker.model.definitions.kinds.subscription import SUBSCRIPTION
from raybroker.model.definitions.kinds.table import BROKER, DRAIN, RECORDED
from raybroker.model.definitions.kinds.template import TEMPLATE
from raybroker.model.definitions.quota import quota_of
from raybroker.model.errors import BrokerError, InvalidDestinationError
from raybroker.model.naming.names import check_destination_type
from raybroker.model.settings.settings import changeable

MANY: Final = 500
"""Destinations that are created with one wait for the disk."""

ONLY_HERE: Final = "isLocalOnly"
NODE: Final = "node"
"""The first part of the key of a drained node."""

Work = Callable[[Change], Awaitable[None]]

log = logging.getLogger("raybroker.cluster")


class NamedHere(NamedTuple):
    """What a broker keeps by name."""

    templates: Templates
    quotas: Quotas
    policies: Policies
    drained_nodes: DrainedNodes


class Applying:
    """The application of the record to one broker; forwarding agents and where services keep their data are of others,
    who look at the record. ``locate`` creates a topic that is missing; ``brokers_changed`` is called after a change of
    the list of brokers."""

    def __init__(
        self,
        registry: Registry,
        placement: Placement,
        subscriptions: Subscriptions,
        named: NamedHere,
        locate: Callable[[str, str, bool], Awaitable[object]],
        brokers_changed: Callable[[], None],
    ) -> None:
        self._registry = registry
        self._pauses = PausesHere(registry.find)
        self._placement = placement
        self._subscriptions = subscriptions
        self._named: dict[Recorded, NamedDefinitions] = {
            TEMPLATE.recorded: named.templates,
            QUOTA.recorded: named.quotas,
            POLICY.recorded: named.policies,
        }
        self._made: dict[Recorded, Work] = {
            DESTINATION: self._update,
            SUBSCRIPTION.recorded: self._subscribe,
            PAUSE.recorded: self._pauses.make,
            DRAIN: self._drain,
            **dict.fromkeys(self._named, self._define),
        }
        self._ended: dict[Recorded, Work] = {
            DESTINATION: self._destroy,
            SUBSCRIPTION.recorded: self._unsubscribe,
            PAUSE.recorded: self._pauses.resume,
            DRAIN: self._end_drain,
            **dict.fromkeys(self._named, self._drop),
        }
        self._drained_nodes = named.drained_nodes
        self._locate = locate
        self._brokers_changed = brokers_changed
        self._starting = True
        """The record has not been carried out yet."""
        self._new: set[tuple[str, ...]] = set()
        """Destinations that the broker has not had before it started."""

    async def apply(self, changes: Sequence[Change]) -> bool:
        """Carry out changes in order; raises the first error after having tried all.

        Whether hosts were away, for which a part of it may have to wait.
        """
        failed: BrokerError | None = None
        partly = bool(self._registry.unasked)
        if any(KIND_OF[change.kind] is BROKER for change in changes):
            self._brokers_changed()
        for kind, some in groupby(changes, lambda change: change.kind):
            try:
                await self._all(kind, list(some))
            except BrokerError as error:
                failed = failed or error
        if failed is not None:
            raise failed
        return partly

    async def apply_whole(self, wanted: RecordState) -> bool:
        """Make ``wanted``, which the record leads to, true, whatever is here.

        What the record once had is destroyed: that is what happened to it meanwhile. Anything else that the
        record does not have is orphaned: after a restore only an administrator can know whether it is still
        wanted, with its messages. It is named in the log. The answer is that of :meth:`apply`.
        """
        have = await self._present(wanted)
        registry = self._registry
        registry.orphans.clear()
        registry.away.awaited.clear()
        for key in [key for key in have.destinations if key not in wanted.destinations]:
            if key not in wanted.past:
                log.warning("%s %s is not in the configuration change record, and orphaned: adopt or destroy it", *key)
                registry.orphans.add((check_destination_type(key[0]), key[1]))
                del have.destinations[key]
        for key, fields in list(have.subscriptions.items()):
            if key not in wanted.subscriptions and of_subscription(key) not in wanted.past:
                log.warning(
                    "durable subscription %r of topic %s is not in the configuration change record, and"
                    " orphaned: open or destroy it",
                    key[1],
                    fields["topic"],
                )
                del have.subscriptions[key]
        if self._starting:
            self._new |= wanted.destinations.keys() - have.destinations.keys()
        partly = await self.apply(differences(have, wanted))
        for key in self._new & wanted.destinations.keys():
            await self._placement.pause_as_at_start(_key(key), dict(wanted.destinations[key]))
        self._starting = False
        self._new.clear()
        self._brokers_changed()
        return partly

    def awaited(self) -> str:
        """Which hosts are starting, which a change may have to wait for, in words; "" for none."""
        return self._registry.away.under_way()

    async def _present(self, wanted: RecordState) -> RecordState:
        """What is here, as a record would have it."""
        have, registry = RecordState(), self._registry
        subscriptions = await self._subscriptions.list_subscriptions()
        require_asked(registry, subscriptions, "what the record changes")
        for row in subscriptions:
            if row["durable"]:
                fields = {key: row[key] for key in ("topic", "shared", "selector", "no_local")}
                have.subscriptions[row["client_id"] or "", row["name"]] = fields
        for kind, definitions in self._named.items():
            have.table(kind).update({(name,): fields for name, fields in definitions.saved().items()})
        for host in list(registry.hosts):
            for row in await host.destinations.destination_rows():
                key = (check_destination_type(row["type"]), row["name"])
                named = (str(row["traits"].get("quota", "")),)
                if key not in wanted.destinations and key not in wanted.past and named not in wanted.quotas:
                    have.quotas.pop(named, None)  # What the record does not know goes on having it.
                if registry.where.get(key) is host and not row["temporary"] and not key[1].startswith("mq."):
                    self._add(have, wanted, key, row)
        have.drains.update({key: row for key, row in wanted.drains.items() if key[0] != NODE})
        have.drains.update({(NODE, node): row for node, row in self._drained_nodes.saved().items()})
        for kind in RECORDED:
            if kind not in self._made:
                have.table(kind).update(wanted.table(kind))
        return have

    def _add(self, have: RecordState, wanted: RecordState, key: Key, row: Row) -> None:
        """One destination; ``row`` as a host shows what it serves."""
        there: Row = row["traits"]
        paused = paused_by_hand(row, wanted.pauses.get(key, {}))
        if paused:
            have.pauses[key] = paused
        if key in self._registry.auto or there.get(ONLY_HERE):
            return
        attributes = wanted.destinations.get(key, {})
        have.destinations[key] = {name: there.get(name, value) for name, value in attributes.items()}

    def _may_be_away(self, key: Key) -> bool:
        """Whether a destination is not here, and may be on a host that cannot be asked."""
        return bool(self._registry.unasked) and not self._placement.maybe_there(key)

    def _is_local(self, key: Key) -> bool:
        return bool(self._registry.traits.get(key, {}).get(ONLY_HERE))

    async def _all(self, kind: str, changes: list[Change]) -> None:
        if kind == DESTINATION.make:
            await self._create(changes)
            return
        of = KIND_OF[kind]
        if (work := (self._ended if kind == of.end else self._made).get(of)) is not None:
            for change in changes:
                await work(change)

    async def _create(self, changes: Iterable[Change]) -> None:
        """New ones in shared hosts come together; whatever else one after the other."""
        many: list[Row] = []
        for change in changes:
            key, attributes = _key(change.key), dict(change.attributes)
            if has_copies(attributes) or self._placement.is_copied(key):
                continue  # It is made where its log is led.
            if self._may_be_away(key):
                self._registry.away.awaited.add(key)
            elif self._is_local(key):
                log.error(
                    "%s %s of the configuration change record is not made here: this broker has one for its own"
                    " clients alone (isLocalOnly); destroy that one, and restart the broker",
                    *key,
                )
            elif not self._placement.maybe_there(key) and attributes.get("hosting") == "shared":
                many.append({"type": key[0], "name": key[1], "attributes": attributes})
            else:
                host = await self._placement.create(key, attributes)
                if key in self._registry.orphans:
                    await self._placement.update(key, host, {n: v for n, v in attributes.items() if changeable(n)})
                    self._registry.orphans.discard(key)
        for start in range(0, len(many), MANY):
            await self._placement.create_many(many[start : start + MANY])

    async def _update(self, change: Change) -> None:
        key = _key(change.key)
        host = self._registry.find(*key)
        if self._may_be_away(key) or (host is None and self._placement.is_copied(key)):
            return
        if host is None:
            raise InvalidDestinationError(f"{key[0]} {key[1]!r} is to be updated and is not here")
        changes = {name: value for name, value in change.attributes.items() if changeable(name)}
        await self._placement.update(key, host, changes)

    async def _destroy(self, change: Change) -> None:
        key = _key(change.key)
        host = self._registry.find(*key)
        self._registry.away.awaited.discard(key)
        if host is not None:
            await self._placement.destroy(key, host)

    async def _subscribe(self, change: Change) -> None:
        client_id, name = change.key
        fields: dict[str, Any] = dict(change.attributes)
        if self._is_local(("topic", str(fields["topic"]))):
            return  # Its messages are for clients of this broker alone, and their subscriptions are in no record.
        if self._may_be_away(("topic", str(fields["topic"]))):
            return
        await self._locate("topic", fields["topic"], True)
        await self._subscriptions.install(
            fields["topic"], client_id, name, bool(fields["shared"]), fields["selector"], bool(fields["no_local"])
        )

    async def _unsubscribe(self, change: Change) -> None:
        client_id, name = change.key
        if self._registry.unasked and not self._subscriptions.is_known(client_id, name):
            return
        try:
            await self._subscriptions.destroy_subscription(name, client_id)
        except InvalidDestinationError:
            return  # It is gone, which is what was wanted.

    async def _define(self, change: Change) -> None:
        """What is updated keeps what the change does not name; a quota of an earlier release gets what is new."""
        kind, name = KIND_OF[change.kind], change.key[0]
        named = self._named[kind]
        kept = {} if change.kind == kind.make else named.saved().get(name, {})
        fields = {**kept, **change.attributes}
        await named.put(name, quota_of(fields) if kind is QUOTA.recorded else fields)

    async def _drop(self, change: Change) -> None:
        kind = KIND_OF[change.kind]
        if not (kind.referred and self._registry.unasked):  # What is there may refer to it.
            await self._named[kind].drop(change.key[0])

    async def _drain(self, change: Change) -> None:
        """A drained broker looks itself at what the record says of it."""
        what, name = change.key
        if what == NODE:
            await self._drained_nodes.put(name, dict(change.attributes))

    async def _end_drain(self, change: Change) -> None:
        what, name = change.key
        if what == NODE:
            await self._drained_nodes.drop(name)


def _key(key: tuple[str, ...]) -> Key:
    return (check_destination_type(key[0]), key[1])
