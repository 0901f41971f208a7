"""The members of one producer of a distributed destination, and whose turn it is.

There is one on every broker that is up.  Members that are lost or paused are passed over while there is another one;
whether a member has consumers is told by its host.  Producers of one connection share a position among the members of
a destination.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from itertools import islice
from typing import Any, Protocol

from raybroker.client.cluster.cluster_view import alive
from raybroker.client.cluster.directory import View
from raybroker.client.connection.connection import ConnectionCore
from raybroker.client.connection.consumer_watch import ConsumerWatch
from raybroker.client.connection.events import ConsumerEvent
from raybroker.client.producer.producer import ProducerCore
from raybroker.client.producer.producer_owner import ProducerOwner
from raybroker.client.producer.producer_state import Shared
from raybroker.client.producer.send_many import MANY_MESSAGES, Each
from raybroker.model.balancing import Candidate, ProducerBalancer
from raybroker.model.errors import BrokerError, ConnectionLostError


class Open(Protocol):
    """Opens a producer at the member of a broker."""

    async def __call__(self, broker: str, *, create: bool) -> ProducerCore: ...


class MemberBalance(ProducerOwner[ProducerCore]):
    """``home``: the member of the home broker, which is there already; ``open_member`` makes the others."""

    def __init__(self, connection: ConnectionCore, home: ProducerCore, open_member: Open) -> None:
        self.name = home.name
        self.failure: BrokerError | None = None
        """Why there is no member any more."""
        self.members: dict[str, ProducerCore] = {}
        """By broker. Replaced as a whole: senders in other threads read it."""
        self._connection = connection
        self._destination = home.destination
        self._open_member = open_member
        self._last = home
        attributes = connection.attributes
        self._balancer = ProducerBalancer(
            connection.kept.choosers.chooser_for(
                home.destination, str(home.traits["loadBalancingPolicy"]), "producers"
            ),
            load_balancing=attributes["LoadBalancingEnabled"],
            affinity=attributes["ServerAffinityEnabled"],
        )
        self._there: list[str] = []
        """Brokers that are up, in the order in which all clients see them."""
        self._consuming: dict[str, bool] = {}
        self._watches: dict[str, ConsumerWatch] = {}
        self._missing = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None
        self._closed = False
        place = home.place
        home.broker = place[0].place.broker if place is not None else connection.directory.home
        self._add(home.broker, home)

    async def open(self) -> None:
        """Open the other members; one that cannot be opened now is tried again while its broker is there."""
        brokers = self._connection.brokers
        brokers.listeners.append(self._brokers_changed)
        self._there = sorted(alive(await brokers.view()))
        work = (self._join(broker, create=True) for broker in self._there if broker not in self.members)
        await asyncio.gather(self._watch(*self.members), *work, return_exceptions=True)
        self._keeping = self._connection.tasks.keep("members of a producer", self._keep)
        self._brokers_changed(await brokers.view())

    # ---- any thread ------------------------------------------------------------------------------------------------

    def next(self, *, persistent: bool) -> ProducerCore:
        """The member for the next message; when none can be reached, the one that took the last message.

        Raises why the members were lost when none is left.
        """
        broker = self._balancer.choose(persistent=persistent)
        member = self.members.get(broker) if broker is not None else None
        if member is None:
            if self.failure is not None:
                raise self.failure
            member = self._last if self._last.failure is None else next(iter(self.members.values()), self._last)
        self._last = member
        return member

    def put_many(
        self, bodies: Iterable[Any], shared: Shared, each: Each | None = None
    ) -> Iterator[tuple[int, Future[str]]]:
        """Do what :meth:`ProducerCore.put_many` does, a turn for each message."""
        source = iter(bodies)
        while chunk := list(islice(source, MANY_MESSAGES)):
            own = None if each is None else each.cut(len(chunk))
            places: dict[ProducerCore, list[int]] = {}
            for index in range(len(chunk)):
                places.setdefault(self.next(persistent=shared.persistent), []).append(index)
            for member, rows in places.items():
                theirs = None if each is None or own is None else each.select(own, rows)
                yield from member.put_many([chunk[row] for row in rows], shared, theirs)

    # ---- the IO loop -----------------------------------------------------------------------------------------------

    def _add(self, broker: str, member: ProducerCore) -> None:
        member.belong_to(self)
        self.members = {**self.members, broker: member}
        self.failure = None

    async def _join(self, broker: str, *, create: bool) -> None:
        member = await self._open_member(broker, create=create)
        if self._closed:
            await member.close()
            return
        self._add(broker, member)
        self.member_turned()
        await self._watch(broker)

    async def _watch(self, *brokers: str) -> None:
        for broker in brokers:
            if broker not in self._watches:
                watch = self._watches[broker] = ConsumerWatch(
                    self._destination,
                    partial(self._consumers_changed, broker),
                    self._connection.io.post,
                    self._connection.tasks,
                    self._connection.attachments,
                    broker,
                )
                with contextlib.suppress(BrokerError):
                    await watch.open()

    def _consumers_changed(self, broker: str, event: ConsumerEvent) -> None:
        self._consuming[broker] = event.ready
        self.member_turned()

    def member_turned(self) -> None:
        """Look who can be chosen now."""
        home = self._connection.directory.home
        self._balancer.update(
            [
                Candidate(broker, local=broker == home, consumers=int(self._consuming.get(broker, False)))
                for broker in self._there
                if (member := self.members.get(broker)) is not None and _takes(member)
            ]
        )

    def _brokers_changed(self, view: View) -> None:
        self._there = sorted(alive(view))
        self.member_turned()
        if any(broker not in self.members for broker in self._there):
            self._missing.set()

    def member_failed(self, member: ProducerCore) -> None:
        """A member has failed. It is opened again while its broker is there, unless its destination is gone."""
        error = member.failure or ConnectionLostError(f"{self.name} cannot be reached")
        self.members = {broker: other for broker, other in self.members.items() if other is not member}
        self._connection.handles.forget_producer(member)
        self.member_turned()
        if isinstance(error, ConnectionLostError):
            self._missing.set()
        if not self.members:
            self.failure = error
            if not self._closed:
                self._connection.events.failed(error)

    async def _keep(self) -> None:
        """Open what is missing."""
        while True:
            await self._missing.wait()
            self._missing.clear()
            for broker in [broker for broker in self._there if broker not in self.members]:
                try:
                    await self._join(broker, create=False)
                except BrokerError as error:
                    if isinstance(error, ConnectionLostError) and broker in self._there:
                        self._missing.set()
            if self._missing.is_set():
                await self._connection.tasks.pause()

    async def close(self) -> None:
        """The members are closed by whoever has them."""
        self._closed = True
        if self._brokers_changed in self._connection.brokers.listeners:
            self._connection.brokers.listeners.remove(self._brokers_changed)
        if self._keeping is not None:
            self._keeping.cancel()
        await asyncio.gather(*(watch.close() for watch in self._watches.values()))


def _takes(member: ProducerCore) -> bool:
    """Whether messages would leave now, as far as is known."""
    return member.attached and not member.stopped
