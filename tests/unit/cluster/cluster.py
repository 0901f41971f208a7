"""Brokers on a perfect network and perfect disks: what one machine wants of another happens at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from raybroker.cluster import events as ev
from raybroker.cluster import member_messages as m
from raybroker.cluster.change_record import Change
from raybroker.cluster.member import Member, MemberSettings
from tests.simulation_control.table import MemoryTable

NAMES = ("b1", "b2", "b3")


def queue(name: str, **attributes: object) -> Change:
    return Change("create_destination", ("queue", name), attributes)


class Cluster:
    """``frames``: what each broker's record file has; ``cut``: brokers that nothing reaches or leaves.

    ``table``: what brokers share instead of a master; ``table_says`` answers instead of it when it returns something.
    """

    def __init__(
        self, names: Sequence[str] = NAMES, *, master: str = "b1", cluster: str = "c1", table: MemoryTable | None = None
    ) -> None:
        self.table = table
        self.shared = table is not None
        self.table_says: Callable[[str, ev.OnTable], ev.TableDone | None] = lambda name, call: None
        self.names = tuple(names)
        self.now_ms = 10_000
        self.master = master
        self.cluster = cluster
        self.dynamic = True
        self.members: dict[str, Member] = {}
        self.frames: dict[str, list[bytes]] = {name: [] for name in names}
        self.cut: set[str] = set()
        self.applied: dict[str, list[ev.Apply]] = {name: [] for name in names}
        self.answers: dict[int, ev.Answer] = {}
        self.notes: list[str] = []
        self.sent: list[tuple[str, m.MemberMessage]] = []
        self.opened: list[str] = []
        self.halted: list[str] = []
        self.failure = ""
        self.hold_writes = False
        self._work: deque[tuple[str, int, ev.Event]] = deque()
        self._request = 0

    # ---- brokers

    def start(self, *names: str, properties: dict[str, object] | None = None, **settings: int) -> None:
        for name in names or self.names:
            options = MemberSettings(
                cluster=self.cluster,
                brokers=self.names,
                master=self.master,
                dynamic_change_master=self.dynamic,
                table="records" if self.shared else "",
                properties=properties or {},
                **settings,
            )
            member = Member(name, options, self.frames[name], now_ms=self.now_ms, new_id=f"id-{name}-{self.now_ms}")
            self.members[name] = member
            self.tell(name, ev.Started())
        self.settle()

    def stop(self, name: str) -> None:
        """Without a word."""
        del self.members[name]

    def tell(self, name: str, event: ev.Event) -> list[ev.Action]:
        actions = self.members[name].step(event, self.now_ms)
        for action in actions:
            self._do(name, action)
        return actions

    def _do(self, name: str, action: ev.Action) -> None:
        incarnation = self.members[name].incarnation
        match action:
            case ev.SendEnvelope(to, envelope):
                self.sent.append((to, envelope.message))
                if not self.cut & {name, to}:
                    self._work.append((to, 0, ev.EnvelopeReceived(envelope)))
            case ev.Persist(token, frames, replace):
                self.frames[name] = [*([] if replace else self.frames[name]), *frames]
                if not self.hold_writes:
                    self._work.append((name, incarnation, ev.Persisted(token)))
            case ev.Apply(number):
                self.applied[name].append(action)
                self._work.append((name, incarnation, ev.Applied(number, self.failure)))
            case ev.ReadTable() | ev.AppendTable() | ev.ShortenTable():
                assert self.table is not None
                done = self.table_says(name, action) or self.table.carry_out(action)
                self._work.append((name, incarnation, done))
            case ev.ExchangeConsumers(peer):
                self._work.append((name, incarnation, ev.Exchanged(peer)))
            case ev.Answer(request):
                self.answers[request] = action
            case ev.Note(text):
                self.notes.append(text)
            case ev.OpenForClients():
                self.opened.append(name)
            case ev.Halt(reason):
                self.halted.append(reason)

    # ---- time

    def settle(self) -> None:
        """Until nothing is left to do now."""
        while self._work:
            name, incarnation, event = self._work.popleft()
            member = self.members.get(name)
            if member is not None and incarnation in (0, member.incarnation):
                self.tell(name, event)

    def run(self, duration_ms: int) -> None:
        end = self.now_ms + duration_ms
        while self.now_ms < end:
            self.settle()
            due = min((member.wake_at_ms for member in self.members.values()), default=end)
            self.now_ms = min(end, max(due, self.now_ms + 1))
            for name in list(self.members):
                if self.members[name].wake_at_ms <= self.now_ms:
                    self.tell(name, ev.MemberTick())
        self.settle()

    # ---- changes

    def propose(self, name: str, change: Change) -> ev.Answer | None:
        """What is answered without time passing; None: nothing yet."""
        self._request += 1
        self.tell(name, ev.Propose(self._request, change))
        self.settle()
        return self.answers.get(self._request)

    def change_master(self, name: str, target: str) -> ev.Answer | None:
        self._request += 1
        self.tell(name, ev.ChangeMaster(self._request, target))
        self.settle()
        return self.answers.get(self._request)

    def states(self) -> dict[str, str]:
        return {name: str(member.state) for name, member in sorted(self.members.items())}


def running(names: Sequence[str] = NAMES, *, master: str = "b1") -> Cluster:
    """A cluster whose brokers are all operating."""
    cluster = Cluster(names, master=master)
    cluster.start()
    cluster.run(3000)
    assert set(cluster.states().values()) == {"OPERATING"}
    return cluster
