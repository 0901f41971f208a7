"""A clustered broker: what clients, administrators and other brokers ask of it.

Beneath it are the broker's own destinations (broker.py) and the shell of the member machine (cluster_shell.py).
Requests for one member are carried out here; changes of definitions go through the configuration change record; queries
and actions on all members ask all brokers (cluster_admin.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from raybroker.admin.verb import By
from raybroker.admin.verbs import VERBS, implementations
from raybroker.broker.broker import Broker, OtherBrokers, now_s
from raybroker.broker.broker_properties import ClusterProperties
from raybroker.broker.clients.connection_verbs import ConnectionVerbs
from raybroker.broker.cluster.broker_calls import BrokerCalls
from raybroker.broker.cluster.cluster_admin import ClusterAdmin
from raybroker.broker.cluster.cluster_connections import END, LIST, ClusterConnections
from raybroker.broker.cluster.cluster_management import ClusterItself
from raybroker.broker.cluster.cluster_pauses import Pausing
from raybroker.broker.cluster.cluster_shell import Clustering
from raybroker.broker.cluster.cluster_why import ClusterWhy
from raybroker.broker.cluster.draining import DRAIN, Draining
from raybroker.broker.cluster.drains import Drains
from raybroker.broker.cluster.forwarding_agents import Agents, Hands
from raybroker.broker.cluster.path_service import Paths
from raybroker.broker.cluster.record_application import ONLY_HERE
from raybroker.broker.cluster.takeovers import StoreWatch
from raybroker.broker.copies.copied_logs import AgreedRecord, CopiedLogs
from raybroker.broker.copies.copy_port import CopyMaker
from raybroker.broker.copies.lost_leaders import LostLeaders
from raybroker.broker.copies.member_moves import MemberMoves
from raybroker.broker.copies.placed_log import PlacedLog
from raybroker.broker.copies.placing import Placing
from raybroker.broker.definitions.definition_transfer import Transfer, TransferBrokers
from raybroker.broker.definitions.definitions import (
    RecordedDestinations,
    RecordedNamed,
    RecordedSubscriptions,
    RecordedWays,
)
from raybroker.broker.definitions.named import Saved
from raybroker.broker.destinations.destination_registry import TRAITS, Key
from raybroker.broker.destinations.forwarding import MemberForwarding
from raybroker.broker.destinations.transactions import branch_states
from raybroker.broker.ending import ClusterEnding
from raybroker.broker.observing.alone import NotShared
from raybroker.broker.observing.health import ClusterHealth
from raybroker.broker.remote_broker import HostElsewhere, RemotePeers
from raybroker.broker.services.service_administration import Elsewhere
from raybroker.broker.services.user_administration import ClusterUsers
from raybroker.cluster.change_record import Change, RecordState
from raybroker.cluster.member_messages import Envelope
from raybroker.core.selector import compile_selector, normalised
from raybroker.engine.measured_time import MeasuredTime
from raybroker.hosting.host_port import HostPort, Row
from raybroker.model.definitions.kinds.kind import Recorded
from raybroker.model.definitions.kinds.policy import POLICY
from raybroker.model.definitions.kinds.quota import QUOTA
from raybroker.model.definitions.kinds.template import TEMPLATE
from raybroker.model.definitions.values import Definitions
from raybroker.model.errors import (
    BrokerError,
    BrokerGoneError,
    ConfigError,
    ConnectionLostError,
    InvalidDestinationError,
    LocalDestinationError,
    MasterUnavailableError,
    RequestTimeoutError,
)
from raybroker.model.listing import Listing
from raybroker.model.naming.names import (
    check_destination_type,
    is_reserved_name,
)
from raybroker.services.clients.client_rows import Wanted
from raybroker.system.clock import SystemClock

REACH_TIMEOUT_S: Final = 10.0
"""How long a change waits for the other brokers to carry it out."""
PROPOSED_MAX: Final = 64
"""Changes that are proposed at a time: the master remembers so many of each broker, and more."""
BOOTSTRAP_RETRY_S: Final = 1.0
"""Until what could not be written into a new record is tried again."""
PEER_TIMEOUT_S: Final = 10.0
"""How long another broker may take for what is asked on a client's behalf."""
LED_BY: Final = "ledBy"
"""Trait of a destination whose log has copies, for clients: the broker at which it is led."""
TAKEN: Final = "client_id_taken"
REDEEM: Final = "redeem_voucher"
"""What brokers ask each other about a client id."""
TAKEN_TIMEOUT_S: Final = 5.0

log = logging.getLogger("raybroker.cluster")

BrokerRows = tuple[int, str, list[tuple[str, str, bool, str]]]


class ClusterBroker:
    """``nodes``: what is known of where brokers run, broker → node id; ``hands`` run forwarding agents; ``store``:
    looks after the store that brokers share, where they do; ``maker``: makes copies of logs."""

    def __init__(
        self,
        local: Broker,
        clustering: Clustering,
        peers: RemotePeers,
        paths: Paths,
        nodes: Callable[[], dict[str, str]],
        hands: Hands | None = None,
        store: StoreWatch | None = None,
        maker: CopyMaker | None = None,
    ) -> None:
        self.local = local
        self.clustering = clustering
        self.paths = paths
        self._peers = peers
        self._nodes = nodes
        self._brokers = brokers = BrokerCalls(clustering.member, local.admin, self.peer, peers)
        self._spread = ClusterAdmin(brokers, lambda: clustering.member.agreed.copies)
        taking = store or NotShared()
        ending = ClusterEnding(brokers)

        def agreed() -> RecordState:
            return clustering.member.agreed

        draining = Draining(brokers, taking, ending.shutdown_broker, Drains(brokers, agreed, self._propose), nodes)
        self._itself = ClusterItself(clustering, brokers, self._propose, self._forget_broker, nodes, taking, draining)
        self.agents = Agents(clustering, self._propose, hands)
        self.pausing = pausing = Pausing(
            self._propose_all, self._spread.everywhere, lambda: clustering.member.agreed.pauses
        )

        now_ms = MeasuredTime(SystemClock()).now_ms

        record = AgreedRecord(agreed, lambda: clustering.member.durable.record, self._propose)
        copies = CopiedLogs(local.name, record, peers, maker, local.placement, now_ms)
        moves = MemberMoves(local.placement, copies, brokers, self._propose, now_ms)
        placing = Placing(copies, brokers, agreed, self._propose)
        self._destinations = RecordedDestinations(
            local.registry,
            local.destinations,
            local.quotas,
            local.policies,
            brokers,
            self._spread,
            RecordedWays(agreed, self._propose, copies, placing, moves),
        )
        self._subscriptions = RecordedSubscriptions(
            local, self._destinations.is_local, brokers, self._spread, agreed, self._propose
        )
        named = RecordedNamed(
            local.templates,
            local.quotas,
            local.policies,
            brokers,
            self._spread,
            self._propose,
            self._destinations.update_destination,
        )
        self.health = ClusterHealth(self.admin, lambda: list(agreed().copies))
        connections = ClusterConnections(brokers)
        self._verbs = implementations(
            self._spread,
            self._destinations,
            placing,
            self._subscriptions,
            named,
            self._itself,
            self.agents,
            pausing,
            ClusterProperties(local.properties, brokers, self._spread.everywhere),
            ending,
            self.health,
            ClusterWhy(
                brokers,
                self._spread,
                lambda kind, name: (kind, name) in local.registry.where,
                self.health.replication,
            ),
            Transfer(local.own_definitions, self._defined, self._properties, self.admin, now_s, agents=True),
            ClusterUsers(brokers.known, self._spread.everywhere),
            ConnectionVerbs(connections.found, connections.end_connections),
            store or LostLeaders(brokers, agreed),
            draining,
        )
        self.forwarding = MemberForwarding(local.name, local.registry, peers, brokers.live)

    async def _defined(self) -> Definitions:
        return await self.local.own_definitions.of_cluster(self.clustering.member.agreed)

    async def _properties(self) -> TransferBrokers:
        """Return the properties of all brokers that answer."""
        names = self._brokers.known()
        asked = (self._properties_of(name) for name in names)
        answers = dict(zip(names, await asyncio.gather(*asked, return_exceptions=True), strict=True))
        up: dict[str, Row] = {}
        for name, answer in answers.items():
            if isinstance(answer, BaseException):
                if not isinstance(answer, BrokerError):
                    raise answer
            else:
                up[name] = answer
        return TransferBrokers(up, tuple(name for name in names if name not in up))

    async def _properties_of(self, broker: str) -> Row:
        if broker not in self._brokers.live():
            raise BrokerGoneError(f"broker {broker} is not up")
        found: Row = await self._brokers.ask_at(broker, "properties", {}, PEER_TIMEOUT_S)
        return found

    async def _own_properties(self) -> Row:
        return self.local.own_definitions.properties()

    @property
    def name(self) -> str:
        return self.local.name

    @property
    def copies(self) -> CopiedLogs:
        """The logs that have copies."""
        return self._destinations.copies

    @property
    def placing(self) -> Placing:
        """Who keeps those copies."""
        return self._destinations.placing

    @property
    def moves(self) -> MemberMoves:
        """What moves into them."""
        return self._destinations.moves

    @property
    def coordinator(self) -> str:
        return self._brokers.coordinator

    def live(self) -> list[str]:
        """The brokers that are up, this one first."""
        return self._brokers.live()

    def stored(self) -> Row:
        """What the store that brokers share has of this one; empty where they share none."""
        return self._itself.stored(self.name)

    def take_brokers(self) -> None:
        """See ClusterItself."""
        self._itself.take_brokers()

    # ---- what clients ask ------------------------------------------------------------------------------------------

    async def brokers(self) -> BrokerRows:
        """(version of the view, this broker, rows of name, state, coordinator, node)."""
        nodes, coordinator = self._nodes(), self._brokers.coordinator
        rows = [
            (row.name, _shown(row.state), row.name == coordinator, nodes.get(row.name, ""))
            for row in self.clustering.member.membership.broker_rows()
        ]
        return self.clustering.version, self.name, rows

    async def brokers_changed(self, version: int, timeout_s: float) -> int:
        return await self.clustering.changed(version, timeout_s)

    async def locate(self, kind: str, name: str, create: bool, guest: bool = False) -> tuple[HostPort, Row]:
        """The host of this broker's member of a destination, and the attributes that a client acts on.

        ``guest``: the home broker of the client is another one. Raises LocalDestinationError when only clients of this
        broker may use the destination.
        """
        self.clustering.require_open()
        if (placed := self.copies.placed((kind, name))) is not None:
            if placed.opened:
                return await self._locate_led(placed)
            self.moves.require_open(placed)
        if guest and self._destinations.is_local(kind, name):
            raise LocalDestinationError(
                f"{kind} {name!r} of broker {self.name} is for clients of that broker alone (isLocalOnly)"
            )
        host = await self.local.locate(kind, name, create)
        return host, self.local.registry.held_traits((check_destination_type(kind), name))

    async def _locate_led(self, placed: PlacedLog) -> tuple[HostPort, Row]:
        """The host of a destination whose log has copies, wherever it is led: clients of all brokers use that one."""
        host, leader = await self.copies.host_of(placed)
        attributes = self.clustering.member.agreed.destinations.get(placed.key)
        if attributes is None:
            raise InvalidDestinationError(f"{placed.key[0]} {placed.key[1]!r} does not exist")
        own: Row = {name: attributes[name] for name in TRAITS if name in attributes}
        traits = self.local.policies.traits(placed.key, own)
        return host, {**traits, ONLY_HERE: True, LED_BY: leader}

    async def forward(self, type: str, name: str, block: bytes) -> None:
        """Put what a host has for a destination of another host there, wherever it is led; see Broker.forward."""
        placed = self.copies.placed((type, name))
        if placed is not None and placed.opened and (leader := await self.copies.leader_of(placed)) != self.name:
            args = {"type": type, "name": name, "block": block}
            await self._peers.call_broker(leader, "import", args, timeout_s=PEER_TIMEOUT_S)
        else:
            await self._import(type, name, block)

    async def members(self, kind: str, name: str) -> dict[str, int]:
        """Broker → consumers of its member of a destination, of those brokers that answer."""
        self.clustering.require_open()
        return await self.forwarding.members((check_destination_type(kind), name), self.live())

    async def routes(self, kind: str, name: str, units: list[str], owner: str) -> dict[str, str]:
        """Unit of order → broker, by the path service."""
        self.clustering.require_open()
        return await self.paths.routes(kind, name, units, owner, self.clustering.member.membership.live())

    async def keeper_of_paths(self) -> str:
        """The broker that keeps the map of the path service; the first that is asked for it becomes that.

        Another one could not know where units have messages, so there is none while that broker is down.
        """
        key = ("paths",)
        if key not in self.clustering.member.agreed.services:
            with contextlib.suppress(ConfigError):  # Another broker was first.
                await self._propose(Change("place_service", key, {"broker": self.name}))
        return str(self.clustering.member.agreed.services[key]["broker"])

    async def _forget_broker(self, name: str) -> None:
        """A broker was removed for good: units of order that were its own start anew elsewhere."""
        if ("paths",) in self.clustering.member.agreed.services:
            await self.paths.drop_member(name)

    async def renew_routes(self, owner: str) -> bool:
        return await self.paths.renew(owner)

    async def release_routes(self, kind: str, name: str, units: list[str], owner: str) -> None:
        await self.paths.release(kind, name, units, owner)

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
        """Prepare a subscription that a client is about to open: a durable one is made on all brokers.

        One that exists as it is wanted needs no master.
        """
        self.clustering.require_open()
        await self.local.locate("topic", topic, True)
        if not durable or self._destinations.is_local("topic", topic):
            await self.local.subscriptions.subscribe(topic, client_id, name, durable, shared, selector, no_local)
            return
        key = (client_id or "", name)
        if selector:
            compile_selector(selector)
        wanted = {"topic": topic, "shared": shared, "selector": normalised(selector), "no_local": no_local}
        known = self.clustering.member.agreed.subscriptions.get(key)
        if known == wanted:
            return
        if known is not None:
            await self._subscriptions.refuse_active(name, client_id)
            await self._propose(Change("destroy_subscription", key))
        await self._propose(Change("create_subscription", key, wanted))

    async def unsubscribe(self, client_id: str | None, name: str) -> None:
        await self._subscriptions.destroy_subscription(name, client_id)

    async def admin(self, verb: str, args: Row) -> Any:
        """One verb by name, for the whole cluster where it concerns the whole cluster."""
        declared = VERBS.get(verb)
        if declared is None or not declared.always:
            self.clustering.require_open()
        if declared is None or declared.by is By.BROKER:
            return await self.local.admin(verb, args)
        declared.check(args)
        if declared.by is By.CLUSTER:
            return await self._verbs[verb](**args)
        return await self._spread.carry_out(declared, args)

    async def branch_states(self, key: bytes) -> list[str]:
        """States of an XA branch, one of each host of the cluster that has it and can be asked."""
        return branch_states(await self.admin("list_transactions", {}), key)

    # ---- what other brokers ask ------------------------------------------------------------------------------------

    def receive(self, envelope: Envelope) -> None:
        self.clustering.receive(envelope)

    async def peer(self, method: str, args: Row) -> Any:
        """One of the methods below by name."""
        local = self.local
        methods: dict[str, Callable[..., Awaitable[Any]]] = {
            "admin": local.admin,
            "host": self._ask_host,
            "import": self._import,
            "units": self._units_live,
            "reached": self._reached,
            "why": self._why_closed,
            "properties": self._own_properties,
            DRAIN: self._itself.draining.take_drained,
            "standing_by": self._itself.processes_standing_by,
            "change_master": self._itself.change_master,
            "consumers": self.forwarding.consumers,
            "take_over": self.forwarding.take_over,
            "decide_over": self.forwarding.decide_over,
            REDEEM: local.services.redeem,
            TAKEN: local.services.client_ids.is_taken,
            LIST: self._clients,
            END: local.services.end_connections,
            **self.moves.methods(),
            **self.copies.methods(),
        }
        handler = methods.get(method)
        if handler is None:
            raise ConfigError(f"brokers have no method {method!r} for each other")
        return await handler(**args)

    async def _ask_host(self, host: str, method: str, key: str, commit: bool | None = None) -> Any:
        """Ask about a transaction whose coordinator is one of this broker's hosts."""
        found = next((other for other in self.local.registry.hosts if other.key == host), None)
        if found is None:
            self.local.registry.require_all_asked(f"host {host}")
            if self.copies.placed_log(host) is not None:
                raise ConnectionLostError(f"{host} is not led by broker {self.name} now; ask again")
            return "unknown" if method == "outcome" else None
        return await (found.transactions.outcome(key) if commit is None else found.transactions.decide(key, commit))

    async def _import(self, type: str, name: str, block: bytes) -> None:
        if self.copies.placed((type, name)) is not None and not self.local.registry.has(type, name):
            raise ConnectionLostError(f"{type} {name!r} is not led by broker {self.name} now; try again")
        await self.local.forward(type, name, block)

    async def _units_live(self, type: str, name: str, names: list[str]) -> list[str]:
        """Which of these units of order have messages in this broker's member."""
        host = self.local.registry.find(type, name)
        return await host.destinations.live_units(type, name, names) if host is not None else []

    async def _clients(self, **wanted: Any) -> Listing:
        return await self.local.services.connections(Wanted(**wanted))

    async def taken_elsewhere(self, client_id: str, instance: str) -> list[bool]:
        """Return for each broker that answers in time whether it has the client ID. Of others nothing is known: hosts
        refuse a second client at its first use."""
        args = {"client_id": client_id, "instance": instance, "broker": self.name}
        others = (name for name in self.live() if name != self.name)
        work = (self._brokers.ask_at(name, TAKEN, args, TAKEN_TIMEOUT_S) for name in others)
        answers = await asyncio.gather(*work, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, BrokerError):
                raise answer
        return [bool(answer) for answer in answers if not isinstance(answer, BaseException)]

    def host_elsewhere(self, host: str) -> HostElsewhere | None:
        """A host of another broker, by its key; None when it is none of another broker's."""
        if (placed := self.copies.placed_log(host)) is not None:
            leader = self.copies.known_leader(placed)
            return HostElsewhere(self._peers, leader, host, PEER_TIMEOUT_S)
        broker = host.partition("/")[0]
        if not broker or broker == self.name or broker not in self.clustering.member.membership:
            return None
        return HostElsewhere(self._peers, broker, host, PEER_TIMEOUT_S)

    async def _propose(self, change: Change) -> None:
        """Make a change and wait until all brokers that are up have carried it out, for a bounded time.

        One that takes longer carries it out later; what is durable at the master is so for good.
        """
        await self._propose_all([change])

    async def _propose_all(self, changes: Sequence[Change]) -> None:
        """Make changes, in no order, and wait as :meth:`_propose`; raises the first error after having tried all of
        the same PROPOSED_MAX."""
        if not changes:
            return
        number = 0
        for start in range(0, len(changes), PROPOSED_MAX):
            work = (self.clustering.propose(change) for change in changes[start : start + PROPOSED_MAX])
            for answer in await asyncio.gather(*work, return_exceptions=True):
                if isinstance(answer, BaseException):
                    raise answer
                number = max(number, answer)
        others = (name for name in self.live() if name != self.name)
        args = {"number": number}
        work = (self._brokers.ask_at(name, "reached", args, REACH_TIMEOUT_S) for name in others)
        await asyncio.gather(*work, return_exceptions=True)

    async def _why_closed(self) -> str:
        """Why this broker takes no clients; "" when it does."""
        return "" if self.clustering.member.opened else self.clustering.member.refusal

    async def _reached(self, number: int) -> bool:
        return await self.clustering.reached(number, REACH_TIMEOUT_S)

    # ---- the start -------------------------------------------------------------------------------------------------

    async def bootstrap(self) -> None:
        """Write into a new record what this broker's stores had before there was one, once it is open.

        The master does, or with a shared table whoever is the first, and only what the record does not know. Without a
        master each broker sees that it is in the list of brokers itself, since the first may end in the middle.
        """
        member, shared = self.clustering.member, self.clustering.shared
        # What is made from now on is made by the record, and what it destroys must not come back.
        recorded = self._destinations.recorded
        stored = [key for key in self.local.registry.keys(None) if member.applied < 0 or recorded(key) is None]
        local = self.local
        named = {
            TEMPLATE.recorded: dict(local.templates.saved()),
            QUOTA.recorded: dict(local.quotas.saved()),
            POLICY.recorded: dict(local.policies.saved()),
        }
        await self.clustering.opened.wait()
        new = not member.agreed.brokers
        while True:
            try:
                if new and (member.is_master or shared):
                    await self._write_all(named, stored, shared)
                elif shared:
                    await self._itself.list_broker(self.name)
                return
            except (MasterUnavailableError, RequestTimeoutError) as error:
                log.info("broker %s tries again to write what it has into the record: %s", self.name, error)
                await asyncio.sleep(BOOTSTRAP_RETRY_S)

    async def _write_all(self, named: Mapping[Recorded, Saved], stored: list[Key], shared: bool) -> None:
        """``named``: definitions of each kind that destinations may name, by name; ``stored``: destinations."""
        registry, recorded = self.local.registry, self._destinations
        for name in list(self.clustering.member.membership):
            await self._itself.list_broker(name)
        for kind, kept in named.items():
            for name, fields in kept.items():
                if (name,) not in self.clustering.member.agreed.table(kind):
                    await self._propose(Change(kind.make, (name,), fields))
        for key in stored:
            if key in registry.auto or key in registry.owners or is_reserved_name(key[1]) or recorded.is_local(*key):
                continue
            if key not in registry.where or recorded.recorded(key) is not None:
                continue
            attributes = (await registry.where[key].destinations.query(*key))["attributes"]
            try:
                await self._propose(Change("create_destination", key, attributes))
            except (MasterUnavailableError, RequestTimeoutError):
                raise
            except BrokerError as error:
                if shared and recorded.recorded(key) is not None:
                    continue  # Another broker has it as well, and was first.
                raise BrokerError(f"{key[0]} {key[1]} could not be written into the record: {error}") from error


def _shown(state: str) -> str:
    """How clients see it: one that is not integrated yet, or has been stopped, keeps its place and is not there."""
    return state if state in ("UP", "SUSPECT") else "DOWN"


def others_in(cluster: Callable[[], ClusterBroker], elsewhere: Elsewhere) -> OtherBrokers:
    """The other brokers of a cluster, for a broker that is made before its place in the cluster is."""

    def require_open() -> None:
        cluster().clustering.require_open()

    def pauses(key: Key) -> Mapping[str, int]:
        return cluster().pausing.pauses_of(key)

    def stored() -> Row:
        return cluster().stored()

    def copied(key: Key) -> bool:
        return cluster().copies.placed(key) is not None

    def replication(key: Key) -> Row:
        placed = cluster().copies.placed(key)
        copies = cluster().copies.replication_row(key)
        moving = [] if placed is None else cluster().moves.shown(placed)
        return {**({"replication": copies} if copies else {}), **({"moving": moving} if moving else {})}

    async def led(key: Key) -> HostPort | None:
        placed = cluster().copies.placed(key)
        return None if placed is None else (await cluster().copies.host_of(placed))[0]

    return OtherBrokers(
        lambda key: cluster().host_elsewhere(key),
        lambda client_id, instance: cluster().taken_elsewhere(client_id, instance),
        require_open,
        elsewhere,
        pauses,
        stored,
        copied,
        replication,
        led,
    )
