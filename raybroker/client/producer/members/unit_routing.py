"""A producer in a cluster: messages go to the home broker, those of a unit of order where their unit lives.

    no unit           the member of the home broker, whichever that is
                      of a distributed destination: the member whose turn it is
    a unit of work    where the destination composes them, the member that the hash of its name says
    a dedup_id        where the destination remembers them, the member that the hash of the id says: one member decides
                      whether it has come before, whichever broker a sender has; a message with a unit goes with
                      that
    a unit            the member that the hash of its name says, over all brokers there are, or the path service;
                      with one broker that cannot be reached the send fails, and no other gets it

Where a unit goes is found out once for each producer.  Asking and connecting happen on the IO loop; whoever sends waits
for it, or is told when to try again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import Any, Final, NamedTuple

from raybroker.client.cluster.directory import View
from raybroker.client.connection.connection import ConnectionCore
from raybroker.client.destinations import Destination
from raybroker.client.io.io_thread import fulfil
from raybroker.client.producer.bodies.body_encoding import Encode
from raybroker.client.producer.members.member_balance import MemberBalance
from raybroker.client.producer.open_producer import open_producer
from raybroker.client.producer.pacing.flow_rate import least
from raybroker.client.producer.pacing.one_way import OneWay
from raybroker.client.producer.producer import ProducerCore
from raybroker.client.producer.producer_owner import ProducerOwner
from raybroker.client.producer.producer_state import RunTold, Shared
from raybroker.client.producer.send_many import MANY_MESSAGES, Each
from raybroker.client.session.current_transaction import CurrentTransaction
from raybroker.content.headers import decode_header
from raybroker.content.unit_of_work import WORK_UNIT
from raybroker.model.errors import BrokerError, IllegalStateError, OrderError
from raybroker.model.hashing import rendezvous
from raybroker.model.naming.units import default_unit
from raybroker.system.entropy import token

UNITS_KNOWN_MAX: Final = 100_000
"""Units whose way a producer remembers; with more it begins anew."""
ASKED_MAX: Final = 1000
"""New units that the path service is asked for at a time."""
OWNER_BYTES: Final = 8
RENEWALS: Final = 3
"""The path service is told so often within its lease that the producer is still there."""
_WORK_UNIT: Final = WORK_UNIT.encode()
ONLY_HERE: Final = "isLocalOnly"
"""Attribute of a destination that has no members on other brokers."""
BY_SERVICE: Final = "PathService"
WORK_KEY: Final = "\0work:"
"""Before the name of a unit of work, where units of order stand."""
ID_KEY: Final = "\0id:"
"""Before a deduplication id, likewise."""


class RoutingKeys(NamedTuple):
    """What a message without a unit of its own is routed by.

    composes   the destination composes units of work, whose parts have to be in one place
    remembers  it knows deduplication ids again
    default    its own unit, which messages without one get
    """

    composes: bool = False
    remembers: bool = False
    default: str | None = None

    @classmethod
    def of_destination(cls, destination: Destination, traits: Mapping[str, Any]) -> RoutingKeys:
        return cls(
            traits.get("unitOfWorkHandlingPolicy") == "SingleMessageDelivery",
            bool(traits.get("duplicateWindowMs")) and not traits.get(ONLY_HERE),
            default_unit(destination.kind, destination.name) if traits.get("unitOfOrder") else None,
        )

    def key_of(self, header: bytes) -> str | None:
        """The key of a message with these headers."""
        key = (work_of(header) if self.composes else None) or self.default
        return (id_of(header) if self.remembers and header else None) if key is None else key


class PathLeases:
    """Leases of units of order: what the path service has noted for one producer, and is told that it still needs.

    ``lost`` is called when the path service knows none of them any more. On the IO loop.
    """

    def __init__(self, connection: ConnectionCore, destination: Destination, lost: Callable[[], None]) -> None:
        self._connection = connection
        self._destination = destination
        self._lost = lost
        self._owner = token(OWNER_BYTES).hex()
        self._held: set[str] = set()
        """Units that the path service was asked for."""
        self._renewing: asyncio.Task[None] | None = None
        self._stopped = False

    async def locate_units(self, asked: Iterable[str]) -> dict[str, str]:
        """Ask the path service where it has units of order: the broker of each."""
        units = list(asked)
        kind, name = self._destination.kind, self._destination.name
        where: dict[str, str] = {}
        for start in range(0, len(units), ASKED_MAX):
            part = units[start : start + ASKED_MAX]
            where.update(await self._connection.directory.routes(kind, name, part, self._owner))
        self._held.update(where)
        if self._renewing is None:
            self._renewing = self._connection.tasks.keep("leases of units of order", self._renew)
        return where

    async def _renew(self) -> None:
        """Keep what the path service has noted for this producer, until :meth:`stop`."""
        lease_s = self._connection.attributes["raybroker.path.lease_ms"] / 1000
        while not self._stopped:
            await asyncio.sleep(lease_s / RENEWALS)
            try:
                known = await self._connection.directory.renew_routes(self._owner)
            except BrokerError:
                continue
            if not known:
                self._held.clear()
                self._lost()

    def stop(self) -> None:
        """Renew them no longer, nor those that are asked for while this producer closes."""
        self._stopped = True
        if self._renewing is not None:
            self._renewing.cancel()

    async def release(self) -> None:
        """Give all of them back; where that fails they end by themselves."""
        if self._held:
            units, self._held = sorted(self._held), set()
            kind, name = self._destination.kind, self._destination.name
            with contextlib.suppress(BrokerError):
                await self._connection.directory.release_routes(kind, name, units, self._owner)


class RoutedProducer(ProducerOwner[ProducerCore]):
    """What a face does with a ProducerCore, over one to each broker that is needed."""

    def __init__(
        self,
        connection: ConnectionCore,
        destination: Destination,
        shared: Shared,
        *,
        encode: Encode,
        transactions: CurrentTransaction[ProducerCore] | None,
    ) -> None:
        self.destination = destination
        self.name = destination.name
        self.shared = shared
        self.closed = False
        self.home: ProducerCore
        self._balance: MemberBalance | None = None
        """The members of a distributed destination."""
        self.one_way: OneWay | None = None
        """As ProducerCore; one for all members."""
        self._connection = connection
        self._encode = encode
        self._transactions = transactions
        self._members: dict[str, ProducerCore] = {}
        """Of the brokers that units go to, by name."""
        self._ways: dict[str, ProducerCore | OrderError] = {}
        """Unit → the member that takes it, or why there is none."""
        self._finding: Future[None] | None = None
        self._alone = asyncio.Lock()
        self._leases = PathLeases(connection, destination, self._forget_ways)
        self._names: Sequence[str] = ()
        self._keys = RoutingKeys()

    async def open(self, *, create: bool) -> None:
        self.home = await open_producer(
            self._connection,
            self.destination,
            self.shared,
            encode=self._encode,
            transactions=self._transactions,
            create=create,
        )
        self.one_way = self.home.one_way
        self._keys = RoutingKeys.of_destination(self.destination, self.home.traits)
        if self.home.traits.get("distributed"):
            if self.one_way is not None:
                self.one_way.window = 1
            self._balance = MemberBalance(self._connection, self.home, self._open)
            await self._balance.open()
        self._connection.brokers.listeners.append(self._brokers_changed)
        self._connection.brokers.follow()

    def refuse_sends(self, error: BrokerError | None) -> None:
        for member in self._all():
            member.refuse_sends(error)

    # ---- which way ---------------------------------------------------------------------------------------------------

    @property
    def _by_service(self) -> bool:
        return self.home.traits.get("unitOfOrderRouting") == BY_SERVICE

    def _brokers_changed(self, view: View) -> None:
        """Forget the ways by hash when there are other brokers: units go other ways then."""
        names = [row.name for row in view.members]
        if self._names and set(names) != set(self._names):
            self._names = names
            if not self._by_service:
                self._ways = {}

    def _find(self, units: Sequence[str]) -> Future[None]:
        """Begin to find the ways of some units; done when they are known, for better or worse."""
        found: Future[None] = Future()
        self._finding = found

        async def work() -> None:
            try:
                async with self._alone:
                    await self._find_ways(list(dict.fromkeys(units)))
            finally:
                self._finding = None
                fulfil(found, None)

        self._connection.io.submit(work())
        return found

    async def _find_ways(self, units: list[str]) -> None:
        """Raises nothing: what fails is the way."""
        if len(self._ways) > UNITS_KNOWN_MAX:
            self._ways = {}
        units = [unit for unit in units if not isinstance(self._ways.get(unit), ProducerCore)]
        try:
            where = await self._connection.tasks.with_retry(self.name, lambda: self._places(units))
        except BrokerError as error:
            lost = OrderError(f"it is not known where units of {self.name} go: {error}")
            self._ways.update(dict.fromkeys(units, lost))
            return
        for broker in dict.fromkeys(where.values()):
            way: ProducerCore | OrderError
            try:
                way = await self._member(broker)
            except BrokerError as error:
                way = self._unreachable(broker, error)
            self._ways.update({unit: way for unit, at in where.items() if at == broker})

    async def _places(self, units: list[str]) -> dict[str, str]:
        """The broker of each unit."""
        hashed = [unit for unit in units if not self._by_service or unit.startswith((WORK_KEY, ID_KEY))]
        if self.home.traits.get(ONLY_HERE):
            return dict.fromkeys(units, self._connection.directory.home)
        if hashed:
            if not self._names:
                self._names = [row.name for row in (await self._connection.brokers.view()).members]
            found = {unit: rendezvous(unit, self._names) for unit in hashed}
            return (
                found if len(found) == len(units) else found | await self._leases.locate_units(set(units) - set(hashed))
            )
        return await self._leases.locate_units(units)

    def _forget_ways(self) -> None:
        self._ways = {}

    async def _member(self, broker: str) -> ProducerCore:
        member = self._members.get(broker)
        if member is None or member.failure is not None:
            member = await self._open(broker, create=True, bound=True)
            member.belong_to(self)
            self._members[broker] = member
        return member

    async def _open(self, broker: str, *, create: bool, bound: bool = False) -> ProducerCore:
        member = await open_producer(
            self._connection,
            self.destination,
            self.shared,
            encode=self._encode,
            transactions=self._transactions,
            create=create,
            broker=broker,
            bound=bound,
        )
        if self.one_way is not None:
            member.one_way = self.one_way
        transactions = self._transactions
        if transactions is not None and transactions.transaction is None:
            member.refuse_sends(transactions.nothing_open())
        return member

    def _unreachable(self, broker: str, error: BrokerError) -> OrderError:
        return OrderError(
            f"broker {broker}, which the message's unit of order or deduplication id belongs to in {self.name}, does"
            f" not take it: {error}"
        )

    def error_of(self, member: ProducerCore, error: BrokerError) -> OrderError:
        """A bound member has failed: no other may take its units."""
        return self._unreachable(member.broker or "", error)

    def member_failed(self, member: ProducerCore) -> None:
        """A member has failed; the next message for it tries again."""
        self._members = {broker: other for broker, other in self._members.items() if other is not member}
        self._ways = {unit: way for unit, way in self._ways.items() if way is not member}
        self._connection.handles.forget_producer(member)

    async def member_of(self, unit: str | None) -> ProducerCore:
        """The member that messages of a unit, or of none, go to; raises OrderError. On the IO loop."""
        unit = unit or self._keys.default
        if unit is None:
            return self._plain(persistent=True)
        if not isinstance(self._ways.get(unit), ProducerCore):
            async with self._alone:
                await self._find_ways([unit])
        way = self._ways[unit]
        if isinstance(way, OrderError):
            del self._ways[unit]
            raise way
        return way

    def _way(self, unit: str, *, block: bool) -> ProducerCore | None:
        """The member for a unit; None when that is not known yet and ``block`` is False. Raises OrderError."""
        way = self._ways.get(unit) or self._way_of_id(unit)
        if isinstance(way, ProducerCore):
            return way
        if isinstance(way, OrderError):
            del self._ways[unit]
            raise way
        if self.closed:
            raise IllegalStateError(f"the producer for {self.name} is closed")
        finding = self._find([unit])
        if not block:
            return None
        finding.result()
        return self._way(unit, block=True)

    def _way_of_id(self, key: str) -> ProducerCore | None:
        """The member for a deduplication id, where that is open: each is another one, and none is remembered."""
        names = self._names
        member = self._members.get(rendezvous(key, names)) if names and key.startswith(ID_KEY) else None
        return member if member is not None and member.failure is None else None

    def member_for(self, header: bytes, *, persistent: bool) -> ProducerCore:
        """The member for a message with these headers; waits until it is known. Raises OrderError."""
        unit = decode_header(header).unit if header else None
        unit = unit or self._keys.key_of(header)
        if unit is None:
            return self._plain(persistent=persistent)
        member = self._way(unit, block=True)
        assert member is not None
        return member

    def _plain(self, *, persistent: bool) -> ProducerCore:
        """The member for a message without a unit."""
        return self.home if self._balance is None else self._balance.next(persistent=persistent)

    # ---- as ProducerCore -------------------------------------------------------------------------------------------

    def put(
        self, body: Any, header: bytes, shared: Shared, waiter: Future[str] | None, *, urgent: bool, block: bool = True
    ) -> str | None:
        unit = shared.unit or self._keys.key_of(header)
        if unit is None:
            member = self.home if self._balance is None else self._balance.next(persistent=shared.persistent)
            return member.put(body, header, shared, waiter, urgent=urgent, block=block)
        way = self._ways.get(unit)
        if not isinstance(way, ProducerCore):
            way = self._way(unit, block=block)
            if way is None:
                return None
        return way.put(body, header, shared, waiter, urgent=urgent, block=block)

    def put_run(self, kind: int, bodies: list[bytes], header: bytes, shared: Shared, told: RunTold) -> bool:
        """Do what :meth:`ProducerCore.put_run` does; False also where each message has a turn of its own, and while
        their way is not known."""
        unit = shared.unit or self._keys.key_of(header)
        if unit is not None:
            way = self._ways.get(unit)
        else:
            way = self.home if self._balance is None else None
        return isinstance(way, ProducerCore) and way.put_run(kind, bodies, header, shared, told)

    def put_many(
        self, bodies: Iterable[Any], shared: Shared, each: Each | None = None
    ) -> Iterator[tuple[int, Future[str]]]:
        """Do what :meth:`ProducerCore.put_many` does; a part of no messages says that the way of the next ones is being
        looked for."""
        parts = self._keys.composes and each is not None and each.has_properties
        if each is None or not (each.has_units or parts):
            yield from self._put_same(shared.unit or self._keys.default, bodies, shared, each)
            return
        source = iter(bodies)
        while chunk := list(islice(source, MANY_MESSAGES)):
            own = each.cut(len(chunk))
            units = [unit or shared.unit for unit in own.units or [None] * len(chunk)]
            if parts:
                units = [unit or work_in(row) for unit, row in zip(units, own.properties or (), strict=True)]
            if self._keys.default is not None:
                units = [unit or self._keys.default for unit in units]
            different = dict.fromkeys(units)
            unknown = [unit for unit in different if unit is not None and unit not in self._ways]
            if unknown:
                finding = self._find(unknown)
                yield 0, _nothing()
                finding.result()
            for member, rows in self._by_member(units, different, persistent=shared.persistent).items():
                part = chunk if len(rows) == len(chunk) else [chunk[row] for row in rows]
                yield from member.put_many(part, shared, each.select(own, rows))

    def _by_member(
        self, units: list[str | None], different: Iterable[str | None], *, persistent: bool
    ) -> dict[ProducerCore, Sequence[int]]:
        """Which of these messages go to which member; waits for what is not known yet. Raises OrderError."""
        members = set(map(self._ways.get, different))  # type: ignore[arg-type]  # None has no way.
        only = members.pop() if len(members) == 1 else None
        if isinstance(only, ProducerCore):
            return {only: range(len(units))}
        found = {unit: None if unit is None else self._way(unit, block=True) for unit in different}
        places: dict[ProducerCore, list[int]] = {}
        for index, unit in enumerate(units):
            places.setdefault(found[unit] or self._plain(persistent=persistent), []).append(index)
        return dict(places)

    def _put_same(
        self, unit: str | None, bodies: Iterable[Any], shared: Shared, each: Each | None
    ) -> Iterator[tuple[int, Future[str]]]:
        if unit is None:
            yield from (self.home if self._balance is None else self._balance).put_many(bodies, shared, each)
            return
        member = self._way(unit, block=False)
        if member is None:
            finding = self._finding
            yield 0, _nothing()
            if finding is not None:
                finding.result()
            member = self._way(unit, block=True)
            assert member is not None
        yield from member.put_many(bodies, shared, each)

    def _all(self) -> list[ProducerCore]:
        plain = [self.home] if self._balance is None else self._balance.members.values()
        return [*plain, *self._members.values()]

    @property
    def transacted(self) -> bool:
        return self.home.transacted

    @property
    def failure(self) -> BrokerError | None:
        return self.home.failure if self._balance is None else self._balance.failure

    @property
    def duplicates(self) -> int:
        return sum(member.duplicates for member in self._all())

    @property
    def refused(self) -> int:
        return sum(member.refused for member in self._all())

    def wait_no_longer(self, error: BrokerError) -> None:
        """Do what :meth:`ProducerCore.wait_no_longer` does."""
        for member in self._all():
            member.wait_no_longer(error)

    def take_back(self, waiter: Future[str]) -> bool:
        """Do what :meth:`ProducerCore.take_back` does."""
        return any(member.take_back(waiter) for member in self._all())

    @property
    def throttled(self) -> bool:
        return any(member.throttled for member in self._all())

    @property
    def waits_for_rate(self) -> bool:
        """The rate of one member holds the next message back, see :attr:`ProducerCore.waits_for_rate`."""
        return self._finding is None and any(member.waits_for_rate for member in self._all())

    @property
    def flow_limit(self) -> float | None:
        """The limit of the member that takes least, see :attr:`ProducerCore.flow_limit`."""
        return least(member.flow_limit for member in self._all())

    def has_room(self) -> bool:
        """Do what :meth:`ProducerCore.has_room` does."""
        return self._finding is None and all(member.has_room() for member in self._all())

    def room_future(self) -> Future[None]:
        """Done when :meth:`put` is worth another try."""
        finding = self._finding
        if finding is not None:
            return finding
        full = next((member for member in self._all() if not member.has_room()), None)
        return (full or self._plain(persistent=True)).room_future()

    @property
    def low(self) -> str:
        """The reason of the first that has one, see :attr:`ProducerCore.low`."""
        return next((member.low for member in self._all() if member.low), "")

    def settled_futures(self) -> list[Future[None]]:
        return [future for member in self._all() for future in member.settled_futures()]

    async def close(self) -> None:
        self.closed = True
        if self._brokers_changed in self._connection.brokers.listeners:
            self._connection.brokers.listeners.remove(self._brokers_changed)
        self._leases.stop()
        if self._balance is not None:
            await self._balance.close()
        faults = await asyncio.gather(*(member.close() for member in self._all()), return_exceptions=True)
        await self._leases.release()
        for fault in faults:
            if fault is not None:
                raise fault


def work_in(properties: Mapping[str, Any]) -> str | None:
    """What a message with these properties is routed by, as part of a unit of work."""
    unit = properties.get(WORK_UNIT)
    return None if unit is None else f"{WORK_KEY}{unit}"


def work_of(header: bytes) -> str | None:
    """Return what :func:`work_in` does, for encoded headers."""
    return work_in(decode_header(header).properties) if _WORK_UNIT in header else None


def id_of(header: bytes) -> str | None:
    """What a message with a deduplication id is routed by."""
    found = decode_header(header).dedup_id
    return None if found is None else f"{ID_KEY}{found}"


def _nothing() -> Future[str]:
    done: Future[str] = Future()
    fulfil(done, "")
    return done
