"""The head of a copy: what its disk says beside the log, in one file with two slots that are written in turn.

    id         names the copy; drawn when the folder is new, or is not the one that it was
    seal       the node and the file itself: a folder that was cloned or put back has another one, and is another copy
    promised   nothing of an earlier term is taken
    damages    how often damage was found, and ``damage`` the number of the one that is not healed of, 0 without one
    lost       where the log ended before that damage; None: that is not known
    members    the first replica set, which no entry tells of
    log        number of the folder with the journal that is in force

A write goes to the slot with the older content and is synced before anybody relies on it, so that a torn one leaves the
other slot as it was.
"""

from __future__ import annotations

import json
import os
import struct
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from zlib import crc32

from raybroker.model.errors import StoreError
from raybroker.replication.positions import NO_TERM, LogPosition, Term
from raybroker.replication.replica_set import NOBODY, ReplicaSet, unpacked_set
from raybroker.store.fileio import FileIO, read_exact, write_all

NAME: Final = "copy.head"
ID_BYTES: Final = 16
SLOT_BYTES: Final = 4096
FORM: Final = 1
_MAGIC: Final = b"RBcopy_1"
_FRAME: Final = struct.Struct("<8sII")
"""Magic, how many bytes follow, and their checksum."""


@dataclass(frozen=True, slots=True)
class CopyHead:
    """See the module. ``writes`` counts them."""

    id: str
    seal: str
    promised: Term = NO_TERM
    damages: int = 0
    damage: int = 0
    lost: LogPosition | None = None
    members: ReplicaSet = NOBODY
    log: int = 1
    writes: int = 0

    def encode(self) -> bytes:
        lost = self.lost
        fields = {
            "form": FORM,
            "id": self.id,
            "seal": self.seal,
            "promised": self.promised,
            "damages": self.damages,
            "damage": self.damage,
            "lost": None if lost is None else [*lost.term, lost.index, lost.chain.hex()],
            "members": self.members.packed().decode(),
            "log": self.log,
            "writes": self.writes,
        }
        body = json.dumps(fields, separators=(",", ":")).encode()
        data = _FRAME.pack(_MAGIC, len(body), crc32(body)) + body
        if len(data) > SLOT_BYTES:
            raise StoreError(f"the head of copy {self.id} has {len(data)} bytes; at most {SLOT_BYTES}")
        return data.ljust(SLOT_BYTES, b"\0")

    @staticmethod
    def decode(data: bytes) -> CopyHead | None:
        """Return what is in a slot; None when it is torn, or was never written."""
        if len(data) < _FRAME.size:
            return None
        magic, nbytes, crc = _FRAME.unpack_from(data)
        body = data[_FRAME.size : _FRAME.size + nbytes]
        if magic != _MAGIC or len(body) != nbytes or crc32(body) != crc:
            return None
        fields = json.loads(body)
        if fields["form"] != FORM:
            raise StoreError(f"the head of copy {fields.get('id')} has form {fields['form']}, of a newer release")
        lost = fields["lost"]
        return CopyHead(
            fields["id"],
            fields["seal"],
            Term(*fields["promised"]),
            fields["damages"],
            fields["damage"],
            None if lost is None else LogPosition(Term(lost[0], lost[1]), lost[2], bytes.fromhex(lost[3])),
            unpacked_set(fields["members"].encode()),
            fields["log"],
            fields["writes"],
        )


class HeadFile:
    """The file of one copy's head, open; ``head`` is what is durable, None where the folder has no copy that is this
    one: it is new, was emptied, is a clone, or its head cannot be read.

    before  the head of the copy whose folder this was, where it is another one now
    """

    def __init__(self, io: FileIO, directory: Path, node: str) -> None:
        self._io = io
        self._directory = directory
        self.head: CopyHead | None = None
        self.before: CopyHead | None = None
        path = directory / NAME
        try:
            self._fd = io.open(path)
        except FileNotFoundError:
            self._fd = io.create(path)
        slots = [read_exact(io, self._fd, SLOT_BYTES, at) for at in (0, SLOT_BYTES)]
        known = [head for head in map(CopyHead.decode, slots) if head is not None]
        found = max(known, key=lambda head: head.writes, default=None)
        self.seal = f"{node}:{os.fstat(self._fd).st_ino}"
        if found is not None and found.seal == self.seal:
            self.head = found
        else:
            self.before = found

    def begin_folder(self, head: CopyHead) -> None:
        """The folder is that copy's from now on; durable on return."""
        self._io.fallocate(self._fd, 2 * SLOT_BYTES)
        self._put(head)
        self._put(head)  # Neither slot may say any more whose folder it was.
        self._io.fsync_dir(self._directory)

    def write(self, head: CopyHead) -> None:
        """Replace what is there; durable on return."""
        self._put(head)

    def _put(self, head: CopyHead) -> None:
        last = self.head or self.before
        head = replace(head, writes=1 + (0 if last is None else last.writes))
        write_all(self._io, self._fd, [head.encode()], SLOT_BYTES * (head.writes & 1))
        self._io.fdatasync(self._fd)
        self.head = head

    def release(self) -> None:
        if self._fd >= 0:
            with suppress(OSError):
                self._io.close(self._fd)
            self._fd = -1
