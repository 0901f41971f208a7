"""kill -9 of a process that writes a journal: nothing acknowledged is lost, no batch is there by half.

    python -m tests.store_faults.kill9 --kills 10000 --seed 1

A child writes operations and acknowledges each through a pipe; it is killed at a random moment, or kills itself in
front of, within or behind one of its system calls.  The parent opens the store, compares it with the model, and
lets the next child go on with the same store.  Only children that were alive when they were killed are counted.
"""

from __future__ import annotations

import argparse
import os
import random
import select
import signal
import struct
import tempfile
from collections.abc import Sequence
from pathlib import Path

from raybroker.model.blocks.record import Buffer
from raybroker.store.journal import FileIO
from tests.store_faults.script import Host, Model, UnsyncedIO, abandon, open_journal
from tests.sweep import Deadline, until

_ACK = struct.Struct("<Q")


class SuicidalIO(FileIO):
    """Kills its process at call number ``at`` of those that change something."""

    def __init__(self, at: int, where: str) -> None:
        self._left = at
        self._where = where

    def _now(self) -> bool:
        self._left -= 1
        return self._left == 0

    def _die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        if not self._now():
            return super().pwritev(fd, buffers, offset)
        if self._where == "within":
            data = b"".join(buffers)
            super().pwritev(fd, [data[: len(data) // 2]], offset)
        elif self._where == "behind":
            super().pwritev(fd, buffers, offset)
        self._die()
        return 0

    def fdatasync(self, fd: int) -> None:
        if self._now():
            if self._where == "behind":
                super().fdatasync(fd)
            self._die()
        super().fdatasync(fd)

    def fallocate(self, fd: int, nbytes: int) -> None:
        if self._now():
            super().fallocate(fd, nbytes // 2 if self._where == "within" else nbytes)
            self._die()
        super().fallocate(fd, nbytes)

    def truncate(self, fd: int, nbytes: int) -> None:
        if self._now():
            if self._where == "behind":
                super().truncate(fd, nbytes)
            self._die()
        super().truncate(fd, nbytes)

    def punch(self, fd: int, start: int, end: int) -> bool:
        if self._now():
            if self._where != "before":
                super().punch(fd, start, end if self._where == "behind" else (start + end) // 2)
            self._die()
        return super().punch(fd, start, end)

    def unlink(self, path: Path) -> None:
        if self._now():
            if self._where == "behind":
                super().unlink(path)
            self._die()
        super().unlink(path)

    def fsync_dir(self, path: Path) -> None:
        if self._now():
            self._die()
        super().fsync_dir(path)

    def create(self, path: Path) -> int:
        if self._now():
            if self._where == "behind":
                super().create(path)
            self._die()
        return super().create(path)


def child(directory: Path, seed: int, pipe: int, io: FileIO | None, sync: bool) -> None:
    """Go on with the script until killed."""
    host = Host(open_journal(directory, io, sync=sync), seed)
    while True:
        os.write(pipe, _ACK.pack(host.step()))
        host.settle()


def start(directory: Path, seed: int, draw: random.Random, *, sync: bool) -> tuple[int, int, bool]:
    """(pid, read end of the pipe, whether it will kill itself)."""
    io = None
    if draw.random() < 0.6:
        io = SuicidalIO(draw.choice((draw.randrange(1, 15), draw.randrange(1, 200))), draw.choice(WHERE))
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 3
        try:
            os.close(reader)
            child(directory, seed, writer, io, sync)
        except BaseException as error:  # noqa: BLE001  # a forked child must not run on as its parent
            print(f"child: {error!r}", flush=True)
        finally:
            os._exit(code)
    os.close(writer)
    return pid, reader, io is not None


WHERE = ("before", "within", "behind")


def acks_until_death(pid: int, reader: int, kill_after: int | None) -> tuple[int, int]:
    """(number of the last acknowledged operation or 0, exit status); kills after so many acknowledgements."""
    data = b""
    killed = False
    while True:
        chunk = os.read(reader, 1 << 16) if select.select([reader], [], [], 20)[0] else None
        assert chunk is not None, "the child neither writes nor dies"
        if not chunk:
            break
        data += chunk
        if kill_after is not None and not killed and len(data) >= kill_after * _ACK.size:
            os.kill(pid, signal.SIGKILL)
            killed = True
    os.close(reader)
    _, status = os.waitpid(pid, 0)
    whole = len(data) // _ACK.size
    return (_ACK.unpack_from(data, (whole - 1) * _ACK.size)[0] if whole else 0), status


def run(directory: Path, *, kills: int, seed: int, sync: bool = True, seconds: float | None = None) -> int:
    """The number of valid kills, of which no more are made after so many seconds; AssertionError with the seed at the
    first fault."""
    draw = random.Random(seed)
    model = Model(seed)
    counted = 0
    for number in until(Deadline(seconds), range(kills)):
        pid, reader, suicidal = start(directory, seed, draw, sync=sync)
        acked, status = acks_until_death(pid, reader, None if suicidal else draw.randrange(1, 40))
        where = f"seed {seed}, kill {number}"
        assert os.WIFSIGNALED(status), f"{where}: the child ended by itself: {status}"
        counted += 1
        acked = max(acked, model.number)
        journal = open_journal(directory, UnsyncedIO(), sync=sync)
        host = Host(journal, seed)
        assert host.model.number in (acked, acked + 1), f"{where}: {acked} acknowledged, found {host.model.number}"
        model.advance_to(host.model.number)
        host.check(model)
        if draw.random() < 0.3:
            journal.close()
        else:
            abandon(journal)
    return counted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seconds", type=float, help="make no more kills after so many seconds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-sync", action="store_true")
    parser.add_argument("--directory", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as parent:
        kills = run(
            Path(parent) / "store",
            kills=arguments.kills,
            seed=arguments.seed,
            sync=not arguments.no_sync,
            seconds=arguments.seconds,
        )
    print(f"seed {arguments.seed}: {kills} kills, nothing acknowledged was lost, no batch was there by half")


if __name__ == "__main__":
    main()
