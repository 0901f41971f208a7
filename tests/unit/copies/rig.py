"""Copies in one process, over real sockets and real folders: nodes that lose their power, disks that are full, links
that are cut.

A disk of a test undoes at a power cut whatever was written and not synced, as far as a draw says so: what a copy has
answered for has to be there all the same.
"""

from __future__ import annotations

import errno
import os
import selectors
import shutil
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random

from raybroker.copies.copy import Copy, CopyEvents, CopyMeans, CopyPlace
from raybroker.copies.links import Address
from raybroker.model.blocks.record import Buffer
from raybroker.model.errors import StoreError
from raybroker.replication.reports import best_copy
from raybroker.store.fileio import FileIO

SECRET = b"the secret of the cluster"
SEGMENT = 128 << 10
KEPT = 512 << 10
WAIT_S = 30.0
LOOK_S = 0.002


def until(true: Callable[[], object], what: str, seconds: float = WAIT_S) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(LOOK_S)


class PowerIO(FileIO):
    """Files of one node.  ``off``: the power is; ``full``: the disk is; ``synced``: what was synced, in order.

    quick  syncs wait while this is not set; ``stuck``: one does
    """

    def __init__(self, rng: Random) -> None:
        self.off = self.full = False
        self.quick, self.stuck = threading.Event(), threading.Event()
        self.quick.set()
        self.synced: list[str] = []
        self._rng = rng
        self._lock = threading.RLock()
        self._paths: dict[int, str] = {}
        self._unsynced: list[tuple[str, int, bytes]] = []

    def _check(self) -> None:
        if self.off:
            raise OSError(errno.EIO, "the power is off")

    def create(self, path: Path) -> int:
        self._check()
        fd = super().create(path)
        self._paths[fd] = str(path)
        return fd

    def open(self, path: Path, *, write: bool = True) -> int:
        self._check()
        fd = super().open(path, write=write)
        self._paths[fd] = str(path)
        return fd

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        with self._lock:
            self._check()
            nbytes = sum(len(memoryview(buffer).cast("B")) for buffer in buffers)
            self._unsynced.append((self._paths[fd], offset, os.pread(fd, nbytes, offset).ljust(nbytes, b"\0")))
            return super().pwritev(fd, buffers, offset)

    def fdatasync(self, fd: int) -> None:
        if not self.quick.is_set():
            self.stuck.set()
            self.quick.wait(WAIT_S)
        with self._lock:
            self._check()
            path = self._paths[fd]
            self.synced.append(path)
            self._unsynced = [one for one in self._unsynced if one[0] != path]

    def fallocate(self, fd: int, nbytes: int) -> None:
        self._check()
        if self.full and nbytes > self.allocated(fd):
            raise OSError(errno.ENOSPC, "the disk is full")
        super().fallocate(fd, nbytes)

    def free_bytes(self, path: Path) -> int:
        return 0 if self.full else super().free_bytes(path)

    def rename(self, old: Path, new: Path) -> None:
        with self._lock:
            self._check()
            super().rename(old, new)
            moved = [(path.replace(str(old), str(new), 1), at, data) for path, at, data in self._unsynced]
            self._unsynced = moved

    def fsync_dir(self, path: Path) -> None:
        self._check()

    def unlink(self, path: Path) -> None:
        self._check()
        super().unlink(path)

    def cut_power(self) -> None:
        """Whatever is not synced is gone, each write or not, the later ones first."""
        with self._lock:
            self.off = True
            for path, offset, before in reversed(self._unsynced):
                if self._rng.random() < 0.7:
                    with suppress(FileNotFoundError):
                        fd = os.open(path, os.O_RDWR)
                        os.pwrite(fd, before, offset)
                        os.close(fd)
            self._unsynced.clear()


class Wire(threading.Thread):
    """The way from one node to another: a port that leads to ``target``.  ``cut``: nothing passes, nothing fails."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.address: Address = self.listening.getsockname()[:2]
        self.target: Address | None = None
        self.over = False
        self._cut = False
        self._way = threading.Lock()
        """Held while something passes."""
        self._selector = selectors.DefaultSelector()
        self._selector.register(self.listening, selectors.EVENT_READ)
        self._others: dict[socket.socket, socket.socket] = {}

    @property
    def cut(self) -> bool:
        return self._cut

    @cut.setter
    def cut(self, cut: bool) -> None:
        with self._way:
            self._cut = cut

    def run(self) -> None:
        while not self.over:
            for key, _ in self._selector.select(0.02):
                if key.fileobj is self.listening:
                    self._accept()
                elif isinstance(key.fileobj, socket.socket):
                    self._carry(key.fileobj)
            if self.cut:
                time.sleep(0.01)
        for one in list(self._others):
            self._hang_up(one)
        self.listening.close()
        self._selector.close()

    def _accept(self) -> None:
        came, _ = self.listening.accept()
        if self.cut or self.target is None:
            came.close()
            return
        try:
            goes = socket.create_connection(self.target, 1)
        except OSError:
            came.close()
            return
        for one, other in ((came, goes), (goes, came)):
            self._others[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _carry(self, one: socket.socket) -> None:
        other = self._others.get(one)
        if other is None:
            return
        try:
            with self._way:
                if self._cut:
                    return
                data = one.recv(1 << 16)
                other.sendall(data)
        except OSError:
            data = b""
        if not data:
            self._hang_up(one)

    def _hang_up(self, one: socket.socket) -> None:
        for end in (one, self._others.pop(one, None)):
            if end is not None:
                self._others.pop(end, None)
                with suppress(KeyError, ValueError):
                    self._selector.unregister(end)
                end.close()


class Node:
    """A node with a folder, and the copy that runs there; None while it does not."""

    def __init__(self, group: Group, number: int) -> None:
        self.group = group
        self.number = number
        self.folder = group.directory / f"node{number}"
        self.io = PowerIO(group.rng)
        self.copy: Copy | None = None
        self.address: Address | None = None
        self.told: list[str] = []

    @property
    def runs(self) -> Copy:
        assert self.copy is not None
        return self.copy

    def begin(self) -> None:
        self.io = PowerIO(self.group.rng)
        events = CopyEvents(
            leads=lambda term: self.told.append(f"leads {term.number}"),
            ended=lambda reason: self.told.append(f"ended {reason}"),
            not_elected=lambda reason: self.told.append(f"not elected {reason}"),
            changed=lambda request, reason: self.told.append(f"changed {request} {reason}"),
            failed=lambda reason: self.told.append(f"failed {reason}"),
        )
        place = CopyPlace(self.folder, f"node{self.number}", "broker/host", segment_bytes=SEGMENT)
        self.copy = Copy(
            place, SECRET, events, CopyMeans(self.group.monotonic_ns, io=self.io, kept_bytes=self.group.kept)
        )
        self.address = self.copy.serve()
        self.group.tell_addresses()

    def kill(self) -> None:
        """The power goes."""
        copy, self.copy = self.copy, None
        self.group.lead_nowhere(self)
        if copy is not None:
            self.io.cut_power()
            with suppress(StoreError):
                copy.shut_down()

    def stop(self) -> None:
        copy, self.copy = self.copy, None
        self.group.lead_nowhere(self)
        if copy is not None:
            copy.shut_down()

    def wipe(self) -> None:
        shutil.rmtree(self.folder)


class Group:
    """Nodes, and the wires between them.

    voters   so many of them, the first, begin the log
    in_sync  so many must have an entry, 0: a majority
    """

    def __init__(
        self, directory: Path, nodes: int = 3, voters: int = 3, seed: int = 1, kept: int = KEPT, in_sync: int = 0
    ) -> None:
        self.directory = directory
        self.rng = Random(seed)
        self.kept = kept
        self._ahead_ns = 0
        self.wires = {(a, b): Wire() for a in range(nodes) for b in range(nodes) if a != b}
        for wire in self.wires.values():
            wire.start()
        self.nodes = [Node(self, number) for number in range(nodes)]
        for node in self.nodes:
            node.begin()
        ids = [node.runs.id for node in self.nodes[:voters]]
        for node in self.nodes[:voters]:
            node.runs.found(ids, in_sync)

    def monotonic_ns(self) -> int:
        """The clock of all copies."""
        return time.monotonic_ns() + self._ahead_ns

    def pass_time(self, passed_ms: int) -> None:
        """Put the clocks of all copies on: what waits for a time need not wait for that of the test."""
        self._ahead_ns += passed_ms * 1_000_000

    def tell_addresses(self) -> None:
        running = [node for node in self.nodes if node.copy is not None]
        for one in running:
            for other in running:
                if one is not other:
                    wire = self.wires[one.number, other.number]
                    wire.target = other.address
                    one.runs.know({other.runs.id: wire.address})

    def lead_nowhere(self, gone: Node) -> None:
        """The port of a node that does not run may be another one's by and by."""
        for (_, to), wire in self.wires.items():
            if to == gone.number:
                wire.target = None

    def cut(self, *pairs: tuple[int, int]) -> None:
        for a, b in pairs:
            self.wires[a, b].cut = self.wires[b, a].cut = True

    def isolate(self, number: int) -> None:
        self.cut(*[(number, other.number) for other in self.nodes if other.number != number])

    def mend(self) -> None:
        for wire in self.wires.values():
            wire.cut = False

    def leader(self) -> Node | None:
        """Return the node whose copy leads in the latest term."""
        leading = [node for node in self.nodes if node.copy is not None and node.copy.leads]
        return max(leading, key=lambda node: node.runs.status().term, default=None)

    def elect(self, among: Sequence[int] | None = None) -> None:
        """Do once what whoever sees a leader's end does: ask the copies, and tell the best one."""
        asked = [n for n in self.nodes if n.copy is not None and (among is None or n.number in among)]
        best = best_copy(node.runs.report() for node in asked)
        for node in asked:
            if node.runs.id == best:
                node.runs.lead()

    def led(self, among: Sequence[int] | None = None, seconds: float = WAIT_S) -> Node:
        """Have some copy lead."""
        end, tried = time.monotonic() + seconds, 0.0
        while time.monotonic() < end:
            found = [
                node
                for node in self.nodes
                if (among is None or node.number in among) and node.copy is not None and node.copy.leads
            ]
            for node in found:
                status = node.runs.status()
                if status.released and status.committed == status.index:
                    return node
            if not found and time.monotonic() - tried > 0.2:
                if tried:
                    self.pass_time(400)  # Those that have heard a leader of late take it for lost sooner.
                self.elect(among)
                tried = time.monotonic()
            time.sleep(LOOK_S)
        raise AssertionError(f"no copy leads: {[(n.number, n.copy and n.copy.status()) for n in self.nodes]}")

    def agree(self, seconds: float = WAIT_S) -> None:
        """All copies of the leader's set have its whole log, and their chains are equal."""

        def same() -> bool:
            leader = self.leader()
            if leader is None:
                return False
            status = leader.runs.status()
            ends = {n.runs.report().last for n in self.nodes if n.copy and n.copy.id in status.members.voters}
            return len(ends) == 1 and status.committed == status.index and all(one.behind == 0 for one in status.copies)

        until(same, f"copies agree: {[n.copy and n.copy.status() for n in self.nodes]}", seconds)

    def close(self) -> None:
        for node in self.nodes:
            node.stop()
        for wire in self.wires.values():
            wire.over = True
        for wire in self.wires.values():
            wire.join()
