"""What goes wrong, and what administrators do meanwhile; a plan says how often."""

from __future__ import annotations

import contextlib
from random import Random
from typing import TYPE_CHECKING

from raybroker.core import command as cmd
from raybroker.core.topic import Topic
from raybroker.engine.destinations.browsing import look
from raybroker.engine.host import Host
from raybroker.model.errors import IllegalStateError, StoreDamagedError, StoreError
from tests.simulation.plan import DMQ, MS, DestinationPlan
from tests.simulation.twin import Twin

if TYPE_CHECKING:
    from tests.simulation.consumers import SimConsumer
    from tests.simulation.surroundings import Surroundings


class Faults:
    """``counts``: fault → how often it happened."""

    def __init__(self, world: Surroundings) -> None:
        self.world = world
        self.counts: dict[str, int] = {}
        self._retries = Random(world.plan.duration)
        self._versions = Random(world.plan.duration)
        self._drains = Random(world.plan.duration + 1)
        """Of their own, so that other faults do not depend on them."""

    def start(self) -> None:
        for name in self.world.plan.rates:
            self._schedule(name)
        if any(destination.name == DMQ for destination in self.world.plan.destinations):
            self._retry_later()
        if any("versionKey" in destination.attributes for destination in self.world.plan.destinations):
            self._publish_later()
        self._drain_later()

    def _drain_later(self) -> None:
        self.world.loop.after(self._drains.randrange(400 * MS) + 20 * MS, self._drain)

    def _drain(self) -> None:
        """The node of a consumer is drained, or is not any more."""
        if self.world.healing:
            return
        self._drain_later()
        host = self.world.running
        consumers = [one for one in host.attachments.by_number.values() if one.state()] if host is not None else []
        if host is not None and consumers:
            chosen = self._drains.choice(consumers)
            leaving = self._drains.random() < 0.5
            self.counts["drain"] = self.counts.get("drain", 0) + leaving
            host.executor.perform(chosen.destination, cmd.LeaveNode(chosen.number, leaving))

    def end_drains(self) -> None:
        """Nobody leaves any more."""
        host = self.world.running
        for one in list(host.attachments.by_number.values()) if host is not None else ():
            if host is not None and one.state():
                host.executor.perform(one.destination, cmd.LeaveNode(one.number, leaving=False))

    def _schedule(self, name: str) -> None:
        mean = self.world.plan.rates[name]
        if mean:
            self.world.loop.after(int(self.world.rng.expovariate(1 / mean)) + 1, self._happen, name)

    def _happen(self, name: str) -> None:
        world = self.world
        if world.healing:
            return
        self._schedule(name)
        self.counts[name] = self.counts.get(name, 0) + 1
        rng = world.rng
        machine = rng.choice(world.machines)
        destination = rng.choice(world.plan.destinations)
        host = world.running
        if name == "crash":
            world.crash()
        elif name == "disk_error":
            world.store.dead = True
        elif name == "connection_loss":
            if machine.connection is not None:
                machine.connection.lose()
        elif name == "machine_crash":
            machine.crash()
        elif name == "clock_jump":
            world.clock.offset_ms += rng.randrange(-world.plan.jump_ms, world.plan.jump_ms)
        elif name == "checkpoint":
            world.store.want_checkpoint = True
        elif name == "disk_full":
            world.full_until = world.loop.now + rng.randrange(80 * MS)
        elif name == "damage":
            self._damage()
        elif name == "pause":
            machine.pause()
        elif host is not None and destination.key in host.registry.destinations:
            self._administer(name, destination, host)
        if name in ("consumer_close", "consumer_release", "slow", "unsubscribe"):
            self._trouble(name, [c for m in world.machines for c in m.consumers])

    def _retry_later(self) -> None:
        self.world.loop.after(self._retries.randrange(900 * MS) + 50 * MS, self._retry)

    def _publish_later(self) -> None:
        self.world.loop.after(self._versions.randrange(250 * MS) + 50 * MS, self._publish)

    def _publish(self) -> None:
        """A trainer publishes its version, mostly a later one."""
        world, host, number = self.world, self.world.running, self._versions.randrange(12)
        if world.healing:
            return
        self._publish_later()
        for plan in world.plan.destinations:
            if host is None or "versionKey" not in plan.attributes or plan.key not in host.registry.destinations:
                continue
            version = host.registry.destinations[plan.key].queues[0].plain.versions.published or 0  # type: ignore[attr-defined]
            later = min(version + number % 3, 11) if number < 9 else number - 6
            try:
                host.administration.publish_version(plan.name, later, _nothing, back=True)
            except StoreError:
                return  # The disk is broken.
            self.counts["publish"] = self.counts.get("publish", 0) + 1

    def _retry(self) -> None:
        """An administrator sends some of the dead messages back to where they died."""
        world, host = self.world, self.world.running
        if world.healing:
            return
        self._retry_later()
        destination = host.registry.destinations.get(("queue", DMQ)) if host is not None else None
        if host is None or destination is None or destination.number in host.registry.halted:
            return
        for seen in look(destination, ("waiting", "delayed", "hidden")):
            mask = seen.mask & self._retries.getrandbits(seen.mask.bit_length())
            held = destination.block_index.held.get(seen.ordinal)
            if not mask or held is None or host is not world.running or destination.number in host.registry.halted:
                continue
            try:
                block = host.cache.get(destination.number, seen.ordinal)
                before = world.watch.seen["sent back"]
                count, why = host.moves.revive(destination, seen.ordinal, mask, block)
                assert count == world.watch.seen["sent back"] - before, f"{count} are said to be sent back"
                assert not why or count < mask.bit_count(), f"all are sent back, and not because {why}"
                self.counts["retry"] = self.counts.get("retry", 0) + count
            except StoreDamagedError as error:
                host.blocks.halt(destination, error)
            except StoreError:
                return  # The disk is broken, and the host stops when it writes the next time.

    def _damage(self) -> None:
        """A block rots; once it is read its destination halts, and some time later somebody purges it."""
        world = self.world
        blocks = sorted(world.disk.blocks)
        if blocks:
            world.disk.damaged.add(world.rng.choice(blocks))
        world.loop.after(world.rng.randrange(300 * MS), self.purge_halted)

    def purge_halted(self) -> None:
        host = self.world.running
        if host is not None:
            registry = host.registry
            for kind, name in [
                key for key, destination in registry.destinations.items() if destination.number in registry.halted
            ]:
                host.administration.purge(name, _nothing, kind)

    def make_way(self) -> None:
        """Whatever keeps messages from getting to somebody ends."""
        self.purge_halted()
        host = self.world.running
        for kind, name in list(host.registry.destinations) if host is not None else ():
            assert host is not None
            destination = host.registry.destinations[kind, name]
            if destination.paused:
                host.administration.resume(name, "all", kind)
                host.administration.resume(name, "insertion", kind)
            if name == DMQ and destination.attributes.maxNumMsgs >= 0:
                host.administration.update(name, {"maxNumMsgs": -1}, _nothing, kind)
            if kind == "queue" and destination.attributes.maxNumActiveConsumers >= 0:
                host.administration.update(name, {"maxNumActiveConsumers": -1}, _nothing, kind)

    def _administer(self, name: str, destination: DestinationPlan, host: Host) -> None:
        rng, catalogue = self.world.rng, host.administration
        if name == "purge":
            catalogue.purge(destination.name, _nothing, destination.kind)
        elif name == "destroy" and destination.name != DMQ:
            self.world.destroy(destination.kind, destination.name)
        elif name == "update":
            changes: dict[str, object] = {"maxNumMsgs": rng.choice((-1, 10, 40))}
            if destination.kind == "queue":
                changes["maxNumActiveConsumers"] = rng.choice((-1, 1, 2, 3))
            catalogue.update(destination.name, changes, _nothing, destination.kind)
        elif name == "pause_home" and destination.name != DMQ:
            which = rng.choice(("producers", "consumers", "all", "insertion"))
            until_ms = self.world.clock.now_ms() + rng.choice((20, 100)) if rng.random() < 0.5 else 0
            catalogue.pause(destination.name, which, until_ms, destination.kind)
            self.world.loop.after(rng.randrange(200 * MS), self.resume, destination)
        elif name == "purge_subscription" and destination.kind == "topic":
            topic = host.registry.destinations[destination.key]
            assert isinstance(topic, Topic)
            named = [one for queue in topic.queues.values() if (one := queue.subscription) is not None and one.durable]
            if named:
                one = rng.choice(named)
                host.subscriptions.purge(destination.name, one.client_id, one.name, _nothing)

    def resume(self, destination: DestinationPlan) -> None:
        host = self.world.running
        if host is not None and destination.key in host.registry.destinations:
            host.administration.resume(destination.name, "all", destination.kind)
            host.administration.resume(destination.name, "insertion", destination.kind)

    def _trouble(self, name: str, consumers: list[SimConsumer]) -> None:
        if not consumers:
            return
        consumer = self.world.rng.choice(consumers)
        if name == "consumer_close":
            consumer.close()
        elif name == "consumer_release":
            consumer.release()
        elif name == "unsubscribe":
            consumer.unsubscribe()
        else:
            consumer.slow_until = self.world.loop.now + 300 * MS

    # ---- destinations that go --------------------------------------------------------------------------------------

    def destroy(self, host: Host, kind: str, name: str) -> bool:
        """False when a prepared transaction needs it."""
        world = self.world
        destination = host.registry.destinations[kind, name]
        twin = world.watch.twins[destination.number]
        with contextlib.suppress(IllegalStateError):
            host.transactions.without(destination)
            self.note_destroyed(twin)
            delta = twin.delta.__class__(destination.number)
            delta.add("gone")
            world.committer.leaving[destination.number] = delta
            host.removal.destroy(name, _nothing, kind)
            return True
        return False

    def note_destroyed(self, twin: Twin) -> None:
        """A destination forgets what it took: a retry of that would be a new message."""
        world = self.world
        if twin.destination.kind == "queue":
            world.note_destroyed({m.value for m in twin.messages.values()} | twin.taken)
        for queue in twin.queues.values() if twin.destination.kind == "topic" else ():
            where = world.watch.where_of(twin.destination, queue.number)
            for item in queue.items.values():
                world.log(0, "ok", "discard", item.message.value, 1, where=where)


def _nothing() -> None:
    """Nobody waits for it."""
