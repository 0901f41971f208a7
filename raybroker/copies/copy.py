"""One copy of a log: its machine, its folder and its links.

Every event goes to the machine under one lock, and what it asks for is carried out at once: messages are written to
sockets right there, by whichever thread came with the event, and what is to be saved is queued in its order.  It is
saved outside of that lock, one at a time: by the loop of the links, or by the thread that commits for its host.
So a leader's batch is on its way to the others before its own disk is asked to sync it.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from raybroker.copies.copy_folder import IMAGE_PREFIX, CopyBeginsAnewError, CopyFolder, JournalOptions
from raybroker.copies.copy_status import CopyStatus, status_of
from raybroker.copies.entry_form import body_of
from raybroker.copies.freed_space import FreedBlocks, SpaceHints, living, spans_of
from raybroker.copies.images import ImageSender, ImageSource, ImageTaker
from raybroker.copies.link import LinkIdentity
from raybroker.copies.links import Address, CopyLinks, CopyTls, LinksHeard
from raybroker.copies.message_form import (
    Freed,
    ImageTaken,
    Living,
    ShellMessage,
    decode,
    encode,
)
from raybroker.model.blocks.record import EntryRun, LogEntry
from raybroker.model.errors import BrokerError, ConfigError, ProtocolError, StoreError, StoreFullError
from raybroker.model.settings.setting import PortRange
from raybroker.replication import events as ev
from raybroker.replication.leading import CopyPace
from raybroker.replication.messages import CopyMessage
from raybroker.replication.positions import BEGINNING, NO_TERM, Body, ReplicatedEntry, Term
from raybroker.replication.replica import TICK_MS, Replica
from raybroker.replication.replica_set import NOBODY, MemberChange, ReplicaSet
from raybroker.replication.reports import CopyReport
from raybroker.store.fileio import FileIO
from raybroker.store.journal import SEGMENT_BYTES, Journal
from raybroker.store.journal.format import Packed
from raybroker.store.journal.image import LogImage
from raybroker.store.locations import FIRST_KEY, BlockKey
from raybroker.system import entropy
from raybroker.system.clock import SystemClock
from raybroker.system.supervision import Supervisor

KEPT_BYTES: Final = 64 << 20
"""Of entries that are kept in memory for copies that missed them."""
TOLD_SPANS_MAX: Final = 32 << 10
"""Of living blocks a copy is told so much at a time, which is a tick: millions would keep both from what is urgent."""
TELL_UNSENT_BYTES: Final = 1 << 20
"""A copy that has not taken so much yet is told later which blocks live."""
ANY_PORT: Final = PortRange(0, 0)
log = logging.getLogger("raybroker.copies")


def _unheard(*_: object) -> None:
    """Nobody asked to be told."""


@dataclass(frozen=True)
class CopyPlace:
    """The place of a copy.

    directory  its folder
    node       the node, by a name that no other one has
    key        names the log; all copies of it have the same
    """

    directory: Path
    node: str
    key: str
    ip: str = "127.0.0.1"
    ports: PortRange = ANY_PORT
    segment_bytes: int = SEGMENT_BYTES


@dataclass(frozen=True)
class CopyEvents:
    """What a copy tells, in any thread and under its lock: nothing of this may wait.

    leads        it leads in this term; its log, read as after a restart, is what holds
    ended        it leads no more, and why: its host has to end at once
    not_elected  ``lead`` came to nothing, and why
    changed      what came of the request with that number to change the set; "": it is final
    failed       the copy has ended, and why: nothing more is saved, and its process has to end
    """

    leads: Callable[[Term], None] = _unheard
    ended: Callable[[str], None] = _unheard
    not_elected: Callable[[str], None] = _unheard
    changed: Callable[[int, str], None] = _unheard
    failed: Callable[[str], None] = _unheard


@dataclass(frozen=True)
class CopyMeans:
    """What a copy uses of the system; tests give others."""

    monotonic_ns: Callable[[], int] = SystemClock.monotonic_ns
    entropy: Callable[[int], bytes] = entropy.token
    io: FileIO | None = None
    tls: CopyTls | None = None
    kept_bytes: int = KEPT_BYTES


class Copy:
    """See the package.  Raises StoreError if its folder is open elsewhere or cannot be used."""

    def __init__(
        self, place: CopyPlace, secret: bytes, events: CopyEvents = CopyEvents(), means: CopyMeans = CopyMeans()
    ) -> None:
        self.place = place
        self._events = events
        self._means = means
        options = JournalOptions(means.monotonic_ns, means.entropy, place.segment_bytes, means.io)
        self._folder = CopyFolder(place.directory, place.node, options)
        self.id = self._folder.head.id
        self._lock = threading.RLock()
        self._saving = threading.RLock()
        """Held by whoever saves; the other lock may be taken inside of it, never the other way."""
        self._saves: deque[ev.ReplicaAction] = deque()
        self._trouble = self._over = ""
        self._host = _HostCalls()
        try:
            self._replica = self._loaded()
        except BaseException:
            self._folder.release()
            raise
        identity = LinkIdentity(self.id, place.key, secret, means.entropy)
        heard = LinksHeard(self._heard, self._link_opened, self._link_closed, self._tick)
        self._links = CopyLinks(identity, heard, self.now_ms, TICK_MS, means.tls)
        self._supervisor = Supervisor(f"copy {self.id[:8]} of {place.key}")
        self._space = _Space(self._folder, means.io or FileIO())

    # ---- for whoever places copies

    def serve(self) -> Address:
        """Listen, and serve; raises ConfigError when no port is free."""
        address = self._links.listen(self.place.ip, self.place.ports)
        self._space.thread = self._links.serve(self._supervisor)
        return address

    def know(self, addresses: Mapping[str, Address]) -> None:
        """Other copies are at these addresses."""
        self._links.know(addresses)

    def found(self, copies: Iterable[str], min_in_sync: int = 0) -> None:
        """Begin a log whose voters are these copies, all of which are new; told again, before anything is in it here,
        nothing happens.  Raises ConfigError when this one is not new."""
        members = ReplicaSet(tuple(sorted(copies)), (), min_in_sync)
        with self._saving, self._lock:
            replica = self._replica
            if replica.members == members and replica.last == BEGINNING:
                return  # It was told before.
            if replica.members != NOBODY or replica.last != BEGINNING or replica.promised != NO_TERM or replica.damaged:
                raise ConfigError(f"copy {self.id} is not new: it belongs to a log, and learns from that one's leader")
            if self.id not in members.voters:
                raise ConfigError(f"copy {self.id} is not among the copies that begin the log")
            self._folder.found(members)
            self._replica = self._loaded()

    def report(self) -> CopyReport:
        """Return what whoever looks for a leader has to know; a copy that has ended cannot lead."""
        with self._lock:
            found = self._replica.report()
            return found._replace(fit=found.fit and not self._over)

    def lead(self) -> None:
        """Ask the others for their promise; an event says what came of it."""
        nonce = int.from_bytes(self._means.entropy(8), "little")
        self._links.call(lambda: self._take_event(ev.Lead(nonce)))

    def hand_over(self, to: str, *, quiet: bool) -> str:
        """Have another copy lead in this one's place; returns why not, "" when this one leads no more. ``quiet``: only
        while no batch is under way."""
        nonce = int.from_bytes(self._means.entropy(8), "little")
        with self._lock:
            if self._over:
                return self._over
            actions = self._replica.step(ev.HandLeadOver(to, nonce, quiet), self.now_ms())
            self._carry_out(actions)
        return next((action.reason for action in actions if isinstance(action, ev.HandOverRefused)), "")

    def change(self, change: MemberChange, copy: str, request: int) -> None:
        """Have a copy added, promoted or removed, where this one leads; an event has the answer."""
        self._links.call(lambda: self._take_event(ev.ChangeSet(request, change, copy)))

    def require(self, min_in_sync: int, request: int) -> None:
        """Have so many voters need an entry from now on, where this copy leads; an event has the answer."""
        self._links.call(lambda: self._take_event(ev.RequireInSync(request, min_in_sync)))

    def status(self) -> CopyStatus:
        connected = self._links.connected()
        with self._lock:
            return status_of(self._replica, self.now_ms(), connected, self._over or self._trouble)

    def is_led(self) -> bool:
        """Return whether this copy leads, or hears who does."""
        with self._lock:
            return self._replica.hears_leader(self.now_ms())

    def shut_down(self) -> None:
        """End: what was submitted is saved, links end, the folder is let go."""
        with self._saving, self._lock:
            already, self._over = self._over, self._over or "the copy is closed"
            self._host.lease = (0, 0)
        self._space.stop_senders()
        self._links.shut_down()
        self._supervisor.close()
        thread = self._space.thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        if already != "the copy is closed":
            with self._saving:
                self._folder.release()

    def now_ms(self) -> int:
        return self._means.monotonic_ns() // 1_000_000

    # ---- for the host that runs where this copy leads

    @property
    def journal(self) -> Journal:
        return self._folder.journal

    @property
    def leads(self) -> bool:
        return self._replica.leading is not None and not self._over

    @property
    def term(self) -> int:
        """Number of the latest term that this copy has promised itself to."""
        return self._replica.promised.number

    @property
    def released(self) -> int:
        """Entries up to here may be answered for."""
        leading = self._replica.leading
        return 0 if leading is None else leading.released

    def tell_released(self, released: Callable[[], object]) -> None:
        """Call ``released`` whenever more is released, in any thread; it may not wait."""
        self._host.released = released

    def may_dispatch(self) -> bool:
        """Return whether no other copy can lead: ask right before the effect."""
        since, until = self._host.lease
        return since <= self.now_ms() < until

    def append(self, packed: Packed) -> int:
        """Append a batch to the log; returns its index once this copy's disk has it.

        Raises StoreError where this copy leads no more: the batch may be in the log, or may never be.
        """
        body = body_of(packed)
        with self._lock:
            if not self.leads:
                raise StoreError(f"copy {self.id} of {self.place.key} leads no more")
            self._host.appended = (body, packed)
            self._carry_out(self._replica.step(ev.AppendBatch(body), self.now_ms()))
            index = self._replica.last.index
        self._save_all(patient=False)
        self._require_life()
        return index

    def _require_life(self) -> None:
        if self._over:
            raise StoreError(self._over)

    def recover_runs(self) -> Iterator[LogEntry | EntryRun]:
        """Open the journal as after a restart, and give back what it has."""
        with self._saving:
            yield from self._folder.reopen()

    def free(self, destination: int, ordinals: Iterable[int]) -> None:
        """Blocks are dead as of what the log has now: they go once that is committed, here and at the others."""
        found = list(ordinals)
        with self._lock:
            last, committed = self._replica.last.index, self._replica.committed
        if last == committed:
            self._folder.free(destination, found)
        else:
            self._space.hints.add_own(Freed(last, destination, tuple(spans_of(sorted(found)))))
        self._space.freed.add(destination, found)

    @contextmanager
    def saving(self) -> Iterator[CopyFolder]:
        """Nothing else is saved meanwhile."""
        with self._saving:
            yield self._folder

    # ---- events

    def _loaded(self) -> Replica:
        saved = self._folder.load()
        for line in self._folder.damaged:
            log.error("[B3201] %s", line)
        self._folder.damaged.clear()
        return Replica(self.id, saved, now_ms=self.now_ms(), kept_bytes=self._means.kept_bytes)

    def _take_event(self, event: ev.ReplicaEvent) -> None:
        """Give an event to the machine, and save what it asks for.

        What a host has appended is left to that host's thread, which is about to save it: whoever hears of other
        copies' disks is not to wait for this one's.  A tick saves all that waits.
        """
        with self._lock:
            if self._over:
                return
            waiting = len(self._saves)
            self._carry_out(self._replica.step(event, self.now_ms()))
            asked = len(self._saves) > waiting
        if asked or isinstance(event, ev.ReplicaTick):
            self._save_all()

    def _carry_out(self, actions: list[ev.ReplicaAction]) -> None:
        for action in actions:
            match action:
                case ev.SendToCopy():
                    self._links.send(action.to, encode(action.message))
                case ev.SavePromise() | ev.SaveEntries() | ev.CutLog() | ev.InstallSnapshot():
                    self._saves.append(action)
                case ev.MakeSnapshot():
                    self._links.call(partial(self._send_image, action.to))
                case ev.EntriesReleased():
                    self._host.released()
                case ev.LeaderBegan():
                    log.warning("[B1201] copy %s of %s leads, in term %d", self.id, self.place.key, action.term.number)
                    self._events.leads(action.term)
                case ev.LeaderEnded():
                    log.warning("[B2201] copy %s of %s leads no more: %s", self.id, self.place.key, action.reason)
                    self._events.ended(action.reason)
                case ev.NotElected():
                    self._events.not_elected(action.reason)
                case ev.SetChanged():
                    self._events.changed(action.request, action.reason)
                case ev.Stopped():
                    self._fail_for_good(action.reason)
        self._follow_lease()

    def _follow_lease(self) -> None:
        leading = self._replica.leading
        if leading is None or leading.released < leading.began:
            self._host.lease = (0, 0)
        else:
            self._host.lease = (leading.dispatch_from_ms, leading.lease_until_ms())

    def _has_ended(self) -> bool:
        return bool(self._over)

    def _fail_for_good(self, reason: str) -> None:
        """Nothing is done any more."""
        if not self._over:
            self._over = reason
            self._host.lease = (0, 0)
            self._saves.clear()
            log.critical("[B3202] copy %s of %s has ended: %s", self.id, self.place.key, reason)
            self._events.failed(reason)

    # ---- the disk

    def _save_all(self, *, patient: bool = True) -> None:
        """Save what waits, in its order; ``patient``: what finds no room waits on."""
        if not self._saves:
            return  # A leader that reads its journal for long sends its heartbeats meanwhile.
        with self._saving:
            while self._saves and not self._over:
                action = self._saves[0]
                try:
                    token = self._save(action)
                except StoreFullError as error:
                    if patient:
                        self._trouble = str(error)
                        return
                    self._fail(error)
                    return
                except CopyBeginsAnewError as error:
                    self._begin_anew(str(error))
                    return
                except (BrokerError, OSError) as error:
                    self._fail(error)
                    return
                self._trouble = ""
                with self._lock:
                    if self._has_ended():
                        return
                    self._saves.popleft()
                    self._carry_out(self._replica.step(ev.SaveDone(token), self.now_ms()))
                self._follow_commit()
                self._write_mark()

    def _write_mark(self) -> None:
        """Note how far the journal is durable, after whoever waits for that was told."""
        try:
            self._folder.journal.write_mark()
        except BrokerError as error:
            self._fail(error)

    def _follow_commit(self) -> None:
        """More may be final: space that waited for that is free."""
        with self._lock:
            committed, last = self._replica.committed, self._saved_index()
        self._folder.commit(committed)
        self._space.hints.apply(last, min(committed, last))

    def _save(self, action: ev.ReplicaAction) -> int:
        folder = self._folder
        match action:
            case ev.SaveEntries():
                folder.save_all(action.entries, action.committed, self._own_batch(action.entries))
                return action.token
            case ev.SavePromise():
                folder.promise(action.term, action.damage)
                return action.token
            case ev.CutLog():
                self._space.hints.clear()
                folder.cut(action.index)
                return action.token
            case ev.InstallSnapshot():
                self._space.hints.clear()
                folder.install(action.at, action.members, action.content)
                return action.token
        raise TypeError(f"nothing to save: {action!r}")

    def _own_batch(self, entries: tuple[ReplicatedEntry, ...]) -> Packed | None:
        """Return the batch that the only one of these was made of, if the host has appended it just now."""
        made = self._host.appended
        if made is None or len(entries) > 1 or entries[0].body is not made[0]:
            return None
        self._host.appended = None
        return made[1]

    def _fail(self, error: Exception) -> None:
        with self._lock:
            self._fail_for_good(f"the copy in {self.place.directory} failed and was stopped: {error}")

    def _begin_anew(self, reason: str) -> None:
        """The log cannot be cut: it was set aside, and the leader gives this copy another one."""
        log.error("[B3201] %s", reason)
        with self._lock:
            self._saves.clear()
            self._space.hints.clear()
            if self._replica.leading is not None:
                self._events.ended(reason)
            self._replica = self._loaded()
            self._follow_lease()

    # ---- from the links, in their thread

    def _heard(self, sender: str, kind: int, payload: memoryview) -> None:
        try:
            message = decode(kind, payload)
        except ProtocolError as error:
            log.error("[B3203] copy %s of %s: from copy %s: %s", self.id, self.place.key, sender, error)
            self._links.drop_link(sender)
            return
        if isinstance(message, CopyMessage):
            self._take_event(ev.CopyMessageReceived(sender, message))
        else:
            self._take_shell_message(sender, message)

    def _take_shell_message(self, sender: str, message: ShellMessage) -> None:
        with self._lock:
            followed = self._replica.leader == sender and self._replica.leading is None
        if isinstance(message, ImageTaken):
            self._space.image_taken(sender, message)
        elif not followed or self._over:
            return
        elif isinstance(message, Freed | Living):
            with self._saving, self._lock:
                kept = self._space.hints.add(message, self._saved_index(), self._replica.committed)
            if not kept:
                self._links.drop_link(sender)
        else:
            answer = self._space.taker.take_message(message)
            if answer is not None:
                self._links.send(sender, encode(answer))

    def _saved_index(self) -> int:
        """Return where the journal ends: what waits to be saved is not in it."""
        waiting = [action for action in self._saves if isinstance(action, ev.SaveEntries)]
        return waiting[0].entries[0].at.index - 1 if waiting else self._replica.last.index

    def _link_opened(self, other: str) -> None:
        """There is a link to another copy: where this one leads, it says soon which blocks live."""
        if self.leads:
            self._space.telling[other] = FIRST_KEY

    def _link_closed(self, other: str) -> None:
        self._space.telling.pop(other, None)
        self._take_event(ev.LinkLost(other))

    def _tell_living(self) -> None:
        """Say some more of which blocks live, to copies that there is a new link to; nothing is saved meanwhile."""
        telling = self._space.telling
        if not self.leads:
            telling.clear()
        for other, after in list(telling.items()):
            if self._links.unsent_bytes(other) > TELL_UNSENT_BYTES:
                continue
            with self._lock:
                index = self._saved_index()
            live = self._folder.journal.live_spans(after, most=TOLD_SPANS_MAX)
            whole = sum(map(len, live.values())) < TOLD_SPANS_MAX
            for part in living(index, after, live, whole=whole):
                self._links.send(other, encode(part))
                telling[other] = part.upto
            if whole:
                del telling[other]

    def _tick(self) -> None:
        if self._over:
            return
        self._take_event(ev.ReplicaTick())
        if self.leads:
            with self._lock:
                last = self._replica.last.index
                others = [one for one in self._replica.members.copies if one != self.id]
            for hint in self._space.freed.hints(last):
                for other in others:
                    self._links.send(other, encode(hint))
        if self._saving.acquire(blocking=False):
            try:
                self._follow_commit()
                self._tell_living()
                self._tidy_follower()
            finally:
                self._saving.release()

    def _tidy_follower(self) -> None:
        """Reclaim space, a step at a time, where no host does it."""
        if self._replica.leading is None and not self._saves and not self._over:
            try:
                self._folder.journal.maintain(1 << 20)
            except BrokerError as error:
                self._fail(error)

    def _send_image(self, to: str) -> None:
        """Begin a transfer to a copy that is too far behind, unless one is under way."""

        def hold(held: bool) -> None:
            with self._saving:
                if not self._over:
                    self._folder.hold_files(held=held)

        def image() -> tuple[int, LogImage] | None:
            with self._saving:
                return self._folder.image(self._replica.committed)

        def wanted() -> bool:
            with self._lock:
                leading = self._replica.leading
                known = None if leading is None else leading.copies.get(to)
                return known is not None and known.pace is CopyPace.INSTALLING and not self._over

        source = ImageSource(
            lambda: self._folder.journal.directory,
            image,
            hold,
            wanted,
            lambda message: self._links.send(to, encode(message)),
            lambda: self._links.unsent_bytes(to),
            lambda index, data: self._take_event(ev.SnapshotMade(to, index, (data,))),
            self._means.monotonic_ns,
        )
        sender = ImageSender(int.from_bytes(self._means.entropy(4), "little"), source)
        if self._space.begin_sending(to, sender):
            self._supervisor.thread(f"an image for copy {to}", sender.run, thread_name="raybroker-image")


class _HostCalls:
    """What the host of a leader is told, and has said.

    released  called whenever more is released
    lease     from when until when messages may be given out, on the monotonic clock in milliseconds
    appended  the body of the entry that it has appended last, and the batch that this was made of
    """

    def __init__(self) -> None:
        self.released: Callable[[], object] = _unheard
        self.lease = (0, 0)
        self.appended: tuple[Body, Packed] | None = None


class _Space:
    """What a copy's shell keeps beside its machine: hints about space, and transfers of files."""

    def __init__(self, folder: CopyFolder, io: FileIO) -> None:
        self.freed = FreedBlocks()
        self.hints = SpaceHints(folder.free, folder.live_spans)
        self.taker = ImageTaker(io, folder.directory, IMAGE_PREFIX)
        self.taker.forget_files()
        self.telling: dict[str, BlockKey] = {}
        """Copies that there is a new link to → how far they have been told which blocks live; links' thread."""
        self.thread: threading.Thread | None = None
        self._sending: dict[str, ImageSender] = {}

    def begin_sending(self, to: str, sender: ImageSender) -> bool:
        """False: a transfer to this copy is under way."""
        before = self._sending.get(to)
        if before is not None and not before.over:
            return False
        self._sending[to] = sender
        return True

    def image_taken(self, copy: str, message: ImageTaken) -> None:
        sender = self._sending.get(copy)
        if sender is not None and sender.number == message.number:
            sender.taken(message.reason)

    def stop_senders(self) -> None:
        for sender in self._sending.values():
            sender.give_up()
