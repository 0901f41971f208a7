"""One broker's machine: its disk, its real destinations, and the instances of the broker that run on it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from raybroker.cluster import events as ev
from raybroker.cluster.change_record import Change, RecordState, differences
from raybroker.cluster.member import Member, MemberSettings
from raybroker.model.errors import StoreError
from raybroker.store.record import RecordFile
from tests.simulation_control.disk import SimDisk, SimIO

if TYPE_CHECKING:
    from tests.simulation_control.surroundings import Surroundings


HOSTS: Final = 3
"""Of a broker; a destination is on one of them."""


class Node:
    """``actual``: the destinations that there really are, which survive; ``process``: the present instance.

    ``held``: the record that was the last to be carried out as a whole.
    """

    def __init__(self, world: Surroundings, name: str) -> None:
        self.world = world
        self.name = name
        self.disk = SimDisk()
        self.actual = RecordState()
        self.held = ""
        self.process: Process | None = None
        self.old: Process | None = None
        """An earlier instance that still runs, cut off."""

    @property
    def running(self) -> bool:
        return self.process is not None and not self.process.gone

    def start(self) -> None:
        """A new instance; the disk is its own from now on."""
        assert not self.running
        process = Process(self.world, self)
        self.process = process
        process.begin()

    def crash(self, *, power: bool = True) -> None:
        """The instance dies; with ``power``, so does what it had not synced."""
        if self.process is not None:
            self.process.die()
        if power:
            self.disk.crash(self.world.rng)
        else:
            for file in self.disk.names.values():
                file.locked_by = None

    def frames(self) -> list[bytes]:
        """What the record file of a broker that does not run has."""
        assert not self.running
        file = RecordFile(Path("d/record"), SimIO(self.disk))
        frames = file.open()
        file.close()
        return frames

    def replace(self, frames: tuple[bytes, ...]) -> None:
        file = RecordFile(Path("d/record"), SimIO(self.disk))
        file.open()
        file.replace(frames)
        file.close()


class Process:
    """The shell around one machine, as ``services.clustering`` is one."""

    def __init__(self, world: Surroundings, node: Node) -> None:
        self.world = world
        self.node = node
        self.name = node.name
        self.gone = False
        self.opened = False
        self.cut_off = False
        self.io = SimIO(node.disk)
        self.file = RecordFile(Path("d/record"), self.io)
        self._writes: list[ev.Persist] = []
        self._writing = False
        self._applying: tuple[ev.Apply, str] | None = None
        self._away = -1
        """The host that does not start; -1: all are there."""
        self._wake = -1
        frames = self.file.open()
        world.watch.written(node, frames)
        settings = MemberSettings(
            cluster=world.plan.cluster,
            brokers=world.configured(node.name),
            master=world.master,
            table="records" if world.plan.with_table else "",
            dynamic_change_master=True,
            properties={"imq.autocreate.queue": True},
        )
        self.member = Member(self.name, settings, frames, now_ms=world.wall_ms(node.name), new_id=world.new_id())

    def begin(self) -> None:
        self.world.watch.began(self)
        self.feed(ev.Started())

    def feed(self, event: ev.Event) -> None:
        """Tell the machine, and do what it wants."""
        if self.gone:
            return
        before = self.world.watch.before(self, event)
        actions = self.member.step(event, self.world.wall_ms(self.name))
        self.world.watch.after(self, event, actions, before)
        for action in actions:
            self._do(action)
        self._set_timer()

    def _do(self, action: ev.Action) -> None:
        world, rng = self.world, self.world.rng
        match action:
            case ev.SendEnvelope(to, envelope):
                world.network.send(self, to, envelope)
            case ev.Persist():
                self._writes.append(action)
                self._write_soon()
                if not action.replace and action.frames[0].startswith(b'["claim"'):
                    world.faults.deciding(self)
            case ev.Apply():
                self._applying = action, self.member.durable.record
                world.loop.after(rng.randrange(1, world.plan.apply_us), self._apply, action, self._applying[1])
            case ev.ReadTable() | ev.AppendTable() | ev.ShortenTable():
                assert world.database is not None
                world.database.call(self, action)
            case ev.ExchangeConsumers(peer):
                if rng.random() >= world.plan.exchange_lost:
                    world.loop.after(rng.randrange(1, world.plan.apply_us), self.feed, ev.Exchanged(peer))
            case ev.OpenForClients():
                self.opened = True
            case ev.Answer():
                world.clients.answered(self, action)
            case ev.Halt():
                self.die()

    # ---- the disk

    def _write_soon(self) -> None:
        if not self._writing and self._writes and not self.gone:
            self._writing = True
            self.world.loop.after(self.world.rng.randrange(1, self.world.plan.sync_us), self._write)

    def _write(self) -> None:
        """One write, or several appends with one sync."""
        if self.gone:
            return
        first = self._writes[0]
        group = [first]
        while not first.replace and len(group) < len(self._writes) and not self._writes[len(group)].replace:
            group.append(self._writes[len(group)])
        try:
            frames = [frame for persist in group for frame in persist.frames]
            if first.replace:
                self.file.replace(frames)
            else:
                self.file.append(frames)
        except StoreError:
            self.die()
            return
        self.world.watch.synced(self, group)
        del self._writes[: len(group)]
        self._writing = False
        lag = self.world.rng.randrange(1, self.world.plan.lag_us)
        self.world.loop.after(lag, self.feed, ev.Persisted(group[-1].token))
        self._write_soon()

    # ---- the destinations

    def _apply(self, action: ev.Apply, record: str) -> None:
        if self.gone or self.node.process is not self:
            return
        self._applying = None
        if self.world.rng.random() < self.world.plan.apply_fails and not self.world.calm:
            carry_out(self.node, action, record, self.world.rng.random())
            self.world.count("apply failed")
            self.feed(ev.Applied(action.number, "a host does not answer"))
            return
        self._lose_host()
        if self._away >= 0:
            carry_out(self.node, action, record, 1.0, away=self._away)
            self.feed(ev.Applied(action.number, partly=True))
            return
        carry_out(self.node, action, record, 1.0)
        self.feed(ev.Applied(action.number))

    def _lose_host(self) -> None:
        """Now and then a host does not start; what concerns its destinations waits until it is there."""
        plan, rng = self.world.plan, self.world.rng
        if self._away < 0 and plan.host_away and rng.random() < plan.host_away and not self.world.calm:
            self._away = rng.randrange(HOSTS)
            self.world.count("host away")
            self.world.loop.after(rng.randrange(1, plan.host_away_us), self._host_back)

    def _host_back(self) -> None:
        self._away = -1
        self.feed(ev.HostBack())

    # ---- time and death

    def _set_timer(self) -> None:
        if self.gone:
            return
        due = self.member.wake_at_ms - self.world.wall_ms(self.name)
        self._wake += 1
        self.world.loop.after(max(due, 1) * 1000 + self.world.rng.randrange(20_000), self._tick, self._wake)

    def _tick(self, wake: int) -> None:
        if wake == self._wake:
            self.feed(ev.MemberTick())

    # ---- what happens to it

    def write_half(self) -> None:
        """The write that is under way stops somewhere, before it is synced or after."""
        if self._writes and not self.gone and self.world.rng.random() < 0.7:
            persist = self._writes[0]
            self.io.fail_in = self.world.rng.randrange(4)
            with contextlib.suppress(StoreError):
                (self.file.replace if persist.replace else self.file.append)(list(persist.frames))

    def leave(self) -> None:
        self.feed(ev.Leave())

    def compress(self) -> None:
        self.feed(ev.Compress())

    def fence(self) -> None:
        """The disk is another instance's from now on."""
        self.io.dead = True
        for file in self.node.disk.names.values():
            file.locked_by = None

    def reconnect(self) -> None:
        self.cut_off = False

    def calm_down(self) -> None:
        self.cut_off = False
        if self.io.fail_in >= 0:
            self.io.fail_in = -1

    def die(self) -> None:
        if self.gone:
            return
        self.gone = True
        self.io.dead = True
        if self._applying is not None and self.node.process is self:
            carry_out(self.node, *self._applying, self.world.rng.random())
        for file in self.node.disk.names.values():
            if file.locked_by is self.io:
                file.locked_by = None
        self.world.watch.ended(self)
        self.world.clients.lost(self)


def carry_out(node: Node, action: ev.Apply, record: str, part: float, *, away: int = -1) -> None:
    """Some or all of what an Apply asks for, but for what concerns destinations of a host that is ``away``; twice does
    no harm.

    What this record has not, and does not know to have destroyed, is of another record.
    """
    changes: tuple[Change, ...] = action.changes
    if action.whole is not None:
        changes = differences(node.actual, action.whole)
        unknown = node.actual.destinations.keys() - action.whole.destinations.keys() - action.whole.past
        assert not unknown or node.held != record, f"{node.name}: record {record} forgot that it destroyed {unknown}"
    for change in changes[: round(len(changes) * part)]:
        if away < 0 or not _is_on(node.actual, change, away):
            _one(node.actual, change)
    if part == 1.0 and away < 0 and action.whole is not None:
        node.held = record


def _is_on(actual: RecordState, change: Change, host: int) -> bool:
    """Whether it concerns a destination that this host has."""
    there = change.kind.endswith("_destination") and change.key in actual.destinations
    return there and crc32(repr(change.key).encode()) % HOSTS == host


def _one(actual: RecordState, change: Change) -> None:
    if change.kind in ("pause_destination", "resume_destination"):
        actual.apply(change)
        return
    there: Any = {
        "destination": actual.destinations,
        "subscription": actual.subscriptions,
        "template": actual.templates,
        "broker": actual.added,
    }[change.kind.split("_")[1]]
    if change.kind.startswith(("destroy", "drop", "remove")):
        if change.key in there:
            actual.apply(change)
    elif change.key in there and not change.kind.startswith(("set", "update")):
        there[change.key] = dict(change.attributes)
    else:
        actual.apply(change)
