"""Power loss at every moment: no legal image of the disk loses what was acknowledged or shows half a batch.

    python -m tests.store_faults.power_loss --images 5000 --seed 1

A workload runs on real files through a recording FileIO; its process dies now and then, which the page cache survives.
The power fails after any one of its calls.  What the disk then holds is, for each file, all that was written before its
last sync, and any subset of the 512-byte sectors written since (writes may be reordered and torn); and of the names
created or removed since the directory was last synced, any subset.
When few calls are unsynced, every subset of whole calls is built; torn and larger ones are drawn at random.  Each image
is opened, compared with the model, written on, and in part of the cases loses power again while that happens.
"""

from __future__ import annotations

import argparse
import itertools
import random
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from raybroker.model.blocks.record import Buffer
from raybroker.model.errors import StoreError
from raybroker.store.journal import FileIO, Journal, verify
from tests.store_faults.script import Host, Model, UnsyncedIO, abandon, open_journal
from tests.sweep import Deadline

SECTOR_BYTES = 512
SUBSETS_MAX = 8
"""Unsynced calls of which every subset is built."""


@dataclass(frozen=True)
class Call:
    """One call that matters: ``what`` is write, size, sync, create, unlink, sync_dir, started or acked."""

    what: str
    file: int = 0
    name: str = ""
    offset: int = 0
    data: bytes = b""
    number: int = 0


class Died(BaseException):
    """The process is gone; what it wrote is still in the page cache."""


class RecordingIO(FileIO):
    """Does everything for real and keeps the trace.  Files are numbered: a name may mean several in turn.

    ``die_in`` counts syncs: the process dies in front of the one that brings it to zero.
    """

    die_in = 0

    def __init__(self, image: Image | None = None) -> None:
        self.calls: list[Call] = []
        self.rare: list[int] = []
        self._file_of_name: dict[str, int] = {}
        self._file_of_fd: dict[int, int] = {}
        self._files = itertools.count(1)
        self._manifests: set[int] = set()
        for name, data in (image.files if image else {}).items():
            file = self._file_of_name[name] = next(self._files)
            if name.startswith("manifest"):
                self._manifests.add(file)
            self.calls += [Call("create", file, name), Call("size", file, number=len(data))]
            self.calls += [Call("write", file, offset=0, data=data), Call("sync", file)]
        self.calls.append(Call("sync_dir"))
        self.base = len(self.calls)

    def create(self, path: Path) -> int:
        fd = super().create(path)
        file = self._file_of_fd[fd] = self._file_of_name[path.name] = next(self._files)
        if path.name.startswith("manifest"):
            self._manifests.add(file)
        self.calls.append(Call("create", file, path.name))
        return fd

    def open(self, path: Path, *, write: bool = True) -> int:
        fd = super().open(path, write=write)
        self._file_of_fd[fd] = self._file_of_name[path.name]
        return fd

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        taken = super().pwritev(fd, buffers, offset)
        if self._file_of_fd[fd] in self._manifests:
            self.rare.append(len(self.calls))
        self.calls.append(Call("write", self._file_of_fd[fd], offset=offset, data=b"".join(buffers)[:taken]))
        return taken

    def fallocate(self, fd: int, nbytes: int) -> None:
        super().fallocate(fd, nbytes)
        self.calls.append(Call("size", self._file_of_fd[fd], number=nbytes))

    def truncate(self, fd: int, nbytes: int) -> None:
        super().truncate(fd, nbytes)
        self.calls.append(Call("size", self._file_of_fd[fd], number=nbytes))

    def punch(self, fd: int, start: int, end: int) -> bool:
        """As a write of zeros, which may be torn as one: more than a file system does to it."""
        punched = super().punch(fd, start, end)
        if punched:
            self.rare.append(len(self.calls))
            self.calls.append(Call("write", self._file_of_fd[fd], offset=start, data=bytes(end - start)))
        return punched

    def _sync_or_die(self) -> None:
        self.die_in -= 1
        if self.die_in == 0:
            raise Died

    def fdatasync(self, fd: int) -> None:
        self._sync_or_die()
        self.calls.append(Call("sync", self._file_of_fd[fd]))

    def fsync_dir(self, path: Path) -> None:
        self._sync_or_die()
        self.rare.append(len(self.calls))
        self.calls.append(Call("sync_dir"))

    def unlink(self, path: Path) -> None:
        super().unlink(path)
        self.calls.append(Call("unlink", self._file_of_name.pop(path.name), path.name))

    def rename(self, old: Path, new: Path) -> None:
        """As two changes of names, of which each may be durable alone: more than a file system does to it."""
        super().rename(old, new)
        file = self._file_of_name[new.name] = self._file_of_name.pop(old.name)
        self.calls += [Call("create", file, new.name), Call("unlink", file, old.name)]

    def started(self, number: int) -> None:
        self.calls.append(Call("started", number=number))

    def acked(self, number: int) -> None:
        self.calls.append(Call("acked", number=number))


@dataclass
class Image:
    """What a disk holds after the power failed, and what it owes."""

    files: dict[str, bytes]
    acked: int
    started: int
    what: str

    def write_to(self, directory: Path) -> None:
        directory.mkdir(mode=0o700)
        for name, data in self.files.items():
            path = directory / name
            path.write_bytes(data)
            path.chmod(0o600)


@dataclass
class Disk:
    """What is durable after a prefix of a trace, and what is not yet."""

    durable: dict[int, bytearray] = field(default_factory=dict)
    pending: list[Call] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    pending_names: list[Call] = field(default_factory=list)
    acked: int = 0
    started: int = 0

    def apply(self, call: Call) -> None:
        if call.what == "acked":
            self.acked = call.number
        elif call.what == "started":
            self.started = call.number
        elif call.what in ("write", "size"):
            self.pending.append(call)
            self._forget_rewritten(call)
        elif call.what == "sync":
            content = self.durable.setdefault(call.file, bytearray())
            for done in self.pending:
                if done.file == call.file:
                    put(content, done)
            self.pending = [other for other in self.pending if other.file != call.file]
        elif call.what == "sync_dir":
            for done in self.pending_names:
                rename(self.names, done)
            self.pending_names = []
        else:
            if call.what == "create":
                self.durable.setdefault(call.file, bytearray())
            self.pending_names.append(call)

    def _forget_rewritten(self, call: Call) -> None:
        """Of unsynced writes to the same place (the commit mark's) the last two are enough to choose from."""
        place = call.what, call.file, call.offset, len(call.data)
        same = [i for i, c in enumerate(self.pending) if (c.what, c.file, c.offset, len(c.data)) == place]
        for i in same[:-2]:
            del self.pending[i]

    def image(self, kept: Sequence[Call], kept_names: Sequence[Call], what: str) -> Image:
        names = dict(self.names)
        for call in kept_names:
            rename(names, call)
        files: dict[str, bytes] = {}
        for name, file in names.items():
            content = bytearray(self.durable[file])
            for call in kept:
                if call.file == file:
                    put(content, call)
            files[name] = bytes(content)
        return Image(files, self.acked, max(self.started, self.acked), what)

    def images(self, draw: random.Random, most: int) -> Iterator[Image]:
        """Every subset of whole calls if they are few, else some; then torn ones."""
        every = self.pending + self.pending_names
        if most and len(every) <= SUBSETS_MAX:
            choices = [[bool(bits >> i & 1) for i in range(len(every))] for bits in range(2 ** len(every))]
            choices = choices if len(choices) <= most else draw.sample(choices, most)
        else:
            choices = [[draw.random() < 0.5 for _ in every] for _ in range(min(most, 4))]
        for choice in choices:
            kept = [call for call, chosen in zip(every, choice, strict=True) if chosen]
            writes = [call for call in kept if call.what in ("write", "size")]
            yield self.image(writes, [c for c in kept if c not in writes], f"{len(kept)} of {len(every)} calls")
        if self.pending:
            for _ in range(2):
                sectors = [sector for call in self.pending for sector in sectors_of(call)]
                share = draw.random()
                kept = [sector for sector in sectors if draw.random() < share]
                kept_names = [call for call in self.pending_names if draw.random() < 0.5]
                yield self.image(kept, kept_names, f"{len(kept)} of {len(sectors)} sectors")


def put(content: bytearray, call: Call) -> None:
    end = call.number if call.what == "size" else call.offset + len(call.data)
    if len(content) < end:
        content.extend(bytes(end - len(content)))
    if call.what == "write":
        content[call.offset : end] = call.data


def rename(names: dict[str, int], call: Call) -> None:
    if call.what == "create":
        names[call.name] = call.file
    elif names.get(call.name) == call.file:
        del names[call.name]


def sectors_of(call: Call) -> Iterator[Call]:
    """A write as writes of single sectors."""
    if call.what == "size":
        yield call
        return
    at = call.offset
    end = at + len(call.data)
    while at < end:
        upto = min((at // SECTOR_BYTES + 1) * SECTOR_BYTES, end)
        data = call.data[at - call.offset : upto - call.offset]
        yield Call("write", call.file, offset=at, data=data)
        at = upto


def record(directory: Path, seed: int, operations: int, image: Image | None) -> RecordingIO:
    """The trace of a workload whose process dies and starts again some times, always on the same files."""
    io = RecordingIO(image)
    draw = random.Random(seed)
    number = first = -1
    while number < first + operations:
        io.die_in = draw.choice((0, draw.randrange(1, 10), draw.randrange(1, 3 * operations)))
        journal: Journal | None = None
        try:
            journal = open_journal(directory, io)
            host = Host(journal, seed)
            number = host.model.number
            io.acked(number)  # what recovery gave back may have been shown to somebody
            first = number if first < 0 else first
            while number < first + operations:
                number = host.step(io.started)
                io.acked(number)
                host.settle()
            if draw.random() < 0.5:
                journal.close()
            else:
                abandon(journal)
        except (Died, StoreError):
            if journal is not None:
                journal.close()
    return io


def check(image: Image, seed: int, parent: Path) -> Image:
    """Open the image, compare it, write on, open again; gives the image back with what recovery decided."""
    directory = parent / "image"
    image.write_to(directory)
    try:
        if image.acked:
            found = verify(directory)
            assert found.sound, f"verify takes a legal image for a damaged one: {found.damages[0]}"
        for round_number in range(2):
            journal = open_journal(directory, UnsyncedIO())
            host = Host(journal, seed)
            number = host.model.number
            if round_number == 0:
                assert image.acked <= number <= image.started, f"acked {image.acked}, found {number}"
            model = Model(seed)
            model.advance_to(number)
            host.check(model)
            for _ in range(3):
                host.step()
                host.settle()
            abandon(journal)
    finally:
        shutil.rmtree(directory)
    return image


def run(parent: Path, *, images: int, seed: int, operations: int = 120, seconds: float | None = None) -> int:
    """The number of images checked: that many, or what the seconds allow; AssertionError or StoreError, with the seed
    and the cut, at the first fault."""
    deadline = Deadline(seconds)
    draw = random.Random(seed)
    done = 0
    for trace_seed in itertools.count(seed * 1000):
        directory = parent / "traced"
        io = record(directory, trace_seed, operations, None)
        shutil.rmtree(directory)
        cuts = range(io.base, len(io.calls))
        # Half of the cuts where segments come and go, which is rare and where most can go wrong.
        rare = sorted({near for i in io.rare for near in range(i - 2, i + 4) if near in cuts})
        few = max(10, min(images // 40, 60))
        chosen = sorted({*draw.sample(cuts, few), *draw.sample(rare, min(few, len(rare)))})
        for image, where in images_at(io.calls, chosen, draw):
            try:
                check(image, trace_seed, parent)
                done += 1
                if draw.random() < 0.1:
                    done += again(image, trace_seed, parent, draw)
            except Exception as error:
                error.add_note(f"seed {seed}, trace {trace_seed}, cut {where}, {image.what}")
                raise
            if done >= images or deadline.passed:
                return done
    return done


def again(image: Image, seed: int, parent: Path, draw: random.Random) -> int:
    """The power fails a second time, while the image is recovered or just after."""
    directory = parent / "again"
    image.write_to(directory)
    io = record(directory, seed, 3, image)
    shutil.rmtree(directory)
    first = next(i for i, call in enumerate(io.calls) if call.what == "acked")
    for i in range(first):  # until recovery has spoken, the image still owes what it owed
        if io.calls[i].what == "sync_dir":
            io.calls[i : i + 1] = [
                io.calls[i],
                Call("acked", number=image.acked),
                Call("started", number=image.started),
            ]
            break
    chosen = sorted(draw.sample(range(io.base + 2, len(io.calls)), min(8, len(io.calls) - io.base - 2)))
    done = 0
    for second, where in images_at(io.calls, chosen, draw, most=2):
        try:
            check(second, seed, parent)
        except Exception as error:
            error.add_note(f"second cut {where}, {second.what}")
            raise
        done += 1
    return done


def images_at(
    calls: Sequence[Call], cuts: Sequence[int], draw: random.Random, most: int = 2**SUBSETS_MAX
) -> Iterator[tuple[Image, int]]:
    """Images of the disk after each of the calls ``cuts``; of one cut at most ``most``, spread over many cuts."""
    disk = Disk()
    at = 0
    for cut in cuts:
        for call in calls[at : cut + 1]:
            disk.apply(call)
        at = cut + 1
        few = most if draw.random() < 0.03 else 2
        for image in disk.images(draw, few):
            yield image, cut


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as parent:
        done = run(Path(parent), images=arguments.images, seed=arguments.seed)
    print(f"seed {arguments.seed}: {done} images, nothing acknowledged was lost, no batch was there by half")


if __name__ == "__main__":
    main()
