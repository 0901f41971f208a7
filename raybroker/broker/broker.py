"""A broker: which destinations there are, on which host each lives, and every administrative verb.

A broker holds no messages and no durable state of its own but the list of its hosts, its templates, quotas and
policies; what a host serves is asked of the host, so there are never two truths.  Hosts are reached through the
``HostPort`` protocol: remote actors in a cluster, an object of the process in the loopback.  The verbs are beside
this file: destinations, subscriptions, transactions, messages, templates, quotas, policies.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from raybroker.broker import host_listing
from raybroker.broker.broker_properties import Properties
from raybroker.broker.clients.clients_inside import ClientsInside
from raybroker.broker.definitions.definitions_on_demand import DefinitionsOnDemand
from raybroker.broker.definitions.drained_nodes import DrainedNodes
from raybroker.broker.definitions.named import Saved
from raybroker.broker.definitions.policies import Policies
from raybroker.broker.definitions.quotas import Quotas
from raybroker.broker.definitions.templates import Templates
from raybroker.broker.destinations.destination_registry import Key, Registry
from raybroker.broker.destinations.destinations import Destinations
from raybroker.broker.destinations.message_administration import Led, Messages, none_led
from raybroker.broker.destinations.placement import OfRecord, Placement
from raybroker.broker.destinations.pools import BrokerPools
from raybroker.broker.destinations.schedules import ScheduleVerbs
from raybroker.broker.destinations.subscriptions import Subscriptions, new_identity
from raybroker.broker.destinations.transactions import TransactionAdministration, branch_states, nowhere
from raybroker.broker.ending import End, Ending
from raybroker.broker.observing.broker_metrics import NO_FIGURES, BrokerFigures, Measuring
from raybroker.broker.observing.memory import Guarded, Unguarded
from raybroker.broker.observing.metrics_topics import Publishing
from raybroker.broker.observing.thresholds import BrokerThresholds
from raybroker.broker.remote_broker import HostElsewhere
from raybroker.broker.services.service_administration import Elsewhere, ServiceAdministration, no_other_machine
from raybroker.config.live import live
from raybroker.core.selector import compile_selector, normalised
from raybroker.engine.measured_time import MeasuredTime
from raybroker.hosting.host_port import DropHost, HostPort, MakeHost, Row, Spares, method_of
from raybroker.logs.audit import Audit
from raybroker.metrics.messages import check_topic
from raybroker.model.errors import BrokerError, ConfigError, IllegalStateError, InvalidDestinationError
from raybroker.model.naming.names import (
    check_client_id,
    check_destination_name,
    check_destination_type,
    is_metrics_topic,
    is_reserved_name,
    temporary_name,
)
from raybroker.model.settings.settings import ConfigView, auto_created, destination_attributes
from raybroker.model.sizes import UNLIMITED
from raybroker.services.clients.client_ids import Others, nobody_else
from raybroker.system import entropy, supervision
from raybroker.system.clock import SystemClock

if TYPE_CHECKING:
    from raybroker.broker.cluster.record_application import Applying
    from raybroker.broker.definitions.definition_transfer import OwnDefinitions, Transfer
    from raybroker.broker.observing.health import HealthChecks

__all__ = ["Broker", "HostPort", "MakeHost", "DropHost"]

_UNIQUE_BYTES: Final = 12

log = logging.getLogger("raybroker.broker")


def _figures_of_log(me: str, shown: Row) -> Row:
    """See raybroker.admin.copy_checks, which is imported when the first scrape asks."""
    from raybroker.admin.copy_checks import figures_of_log

    return figures_of_log(me, shown)


def now_s() -> float:
    return SystemClock().monotonic_ns() / 1e9


class BrokerHosts(NamedTuple):
    """``make(hosting)`` starts a host of that kind; ``drop`` ends one that serves nothing any more; ``spares``: hosts
    that run and serve nothing yet, which count where processes are counted."""

    make: MakeHost
    drop: DropHost
    spares: Spares = list


async def save_nothing(field: str, saved: Row) -> None:
    """Save nothing: definitions and properties of such brokers end with them."""


class BrokerKept(NamedTuple):
    """What was kept of a broker. ``save(field, value)`` makes one of these fields, or the ``properties``, durable
    before it holds; changed properties come with the configuration."""

    templates: Saved | None = None
    quotas: Saved | None = None
    policies: Saved | None = None
    save: Callable[[str, Any], Awaitable[None]] = save_nothing


class OtherBrokers(NamedTuple):
    """The other brokers of a cluster, as one of them asks: none, until a cluster says it.

    host          finds a host of another broker by its key
    taken         whether others have a client id, see services.clients.client_ids
    require_open  raises while the cluster takes no clients
    elsewhere     gives those that run on other machines → the address of that
    pauses        gives what of a destination is paused, until when, as the configuration change record has it
    stored        gives what the store that brokers share has of this one
    copied        whether the log of a destination has copies at several brokers
    replication   what is shown of those, in fields of the destination's row
    led           gives the host that serves such a destination, at whichever broker
    """

    host: Callable[[str], HostElsewhere | None] = nowhere
    taken: Others = nobody_else
    require_open: Callable[[], None] = lambda: None
    elsewhere: Elsewhere = no_other_machine
    pauses: Callable[[Key], Mapping[str, int]] = lambda key: {}
    stored: Callable[[], Row] = dict
    copied: Callable[[Key], bool] = lambda key: False
    replication: Callable[[Key], Row] = lambda key: {}
    led: Led = none_led


@dataclass(frozen=True)
class BrokerProcess:
    """Whatever has started a broker.

    memory  guards the memory of its processes
    end     ends it; None where it ends with its program alone
    audit   where logins, changes and refusals are written down
    """

    memory: Guarded = field(default_factory=Unguarded)
    end: End | None = None
    audit: Audit = field(default_factory=Audit.silent)


NOTHING_KEPT: Final = BrokerKept()
NO_OTHERS: Final = OtherBrokers()


class Broker:
    """``name`` of the broker; ``process``: what has started it."""

    def __init__(
        self,
        config: ConfigView,
        hosts: BrokerHosts,
        kept: BrokerKept = NOTHING_KEPT,
        others: OtherBrokers = NO_OTHERS,
        *,
        name: str = "loopback",
        process: BrokerProcess = BrokerProcess(),
        figures: BrokerFigures = NO_FIGURES,
    ) -> None:
        changing = live(config)
        self.config: ConfigView = changing
        self.name = name
        self._spares = hosts.spares
        self._require_open = others.require_open
        self.memory = process.memory
        self.registry = Registry(name, self._held, others.copied)
        self.subscriptions = Subscriptions(self.registry)
        self.schedules = ScheduleVerbs(self.registry)
        self.transactions = TransactionAdministration(self.registry, others.host)
        self.messages = Messages(self.registry, others.led)
        self._compose_definitions(kept)
        inside = ClientsInside(lambda: self.registry.hosts, self._unasked, self.registry.find, broker=name)
        self.services = ServiceAdministration(name, inside, others.taken, others.elsewhere, audit=process.audit)
        self.properties = Properties(
            changing, self.registry, partial(kept.save, "properties"), self.services.port_mapper_at, broker=name
        )
        self.placement = Placement(
            changing,
            self.registry,
            self.subscriptions,
            hosts.make,
            hosts.drop,
            self._greet,
            self.quotas.known_at,
            OfRecord(others.pauses, others.copied),
        )
        made = (self.registry, self.placement, self.templates, self.quotas)
        self.destinations = Destinations(changing, *made, self.memory, others.replication)
        self.pools = BrokerPools(
            changing, lambda: self.registry.hosts, self._unasked, MeasuredTime(SystemClock()).now_ms, self.quotas.limits
        )
        self.thresholds = BrokerThresholds(changing, lambda: self.registry.hosts, broker=name)
        self.measuring = Measuring(
            changing,
            self.registry,
            SystemClock(),
            figures._replace(
                rows=(self.thresholds.figures, self._service_figures, *figures.rows),
                of=lambda key: _figures_of_log(name, others.replication(key).get("replication", {})),
            ),
            broker=name,
            spares=hosts.spares,
        )
        self.publishing = Publishing(changing, self.registry, self.measuring, SystemClock())
        began_ms, present = SystemClock().now_ms(), lambda: self.registry.hosts
        self.ending = Ending(changing, self.services, present, began_ms, process.end, broker=name, stored=others.stored)

    @cached_property
    def health(self) -> HealthChecks:
        """The checks of this broker; imported when the first one is asked for, and so are verbs."""
        from raybroker.broker.observing.health import HealthChecks

        return HealthChecks(
            self._shown,
            lambda: self.registry.hosts,
            lambda: host_listing.unasked(self.registry),
            self.services,
            self.admin,
            self._require_open,
            broker=self.name,
        )

    @cached_property
    def _verbs(self) -> dict[str, Callable[..., Awaitable[Any]]]:
        """Verb → who carries it out."""
        from raybroker.admin.verbs import implementations
        from raybroker.broker.clients.connection_verbs import ConnectionVerbs
        from raybroker.broker.observing.alone import NotShared, OnlyBroker
        from raybroker.broker.observing.why import WhyAdministration
        from raybroker.broker.services.user_administration import UserVerbs

        return implementations(
            self,
            self.services,
            self.destinations,
            self.subscriptions,
            self.schedules,
            self.transactions,
            self.messages,
            self.templates,
            self.quotas,
            self.policies,
            self.drained_nodes,
            self.properties,
            self.measuring,
            self.ending,
            DefinitionsOnDemand(self._transfer),
            self.health,
            OnlyBroker(self._shown),
            NotShared(),
            WhyAdministration(self.registry, self.name, self.quotas.query_quota),
            UserVerbs(self.config, self.services),
            ConnectionVerbs(self.services.connections, self.services.end_connections),
        )

    @cached_property
    def own_definitions(self) -> OwnDefinitions:
        """What there is here; imported with all that definitions are when it is asked for."""
        from raybroker.broker.definitions.definition_transfer import OwnDefinitions

        return OwnDefinitions(
            live(self.config),
            self.destinations.made,
            self.destinations.paused,
            lambda: self.registry.auto,
            lambda verb: self.admin(verb, {}),
            broker=self.name,
        )

    def _transfer(self) -> Transfer:
        from raybroker.broker.definitions.definition_transfer import Transfer

        own = self.own_definitions
        return Transfer(own, own.all, own.brokers, self.admin, now_s, agents=False)

    def _compose_definitions(self, kept: BrokerKept) -> None:
        """What destinations name. Each is made before some that it asks, which is why it asks by methods from here."""
        self.templates = Templates(
            self.registry,
            kept.templates,
            partial(kept.save, "templates"),
            self._check_named,
        )
        self.quotas = Quotas(
            kept.quotas,
            partial(kept.save, "quotas"),
            lambda: self.registry.hosts,
            self._unasked,
            self.templates.list_templates,
            self._naming_quota,
            broker=self.name,
        )
        registry = self.registry
        self.policies = Policies(
            kept.policies,
            partial(kept.save, "policies"),
            lambda: registry.hosts,
            lambda: (key for key in registry.where if not is_reserved_name(key[1])),
            self._defaults,
            self.quotas,
        )
        self.drained_nodes = DrainedNodes(lambda: registry.hosts)

    def _held(self, key: Key, own: Row) -> Row:
        """What policies make of a destination's own attributes."""
        return self.policies.traits(key, own)

    def _check_named(self, attributes: Mapping[str, object]) -> None:
        self.quotas.require(attributes)

    def _naming_quota(self, quota: str) -> list[str]:
        return self.policies.names(quota)

    def _unasked(self) -> Iterator[str]:
        return map(self.registry.host_key, self.registry.unasked)

    def _defaults(self, key: Key) -> Row:
        """The attributes of a destination that says nothing itself."""
        if key in self.registry.auto or key in self.registry.owners:
            return auto_created(self.config, key[0]).as_dict(key[0])
        return destination_attributes({}, self.config, key[0]).as_dict(key[0])

    async def _greet(self, host: HostPort, new: bool) -> None:
        await self.properties.greet(host, new)
        await self.quotas.greet(host, new)
        await self.policies.greet(host, new)
        await self.drained_nodes.greet(host, new)

    def applying(self, brokers_changed: Callable[[], None]) -> Applying:
        """Carries out here what a configuration change record says."""
        from raybroker.broker.cluster.record_application import Applying, NamedHere

        return Applying(
            self.registry,
            self.placement,
            self.subscriptions,
            NamedHere(self.templates, self.quotas, self.policies, self.drained_nodes),
            self.locate,
            brokers_changed,
        )

    # ---- what clients ask

    def _service_figures(self) -> Row:
        services = self.services.services
        return services.figures() if services is not None else {}

    async def locate(self, type: str, name: str, create: bool) -> HostPort:
        """The host of a destination; creates it if asked and allowed. Raises InvalidDestinationError."""
        kind = check_destination_type(type)
        check_destination_name(name, allow_reserved=True)
        key = (kind, name)
        host = self.registry.where.get(key)
        if host is not None and (key not in self.registry.auto or not create):
            return host
        if host is None:
            self.registry.require_all_asked(f"{kind} {name!r}")
            if kind == "topic" and is_metrics_topic(name) and create:
                check_topic(name, enabled=self.config["imq.metrics.topic.enabled"])
                attributes = {**auto_created(self.config, kind).as_dict(kind), "maxBytesPerMsg": -1}
                return await self.placement.create(key, attributes, automatic=True)
            if is_reserved_name(name):
                raise InvalidDestinationError(f"{kind} {name!r} does not exist (any more); nobody can create it")
            if not create:
                raise InvalidDestinationError(f"{kind} {name!r} does not exist; create it first")
            if not self.config[f"imq.autocreate.{kind}"]:
                raise InvalidDestinationError(
                    f"{kind} {name!r} does not exist and imq.autocreate.{kind} is false; create it with:"
                    f" raybroker create dst -t {kind[0]} -n {name}"
                )
            self.memory.require(f"{kind} {name!r} cannot be created")
        return await self.placement.create(key, auto_created(self.config, kind).as_dict(kind), automatic=True)

    async def create_temporary(self, type: str, owner: str) -> str:
        """A new destination that lives as long as the client connection ``owner``; its name.

        It has the attributes of an auto-created one, without a limit on producers, since whoever is asked answers
        there, and lives on a shared host.
        """
        kind = check_destination_type(type)
        if not owner:
            raise ConfigError("owner: a temporary destination needs the id of the connection that it belongs to")
        self.memory.require(f"no temporary {kind} can be created")
        name = temporary_name(kind, self.name, entropy.token(_UNIQUE_BYTES).hex())
        attributes = {**auto_created(self.config, kind).as_dict(kind), "hosting": "shared"}
        attributes["maxNumProducers"] = UNLIMITED
        await self.placement.create((kind, name), attributes, owner=owner)
        return name

    async def destroy_temporary(self, type: str, name: str, owner: str) -> None:
        """What its connection does; raises IllegalStateError for others, and while it has consumers."""
        kind = check_destination_type(type)
        key, host = (kind, name), self.registry.host_of(kind, name)
        known = self.registry.owners.get(key)
        if known is None or known not in ("", owner):
            raise IllegalStateError(f"{key[0]} {name!r} is not a temporary destination of this connection")
        row = await host.destinations.query(*key)
        if row.get("active_consumers") or row.get("backup_consumers"):
            raise IllegalStateError(f"{key[0]} {name!r} has consumers; close them first")
        await self.placement.destroy(key, host)

    async def subscribe(
        self,
        topic: str,
        client_id: str | None,
        name: str,
        durable: bool = True,
        shared: bool = False,
        selector: str | None = None,
        no_local: bool = False,
    ) -> None:
        """Prepare a subscription that a client is about to open: the topic is created as by :meth:`locate`, then see
        Subscriptions."""
        await self.locate("topic", topic, True)
        await self.subscriptions.subscribe(topic, client_id, name, durable, shared, selector, no_local)

    async def create_subscription(
        self,
        name: str,
        topic: str,
        client_id: str | None = None,
        shared: bool = False,
        selector: str | None = None,
        no_local: bool = False,
    ) -> None:
        """A durable one that no client has opened; raises InvalidDestinationError when it exists."""
        if selector:
            compile_selector(selector)
        rows = await self.subscriptions.list_subscriptions()
        host_listing.require_whole(rows, f"whether subscription {name!r} exists")
        known = [(row["client_id"] or "", row["name"]) for row in rows if row["durable"]]
        new_identity(known, name, client_id)
        await self.locate("topic", topic, True)
        await self.subscriptions.install(topic, client_id or "", name, shared, normalised(selector), no_local)

    async def identify(self, client_id: str, instance: str) -> None:
        """A connection inside the Ray cluster, which has a link to the host of mq.sys.dmq, has the client id; raises
        InvalidClientIDError when another one of the cluster has it."""
        async with self.services.client_ids.claiming(check_client_id(client_id), instance):
            pass

    async def unsubscribe(self, client_id: str | None, name: str) -> None:
        """See Subscriptions."""
        await self.subscriptions.unsubscribe(client_id, name)

    async def matching(self, pattern: str) -> tuple[int, list[str]]:
        """The version of the list of topics and the names in it that match."""
        return self.registry.matching(pattern)

    async def changed(self, version: int, timeout_s: float) -> int:
        """The version, as soon as it is not ``version`` or the time is over; a bounded wait."""
        return await self.registry.changed(version, timeout_s)

    async def branch_states(self, key: bytes) -> list[str]:
        """States of an XA branch, one of each host that has it."""
        return branch_states(await self.admin("list_transactions", {}), key)

    async def forward(self, type: str, name: str, block: bytes) -> None:
        """Put what a host has for a destination of another host there, such as dead messages.

        Raises what the other host raises, InvalidDestinationError when there is no such destination. The same block may
        be offered again: a host recognises what it has.
        """
        await self.registry.host_of(type, name).messages.put(type, name, [block])

    # ---- administration

    async def admin(self, verb: str, args: Row) -> Any:
        """One verb by name; raises ConfigError for an unknown one, and whatever the verb raises."""
        from raybroker.admin.verbs import VERBS

        declared, handler = VERBS.get(verb), self._verbs.get(verb)
        if declared is None or (handler is None and not declared.host):
            raise ConfigError(f"unknown verb {verb!r}; known are {', '.join(self._verbs)}")
        declared.check(args)
        if handler is not None:
            return await handler(**args)
        kind, name, *more = declared.filled(args).values()
        call = method_of(self.registry.host_of(kind, name), *declared.host.split("."))
        return await call(check_destination_type(kind), name, *more)

    async def query_broker(self) -> Row:
        """The broker's name, state and start; its hosts and what they hold; ``limits``: imq.system.max_count and
        max_size with the messages and bytes that count for them, the blocks whose senders wait for room, and the
        messages refused; empty without such limits; ``thresholds``: see BrokerThresholds.excess_row."""
        hosts = []
        serving = [(host, host.hosting) for host in self.registry.hosts]
        for host, hosting in [*serving, *((host, "spare") for host in self._spares())]:
            try:
                hosts.append({"host": host.key, "hosting": hosting, **await host.process.state()})
            except BrokerError as error:
                hosts.append({"host": host.key, "hosting": hosting, "failure": str(error)})
        limits: Row = {}
        for row in (host.pop("limits", None) or {} for host in hosts):
            limits = {key: limits.get(key, 0) + value for key, value in row.items()} or limits
        if limits:
            limits = {name: self.config[name] for name in ("imq.system.max_count", "imq.system.max_size")} | limits
        return {
            **self._shown(),
            "destinations": len(self.registry.where),
            "changed": self.properties.changed_properties(),
            "limits": limits,
            "hosts": hosts,
        }

    def _shown(self) -> Row:
        """What the broker says of itself, without its hosts."""
        return {
            **self.ending.shown(),
            "now_ms": SystemClock().now_ms(),
            **self.memory.memory_row(),
            "thresholds": self.thresholds.excess_row(),
            "loops": supervision.failing(),
        }
