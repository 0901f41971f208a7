"""A consumer of several places at once: the members of a destination on all brokers, or all topics that match.

    a destination            one member on every broker that is there
    one that is distributed  one member, chosen when it is opened
    a pattern of topics      of every broker those that match, followed as they come and go

All members share one limit (``credit_pool.py``), one lock and those who wait.  The first member is that of the broker
that keeps the order of consumers, the coordinator: a consumer that is a backup there is nowhere else until it is
promoted.  A member that is lost comes back by itself while its broker is there; what it had sent is void,
and the others go on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from raybroker.client.cluster.addresses import reconnect_time
from raybroker.client.cluster.broker_members import BrokerMembers, Key
from raybroker.client.cluster.cluster_view import alive, coordinator
from raybroker.client.cluster.directory import LED_BY, View
from raybroker.client.connection.connection import ConnectionCore
from raybroker.client.consumer.consumer import IDENTITY_BYTES, ConsumerCore, MemberOwner
from raybroker.client.consumer.consumer_options import ConsumerOptions
from raybroker.client.consumer.message import Message
from raybroker.client.consumer.prefetch.prefetch_buffers import PrefetchBuffers
from raybroker.client.destinations import Destination
from raybroker.client.io.tasks import StartProgress
from raybroker.client.producer.members.unit_routing import ONLY_HERE
from raybroker.client.session.session import SessionCore
from raybroker.model.balancing import Candidate, place_consumer
from raybroker.model.errors import BrokerError, ConnectionLostError, IllegalStateError, LocalDestinationError
from raybroker.system.entropy import token

ELSEWHERE_S: Final = 1.0
"""How long the opening waits for the members on other brokers than the first: one that cannot be reached yet joins
later, and what the others have is not kept waiting for it."""


def is_pinned(destination: Destination, traits: Mapping[str, Any], options: ConsumerOptions) -> bool:
    """Whether a consumer has one member only, chosen when it is opened. It stays there while the member's broker is
    there: members that come later, or that have no consumers, do not draw it away.

    Not on a topic whose messages are for the subscribers of all members, and not a durable subscription that
    one consumer may have at a time: what others published elsewhere is in it too.
    """
    if not traits.get("distributed"):
        return False
    if destination.kind == "queue":
        return True
    wanted = options.subscription
    exclusive = wanted is not None and wanted["durable"] and not wanted["shared"]
    return traits.get("forwardingPolicy") == "Partitioned" and not exclusive


async def place(connection: ConnectionCore, destination: Destination, policy: str) -> str:
    """The broker whose member a new consumer gets; raises ConnectionLostError when no broker can be asked."""
    directory = connection.directory
    counts = await connection.tasks.with_retry(
        destination.name, lambda: directory.members(destination.kind, destination.name)
    )
    if not counts:
        raise ConnectionLostError(f"no broker has a member of {destination.name} now")
    candidates = [
        Candidate(broker, local=broker == directory.home, consumers=counts[broker]) for broker in sorted(counts)
    ]
    affinity = connection.attributes["ServerAffinityEnabled"]
    return place_consumer(
        candidates, connection.kept.choosers.chooser_for(destination, policy, "consumers"), affinity=affinity
    )


class MultiBrokerConsumer(PrefetchBuffers, MemberOwner):
    """What a face does with a ConsumerCore, over all members."""

    reports_failure = True
    session: SessionCore
    _connection: ConnectionCore

    def __init__(
        self, session: SessionCore, destination: Destination, options: ConsumerOptions, *, create: bool = True
    ) -> None:
        """``create``: a missing destination is made."""
        super().__init__(session, options)
        self.destination = destination
        self.name = destination.name
        self.identity = token(IDENTITY_BYTES).hex()
        self.members: dict[Key, ConsumerCore] = {}
        self._options = options
        self._create = create
        self._joining: set[ConsumerCore] = set()
        self._brokers: dict[str, BrokerMembers] = {}
        """The brokers that it has members on, or waits for."""
        self._follows = False
        """It is open, and follows the brokers."""
        self._anywhere = False
        """Its destination is in one place of the cluster, which the home broker knows, whichever that is."""
        self._wide = False
        """It has members on all brokers, not on the coordinator alone."""
        self._only = self._policy = ""
        """The one broker that it has a member on; loadBalancingPolicy where it is pinned to it."""
        self._listener: Callable[[Message], object] | None = None
        self._deadline: asyncio.Task[None] | None = None

    # ---- opening, and following the brokers --------------------------------------------------------------------------

    async def open(self) -> None:
        """Raises what the coordinator answers, or the last retryable error."""
        brokers = self._connection.brokers
        self._connection.kept.at_close.append(self._end_here)
        self._connection.channels.ended.listeners.append(self._connection_ended)
        try:
            if brokers.alone:
                await self._join_members("")
            else:
                await self._open_in_cluster()
        except BaseException:
            self._failure = self._failure or IllegalStateError(f"the consumer of {self.name} was not opened")
            await self.close()
            raise

    async def _open_in_cluster(self) -> None:
        brokers = self._connection.brokers
        await self._choose()
        if self._anywhere:
            await self._join_members("")
            return
        brokers.listeners.append(self._brokers_changed)
        await self._open_first()
        if self._widens():
            await self._open_elsewhere()
        self._brokers_changed(await brokers.view())

    async def _choose(self) -> None:
        """Find out whether it is to have one member only, and where."""
        if self.destination.is_pattern:
            return
        kind, name, directory = self.destination.kind, self.destination.name, self._connection.directory
        found = await self._connection.tasks.with_retry(name, lambda: directory.locate(kind, name, self._create))
        self._anywhere = LED_BY in found.traits
        if found.traits.get(ONLY_HERE):
            self._only = directory.home
        elif is_pinned(self.destination, found.traits, self._options):
            self._policy = str(found.traits["loadBalancingPolicy"])

    async def _join_members(self, broker: str) -> None:
        members = self._members_on(broker)
        await members.join_present()
        members.follow()

    async def _open_first(self) -> None:
        """Open the member that decides whether the consumer is active; elsewhere when the coordinator goes meanwhile,
        or has the destination for its own clients alone."""
        closed: set[str] = set()
        while True:
            view = await self._connection.brokers.view()
            if self._policy and self._only not in alive(view):
                self._only = await place(self._connection, self.destination, self._policy)
            first = self._only or next(
                (name for name in (coordinator(view), *alive(view)) if name not in closed), view.home
            )
            try:
                await self._join_members(first)
            except LocalDestinationError:
                if first in closed:
                    raise
                closed.add(first)
                self._brokers.pop(first).stop()
            except BrokerError:
                if first in self._brokers:
                    raise
            else:
                self._follows = True
                return

    async def _open_elsewhere(self) -> None:
        """Members on the other brokers; one that cannot be opened now is tried again while its broker is there."""
        view = await self._connection.brokers.view()
        others = [self._members_on(name) for name in alive(view) if name not in self._brokers]
        spawn = self._connection.tasks.spawn
        joining = [spawn(self._begin_and_follow(members)) for members in others]
        if joining:
            await asyncio.wait(joining, timeout=ELSEWHERE_S)

    async def _begin_and_follow(self, members: BrokerMembers) -> None:
        with contextlib.suppress(BrokerError):
            await members.join_present()
        members.follow()

    def _members_on(self, broker: str) -> BrokerMembers:
        found = self._brokers.get(broker)
        if found is None:
            found = self._brokers[broker] = BrokerMembers(
                self._connection.directory,
                self._connection.tasks,
                self.destination,
                broker,
                self.members,
                self._join,
                create=self._create,
            )
        return found

    def _brokers_changed(self, view: View) -> None:
        there = alive(view)
        for broker in [broker for broker in self._brokers if broker not in there]:
            self._brokers.pop(broker).stop()
            for member in [m for m in (*self.members.values(), *self._joining) if m.broker == broker]:
                if not member.attached:
                    self._drop(member)
        if self._follows and not self.closed and self._policy and self._only not in there:
            self._connection.tasks.spawn(self._move())
        elif self._follows and not self.closed and not self._only:
            for broker in there if self._wide else [coordinator(view)]:
                if broker not in self._brokers:
                    self._members_on(broker).follow()

    def _widens(self) -> bool:
        """The coordinator has answered, or promoted the consumer: whether it goes on to the other brokers, as active
        ones do whose destination is there."""
        if self._wide or self._only or not (self._follows and self.active):
            return False
        self._wide = True
        return True

    def member_promoted(self) -> None:
        if self._widens():
            self._connection.tasks.spawn(self._open_elsewhere())

    def member_moved(self, member: ConsumerCore) -> bool:
        """A destination that gets copies is in one place from then on: one member is there, instead of one for each
        broker."""
        if LED_BY not in member.traits or member.broker is None:
            return False
        if not self._anywhere:
            self._anywhere = True
            self._connection.tasks.spawn(self._gather())
        return True

    async def _gather(self) -> None:
        listeners = self._connection.brokers.listeners
        if self._brokers_changed in listeners:
            listeners.remove(self._brokers_changed)
        for members in self._brokers.values():
            members.stop()
        self._brokers.clear()
        self._only = self._policy = ""
        for member in (*self.members.values(), *self._joining):
            self._drop(member)
        if not self.closed:
            await self._begin_and_follow(self._members_on(""))

    async def _move(self) -> None:
        """The broker of the member that it is pinned to is gone: choose another one, as if it were opened now."""
        self._policy, policy = "", self._policy
        with contextlib.suppress(BrokerError):
            self._only = await place(self._connection, self.destination, policy)
            if not self.closed:
                self._members_on(self._only).follow()
        self._policy = policy

    # ---- members ---------------------------------------------------------------------------------------------------

    async def _join(self, broker: str, destination: Destination, create: bool) -> None:
        key = (broker, destination.name)
        if key in self.members or any((m.broker or "", m.name) == key for m in self._joining):
            raise ConnectionLostError(f"{destination.name} is being joined at broker {broker}")  # From before it left.
        member = self._member(destination, broker or None)
        member.listener = self._listener
        self._joining.add(member)
        try:
            await member.open(create=create)
        except BaseException:
            self._drop(member)
            raise
        finally:
            self._joining.discard(member)
        if member.closed:
            await member.close()
            raise IllegalStateError(f"the consumer of {self.name} is closed")
        self.members[key] = member
        self._members_changed()
        self.member_promoted()

    def _member(self, destination: Destination, broker: str | None) -> ConsumerCore:
        """A new member, which counts from now on."""
        member = self._kind()(
            self.session,
            destination,
            self._options,
            broker=broker,
            identity=self.identity,
            owner=self,
            notifier=self._notifier,
            credit_pool=self._credit_pool,
        )
        with self._notifier.lock:
            self._count_member(member)
        return member

    def _kind(self) -> type[ConsumerCore]:
        """Return what its members are."""
        return ConsumerCore

    def _count_member(self, member: ConsumerCore) -> None:
        """Take note of one more; the caller has the lock."""
        self._holders[member.share] = member

    def _forget_member(self, member: ConsumerCore) -> None:
        with self._notifier.lock:
            self._credit_pool.leave(member.share)
            self._holders.pop(member.share, None)

    def _members_changed(self) -> None:
        """Take notice of other members; the hot path of one member alone is the member's own."""
        only = next(iter(self.members.values())) if len(self.members) == 1 else None
        self.take_one = self._take_one_of_all if only is None else only.take_one
        if self.members and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def member_lost(self, member: ConsumerCore) -> bool:
        """A member has lost its channel: whether its broker is gone as well."""
        if member.broker is None or member.broker in self._brokers:
            return False
        self._drop(member)
        return True

    def _drop(self, member: ConsumerCore) -> None:
        """Go on without a member."""
        member.abandon()
        self._forget_member(member)
        self.session.forget_consumer(member)
        key = (member.broker or "", member.name)
        if self.members.get(key) is member:
            del self.members[key]
            self._members_changed()
        if not self.members and not self.destination.is_pattern and self._follows and not self.closed:
            self._wait_for_members()

    def member_failed(self, member: ConsumerCore) -> None:
        """A member has failed. The last one takes the consumer with it, unless there is hope of another."""
        error = member.failure or ConnectionLostError(f"{self.name} cannot be reached")
        self._drop(member)
        siblings = self._brokers.get(member.broker or "")
        if self.closed or self._failure is not None:
            return
        if siblings is not None and self._connection.attachments.reconnects:
            siblings.member_left()
        if self.destination.is_pattern:
            return
        if not self.members and (len(self._brokers) < 2 or not isinstance(error, ConnectionLostError)):
            self._connection.attachments.end_handle(self, error)

    def _wait_for_members(self) -> None:
        """There is no member left: one has to come within the reconnect time."""
        timeout_s = reconnect_time(self._connection.attributes).timeout_s
        if self._deadline is None and timeout_s is not None:
            self._deadline = self._connection.tasks.spawn(self._give_up_in(timeout_s))

    async def _give_up_in(self, timeout_s: float) -> None:
        """End it, unless this is cancelled; the time begins anew while the home broker gets on with its start."""
        loop, progress = asyncio.get_running_loop(), StartProgress()
        until_s = loop.time() + timeout_s
        while loop.time() < until_s:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(until_s):
                    if await self._home_gets_on(progress):
                        until_s = loop.time() + timeout_s
                    else:
                        await self._connection.tasks.pause()
        self._deadline = None
        error = ConnectionLostError(
            f"no broker of {self.name} can be reached; gave up after {timeout_s:g} s (raybroker.reconnect.timeout_ms)"
        )
        self._connection.attachments.end_handle(self, error)

    async def _home_gets_on(self, progress: StartProgress) -> bool:
        try:
            await self._connection.directory.members(self.destination.kind, self.name)
        except BrokerError as error:
            return progress.made(error)
        return False

    def _connection_ended(self, error: BrokerError) -> None:
        if not self.closed and self._failure is None:
            self._connection.attachments.end_handle(self, error)

    def fail(self, error: BrokerError) -> None:
        """It is over: whoever waits is told."""
        self._stop()
        with self._notifier.lock:
            self._failure = error
            self._notifier.notify(everybody=True)

    # ---- as ConsumerCore -------------------------------------------------------------------------------------------

    @property
    def listener(self) -> Callable[[Message], object] | None:
        return self._listener

    @listener.setter
    def listener(self, listener: Callable[[Message], object] | None) -> None:
        self._listener = listener
        for member in (*self.members.values(), *self._joining):
            member.listener = listener

    @property
    def may_get(self) -> bool:
        """There was something for it when its members were opened, or that is not known of all of them."""
        return bool(self._joining) or not self.members or any(member.may_get for member in list(self.members.values()))

    @property
    def active(self) -> bool:
        return self.destination.is_pattern or self._wide or any(m.active for m in list(self.members.values()))

    def shut(self) -> None:
        """No more messages for the application; whoever waits is woken."""
        for member in (*self.members.values(), *self._joining):
            member.shut()
        with self._notifier.lock:
            self._credit_pool.end_grants()
            self.closed = True
            self._failure = self._failure or IllegalStateError(f"the consumer of {self.name} is closed")
            self._notifier.notify(everybody=True)

    def let_go(self) -> None:
        """Nobody can receive from it any more: its members go, each once what was received from it is settled."""
        if self.closed:
            return
        self._stop()
        if self._end_here in self._connection.kept.at_close:
            self._connection.kept.at_close.remove(self._end_here)
        with self._notifier.lock:
            self._credit_pool.end_grants()
            self.closed = True
        for member in list(self._joining):
            member.shut()
        for member in list(self.members.values()):
            member.let_go()

    def has_ended(self) -> bool:
        """True once the application has closed it, or has lost it."""
        return self.closed

    def _stop(self) -> None:
        for members in self._brokers.values():
            members.stop()
        self._brokers.clear()
        if self._deadline is not None:
            self._deadline.cancel()
        if self._connection_ended in self._connection.channels.ended.listeners:
            self._connection.channels.ended.listeners.remove(self._connection_ended)
        if self._brokers_changed in self._connection.brokers.listeners:
            self._connection.brokers.listeners.remove(self._brokers_changed)

    async def close(self) -> None:
        """Detach everywhere, at the coordinator last: whoever gets its place there finds the others free."""
        await self._end_here()
        if self._end_here in self._connection.kept.at_close:
            self._connection.kept.at_close.remove(self._end_here)
        members = list(self.members.values())
        self.members.clear()
        faults = await asyncio.gather(*(member.close() for member in members[1:]), return_exceptions=True)
        if members:
            await members[0].close()
        for fault in faults:
            if fault is not None:
                raise fault

    async def _end_here(self) -> None:
        self._stop()
        self.shut()

    def info(self) -> dict[str, Any]:
        """Return a row for people who look: as ConsumerCore's, over all members, and where they are."""
        rows = [member.info() for member in list(self.members.values())]
        found = {
            "destination": self.name,
            "limit": max((row["limit"] for row in rows), default=self._options.limit),
            "buffered": sum(row["buffered"] for row in rows),
            "consumed": sum(row["consumed"] for row in rows),
        }
        if self.destination.is_pattern:
            found["topics"] = sorted({name for _, name in self.members})
        if not self._connection.brokers.alone:
            found["brokers"] = sorted({broker for broker, _ in self.members})
        return found


AnyConsumer = ConsumerCore | MultiBrokerConsumer
"""What is behind the handle of a consumer."""
