"""Salvage of a store that is damaged: what is intact is brought out, and the rest is set aside.

The way is offline: no process has the store open, and no Ray is needed.  A store is salvaged only when it does not open
otherwise; opening it stays as strict as it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from raybroker.engine.checkpoint import read_back
from raybroker.engine.salvage import DestinationLeft, Salvaged, salvage
from raybroker.model.blocks.record import LogEntry
from raybroker.model.errors import StoreDamagedError, StoreError
from raybroker.store.fileio import FileIO
from raybroker.store.journal import set_aside
from raybroker.store.journal.anchors import MANIFEST_NAMES, MARK_NAME, ManifestFiles, MarkFile
from raybroker.store.journal.lenient import NO_MARK, LenientRecovery, LostRange, read_anchors
from raybroker.store.journal.lockfile import LOCK_NAME, LockFile
from raybroker.store.journal.own_files import body_name
from raybroker.store.journal.recovery import JournalRecovery, newest_manifest
from raybroker.store.journal.segment import SegmentFiles, slot_of
from raybroker.system.clock import SystemClock

LOCK_WAIT_S: Final = 5.0
"""How long a host that tries to start, and has the store open for a moment, is waited for."""
LOCK_LOOK_S: Final = 0.05
UNKNOWN_ENTRIES: Final = 1 << 16
"""So many entries may be lost where nothing says how many they are."""
Row = dict[str, Any]


@dataclass
class SalvageReport:
    """What a salvage has done, or would do.

    why              why the store does not open; "" when it opens, and there is nothing to do
    ranges           stretches of the log that are lost
    folder, moved    where the damaged files are, and which; copies of the anchors are there too
    damaged_payloads messages that are kept, and whose bodies cannot be read: skip msg sets them aside
    """

    store: str
    at: str
    why: str = ""
    faults: list[str] = field(default_factory=list)
    ranges: list[LostRange] = field(default_factory=list)
    destinations: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    folder: str = ""
    moved: list[str] = field(default_factory=list)
    damaged_payloads: int = 0
    needed_bytes: int = 0
    done: bool = False

    @property
    def kept(self) -> int:
        return sum(row["kept_messages"] for row in self.destinations)

    @property
    def summary(self) -> str:
        """Sum it up in one line, for a log."""
        entries = sum(lost.entries for lost in self.ranges)
        blocks = sum(row["lost_blocks"] for row in self.destinations)
        again = sum(row["maybe_again"] for row in self.destinations)
        return (
            f"{len(self.ranges)} ranges of the log with {entries} entries, {blocks} blocks of messages that were"
            f" stored; {self.kept} messages were kept, {again} of which may come again"
        )

    def as_dict(self) -> Row:
        fields = {name: value for name, value in asdict(self).items() if name != "ranges"}
        ranges = [{**asdict(lost), "entries": lost.entries} for lost in self.ranges]
        return {**fields, "ranges": ranges, "kept_messages": self.kept, "summary": self.summary if self.why else ""}


def salvage_store(
    directory: Path,
    *,
    dry_run: bool = False,
    confirm: Callable[[SalvageReport], None] = lambda report: None,
    io: FileIO | None = None,
) -> SalvageReport:
    """Bring out what is intact in the store in ``directory``; nothing is changed before ``confirm`` has returned.

    Raises StoreError when a process has the store open, there is none, or it cannot be written: then it is as it was.
    """
    io = io or FileIO()
    _check_place(io, directory)
    lock = _lock(io, directory)
    files = SegmentFiles(io, directory, 0)
    try:
        folder = set_aside.begun(io, directory)
        if folder is not None:
            if dry_run:
                raise StoreError(f"{directory}: an earlier salvage was interrupted; run it without --dry-run")
            set_aside.undo(io, directory, folder)
        now_ms = SystemClock().now_ms()
        at = datetime.fromtimestamp(now_ms // 1000, UTC).isoformat()
        report = SalvageReport(str(directory), at, _why_not(io, directory))
        if report.why:
            _Salvage(io, directory, files, report, now_ms).run(dry_run, confirm)
        return report
    except OSError as error:
        raise StoreError(f"the store {directory} cannot be read: {error}") from error
    finally:
        files.close()
        lock.release()


def _check_place(io: FileIO, directory: Path) -> None:
    names = io.names(directory) if directory.is_dir() else []
    known = (LOCK_NAME, MARK_NAME, *MANIFEST_NAMES)
    if not any(name in known or slot_of(name) is not None for name in names):
        raise StoreError(
            f"there is no store in {directory}: name the folder with the segments of one host, as the host's error does"
        )
    owner = directory.stat().st_uid
    if owner != os.geteuid():
        raise StoreError(f"the store {directory} belongs to user {owner}: run this as that user")


def _lock(io: FileIO, directory: Path) -> LockFile:
    clock = SystemClock()
    deadline = clock.monotonic_ns() + int(LOCK_WAIT_S * 1e9)
    while True:
        try:
            return LockFile(io, directory)
        except OSError as error:
            raise StoreError(f"the store {directory} cannot be locked: {error}") from error
        except StoreError:
            if clock.monotonic_ns() > deadline:
                raise
        clock.sleep(LOCK_LOOK_S)


def _why_not(io: FileIO, directory: Path) -> str:
    """Why the store does not open; "" when it does. Nothing is changed."""
    names = set(io.names(directory))
    segments = [name for name in names if slot_of(name) is not None]
    missing = sorted({*MANIFEST_NAMES, MARK_NAME} - names)
    if segments and missing:
        return f"{', '.join(missing)} is missing"
    files, manifests, mark_file = SegmentFiles(io, directory, 0), ManifestFiles(io, directory), MarkFile(io, directory)
    try:
        faults = manifests.load(write=False)
        mark = mark_file.load(write=False)
        manifest = newest_manifest(manifests, faults, mark, directory)
        if not segments and (manifest.segments or mark.generation > 1):
            return "its segments are missing, every one of them"
        reader = JournalRecovery(io, files, manifest, mark)
        reader.find_end()
        found = read_back(reader.entries())
        found.schedules.check_complete()
        for number, definition in found.definitions.items():
            if number in found.recoveries:
                found.recoveries[number].finish(
                    definition.name, definition.attributes, kind=definition.kind, decided=found.transactions.decided
                )
    except FileNotFoundError as error:
        return f"{error.filename} is missing" if segments else ""
    except StoreDamagedError as error:
        return str(error)
    finally:
        files.close()
        manifests.close()
        mark_file.close()
    return ""


class _Salvage:
    """One salvage of a store that does not open, which is locked."""

    def __init__(self, io: FileIO, directory: Path, files: SegmentFiles, report: SalvageReport, now_ms: int) -> None:
        self._io = io
        self._directory = directory
        self._files = files
        self._report = report
        self._now_ms = now_ms

    def run(self, dry_run: bool, confirm: Callable[[SalvageReport], None]) -> None:
        io, directory, report = self._io, self._directory, self._report
        anchors = read_anchors(io, directory)
        reader = LenientRecovery.from_directory(io, directory, self._files, anchors)
        first = min(reader.segments, default=1)
        reader.read()
        state = self._state(reader, checkpoint_lost=first > 1 and not reader.has_checkpoint)
        bodies = self._bodies(reader, state)
        report.faults, report.ranges = reader.faults, reader.ranges
        report.destinations = [left.as_row() for left in state.destinations]
        report.notes += state.notes
        aside = set_aside.SettingAside(io, directory, self._files, reader, anchors)
        report.moved = aside.moved(bodies)
        report.folder = str(aside.folder)
        checkpoint = state.checkpoint()
        report.needed_bytes = aside.needed_bytes(checkpoint)
        if dry_run:
            return
        confirm(report)
        free = io.free_bytes(directory)
        if free < report.needed_bytes:
            raise StoreError(
                f"{directory}: writing what is intact takes about {report.needed_bytes} bytes, and {free} are free"
            )
        report.done = True
        record = {**report.as_dict(), "copied": [*MANIFEST_NAMES, MARK_NAME]}
        try:
            aside.carry_out(checkpoint, record, report.moved)
            why = _why_not(io, directory)
            if why:
                aside.give_up()
                raise StoreError(f"{directory}: what is intact does not open either ({why}); the store is as it was")
            aside.finish()
        except BaseException:
            report.done = False
            raise

    def _state(self, reader: LenientRecovery, *, checkpoint_lost: bool) -> Salvaged:
        entries = (entry for entry in reader.entries(runs=False) if isinstance(entry, LogEntry))
        lost = sum(lost.entries for lost in reader.ranges)
        if reader.mark == NO_MARK or checkpoint_lost:
            lost += UNKNOWN_ENTRIES
        if checkpoint_lost:
            self._report.notes.append("the last checkpoint is lost, with every definition that only it had")
        return salvage(entries, lost, self._now_ms, checkpoint_lost=checkpoint_lost)

    def _bodies(self, reader: LenientRecovery, state: Salvaged) -> list[str]:
        """Own files that nothing intact refers to; and messages whose bodies cannot be read are counted."""
        found, whole = reader.references()
        references = dict(found)
        for left in state.destinations:
            for ordinal, messages in left.messages.items():
                key = left.number, ordinal
                why = reader.damaged_payload(*key)
                if not why and key in references:
                    why = set_aside.damaged_body(self._files, references[key])
                if why:
                    self._damaged(left, messages, ordinal, why)
        used = {body_name(reference.number) for reference in references.values()}
        names = set_aside.body_names(self._io, self._directory)
        return [name for name in names if name not in used] if whole else []

    def _damaged(self, left: DestinationLeft, messages: int, ordinal: int, why: str) -> None:
        self._report.damaged_payloads += messages
        left.kept -= messages
        left.notes.append(f"block {ordinal}: the bodies of {messages} messages cannot be read ({why}); skip msg")
