"""What copies of a host's log cost: a lone send, throughput, a copy that catches up, and one that takes over.

    python -m benchmarks.copies_cost lone
    python -m benchmarks.copies_cost throughput
    python -m benchmarks.copies_cost catch-up --messages 1000000
    python -m benchmarks.copies_cost takeover --messages 10000000

Three copies on this machine, each with a process (the leader's is this one), a folder and syncs of its own.  ``lone``
and ``throughput`` are measured at the host's own end of a connection, without a client and its socket: what a client
waits ``benchmarks.copies_client`` measures.  They are compared in alternating slices: ``lone`` with a host that has no
copies, and both with bare appends and syncs, here alone and in two other processes as well; ``throughput`` with a bare
pipe that appends and syncs in three processes, and sends what the others have to write.
``takeover`` stores messages that were sent one by one, each a block of its own, has the leader's process end, and
another copy lead: until its host has read what is stored, and for some seconds behind that, in which no copy may lose
sight of its leader.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import selectors
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from benchmarks.readings import quarters
from benchmarks.recovery_cost import fill_store
from raybroker.actors.hosts.host import SWITCH_S
from raybroker.config import Config
from raybroker.copies.copy import Copy, CopyPlace
from raybroker.copies.replicated_store import ReplicatedStore
from raybroker.engine.path import committer as committing
from raybroker.engine.path.committer import ThreadCommitter
from raybroker.engine.ports import Store
from raybroker.hosting.host_service import HostService, HostStorage
from raybroker.model.blocks.record import BLOCK, LogEntry
from raybroker.model.settings.settings import destination_attributes
from raybroker.services.native.native import NativeConnection
from raybroker.store.journal import Journal
from raybroker.system.clock import SystemClock
from raybroker.system.entropy import token
from raybroker.transport.loops import new_event_loop
from raybroker.wire.native import frames as wire
from raybroker.wire.native.connection import preface
from tests.fuzz.rig import QUEUE, TOKEN, Peer, send

SECRET = b"a secret of this run"
BODY = 1024
BLOCK_MESSAGES = 100
META = bytes(40)
WINDOW = Config.from_values({})["raybroker.producer.window_bytes"] // (BODY * BLOCK_MESSAGES)
"""Blocks that are not confirmed: as many as one producer has on their way."""
WATCHED_S = 20.0
"""How long copies are watched behind a takeover."""
BARE_BYTES = 64 << 20
LONE_ROWS = ("send, no copies", "send, three copies", "bare append and sync", "bare, and of two others the first")
LOOK_S = 0.001
"""What is confirmed otherwise than by other copies' answers is noticed within this time."""


class Follower:
    """A copy in a process of its own."""

    def __init__(self, directory: Path, node: str) -> None:
        self.directory, self.node = directory, node
        self.begin()

    def begin(self) -> None:
        command = [sys.executable, "-m", "benchmarks.copies_cost", "follower", str(self.directory), self.node]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        answer = self.answer()
        self.id, self.address = answer["id"], tuple(answer["address"])

    def tell(self, **what: Any) -> dict[str, Any]:
        self.ask(**what)
        return self.answer()

    def ask(self, **what: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        return cast(dict[str, Any], json.loads(self.process.stdout.readline()))

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def follow(directory: str, node: str) -> None:
    copy = Copy(CopyPlace(Path(directory), node, "bench/h1"), SECRET)
    address = copy.serve()
    print(json.dumps({"id": copy.id, "address": address}), flush=True)
    for line in sys.stdin:
        told = json.loads(line)
        copy.know({name: (ip, port) for name, (ip, port) in told.get("know", {}).items()})
        if "found" in told:
            copy.found(told["found"])
        answer = copy.status().as_row()
        if "lead" in told:
            answer = take_over(copy)
        elif "watch" in told:
            answer = watched(copy, told["watch"])
        print(json.dumps(answer), flush=True)
    copy.shut_down()


@contextmanager
def led(directory: Path) -> Iterator[tuple[Copy, list[Follower], dict[str, Any]]]:
    """A copy that leads two others, and where all are."""
    leader = Copy(CopyPlace(directory / "c0", "n0", "bench/h1"), SECRET)
    address = leader.serve()
    followers = [Follower(directory / f"c{number}", f"n{number}") for number in (1, 2)]
    ids = [leader.id, *(one.id for one in followers)]
    known = {leader.id: address, **{one.id: one.address for one in followers}}
    leader.know({one.id: one.address for one in followers})
    for one in followers:
        one.tell(know=known, found=ids)
    leader.found(ids)
    leader.lead()
    while not leader.may_dispatch():
        time.sleep(0.01)
    try:
        yield leader, followers, known
    finally:
        for one in followers:
            one.end()
        leader.shut_down()


class Sender:
    """A host and one connection to it."""

    def __init__(self, storage: HostStorage) -> None:
        config = Config.from_values({"imq.ping.interval": 0})
        self.service = HostService(storage, SystemClock(), config, token=TOKEN)
        self.copies = storage.copies
        self.seq = 0
        self.moved = asyncio.Event()

    async def open(self) -> None:
        await self.service.start(threaded=True)
        committer = self.service._committer
        if self.copies is not None:
            assert isinstance(committer, ThreadCommitter)
            loop = asyncio.get_running_loop()

            def finish() -> None:
                committer.finish_released()
                self.moved.set()

            def look() -> None:
                self.moved.set()
                loop.call_later(LOOK_S, look)

            self.copies.tell_released(lambda: loop.call_soon_threadsafe(finish))
            look()
        attributes = {**destination_attributes().as_dict("queue"), "maxNumMsgs": -1, "maxTotalMsgBytes": "-1"}
        await self.service.destinations.create("queue", QUEUE, attributes, False)
        self.peer = Peer(NativeConnection(self.service.service))
        self.peer.feed(preface(TOKEN))
        self.peer.feed(wire.call(1, "hello", {"started": True, "connection": "c"}))
        self.peer.feed(wire.call(2, "open_producer", {"handle": 1, "name": QUEUE, "type": "queue", "producer": 1}))
        self.peer.frames()

    async def _turn(self) -> None:
        """Let the loop turn, until others have answered: a loop that spins would keep their thread from running."""
        if self.copies is None:
            await asyncio.sleep(0)
            return
        await self.moved.wait()
        self.moved.clear()

    def _settled(self) -> int:
        """How many blocks were confirmed since the last call; the host says other things, too."""
        return sum(isinstance(frame, wire.SentFrame) for frame in self.peer.frames())

    async def lone(self, count: int) -> float:
        """Seconds a send."""
        began = time.perf_counter()
        for _ in range(count):
            self.seq += 1
            self.peer.feed(send(1, producer=1, first_seq=self.seq, bodies=(b"x" * BODY,)))
            while not self._settled():
                await self._turn()
        return (time.perf_counter() - began) / count

    async def stream(self, blocks: int) -> float:
        """Messages a second, blocks of 100, a window of them unconfirmed."""
        body = b"x" * BODY
        began, waiting, sent = time.perf_counter(), 0, 0
        while sent < blocks or waiting:
            while sent < blocks and waiting < WINDOW:
                self.peer.feed(send(1, producer=1, first_seq=self.seq + 1, bodies=(body,) * BLOCK_MESSAGES))
                self.seq += BLOCK_MESSAGES
                sent, waiting = sent + 1, waiting + 1
            await self._turn()
            waiting -= self._settled()
        return blocks * BLOCK_MESSAGES / (time.perf_counter() - began)


def replicated(leader: Copy) -> HostStorage:
    store = ReplicatedStore(leader)
    return HostStorage(cast(Store, store), copies=store)


async def compare_lone(directory: Path, rounds: int, count: int) -> None:
    # Both commit in the loop's own thread, as they do where the disk is quick, however busy this one is.
    committing.INLINE_NS_MAX = committing.INLINE_RUN_MAX = 1 << 62  # type: ignore[misc]
    bare = BarePipe(directory, BARE_BYTES)
    with led(directory) as (leader, _, _):
        plain = Sender(HostStorage(Journal(directory / "plain", monotonic_ns=time.monotonic_ns, entropy=token)))
        copied = Sender(replicated(leader))
        for one in (plain, copied):
            await one.open()
            await one.lone(50)
        found: tuple[list[float], ...] = ([], [], [], [])
        for _ in range(rounds):
            for one, into in zip((plain, copied), found[:2], strict=True):
                into.append(await one.lone(count))
            for with_copies, into in zip((False, True), found[2:], strict=True):
                into.append(bare.lone(count, copied=with_copies))
        for what, times in zip(LONE_ROWS, found, strict=True):
            print(f"{what:40}", quarters(times, "µs", 1e6))
        for what, alone, three in (("sends", *found[:2]), ("bare", *found[2:])):
            added = [b - a for a, b in zip(alone, three, strict=True)]
            print(f"{what:40}", quarters([b / a for a, b in zip(alone, three, strict=True)], "%", 100), end="")
            print(", added", quarters(added, "µs", 1e6))
        for one in (plain, copied):
            await one.service.close()
    bare.close()


# ---- the bare pipe


def bare_file(path: Path, reserve: int) -> int:
    """A file to append to; ``reserve``: bytes of it that have their place on the disk already, as in a journal."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    if reserve:
        os.posix_fallocate(fd, 0, reserve)
        os.fsync(fd)
    return fd


def sink(path: str, reserve: str) -> None:
    """Append and sync what comes, and answer each group."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(listening.getsockname()[1], flush=True)
        came, _ = listening.accept()
    came.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    fd = bare_file(Path(path), int(reserve))
    stream, at = came.makefile("rb"), 0
    while head := stream.read(4):
        data = stream.read(struct.unpack("<I", head)[0])
        os.pwrite(fd, data, at)
        os.fdatasync(fd)
        at += len(data)
        came.sendall(b"!")


class BarePipe:
    """One append and one sync a group in three processes: nothing else."""

    def __init__(self, directory: Path, reserve: int = 0) -> None:
        self.ends: list[socket.socket] = []
        self.processes: list[subprocess.Popen[str]] = []
        for number in (1, 2):
            path = directory / f"sink{number}"
            command = [sys.executable, "-m", "benchmarks.copies_cost", "sink", str(path), str(reserve)]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert process.stdout is not None
            self.ends.append(socket.create_connection(("127.0.0.1", int(process.stdout.readline()))))
            self.ends[-1].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.processes.append(process)
        self.fd = bare_file(directory / "sink0", reserve)
        self.at = 0

    def lone(self, count: int, *, copied: bool) -> float:
        """Seconds a message of one body; ``copied``: until the first of the others has answered, too."""
        data = bytes(BODY)
        frame = struct.pack("<I", len(data)) + data
        answered = [0, 0]
        with selectors.DefaultSelector() as selector:
            for number, end in enumerate(self.ends):
                selector.register(end, selectors.EVENT_READ, number)

            def read(sent: int, least: Callable[[list[int]], int]) -> None:
                while least(answered) < sent:
                    for key, _ in selector.select():
                        answered[key.data] += len(self.ends[key.data].recv(4096))

            began = time.perf_counter()
            for sent in range(1, count + 1):
                for end in self.ends if copied else ():
                    end.sendall(frame)
                os.pwrite(self.fd, data, self.at)
                os.fdatasync(self.fd)
                self.at += len(data)
                read(sent if copied else 0, max)
            took = time.perf_counter() - began
            read(count if copied else 0, min)
        return took / count

    def stream(self, blocks: int, group: int) -> float:
        data = bytes(BODY * BLOCK_MESSAGES * group)
        head = struct.pack("<I", len(data))
        began = time.perf_counter()
        for _ in range(blocks // group):
            for end in self.ends:
                end.sendall(head + data)
            os.pwrite(self.fd, data, self.at)
            os.fdatasync(self.fd)
            self.at += len(data)
            self.ends[0].recv(1)  # A majority has it; the other answer is read later.
            self.ends[1].recv(1)
        return blocks // group * group * BLOCK_MESSAGES / (time.perf_counter() - began)

    def close(self) -> None:
        for end in self.ends:
            end.close()
        for process in self.processes:
            process.wait()


async def compare_throughput(directory: Path, rounds: int, blocks: int) -> None:
    pipe = BarePipe(directory)
    with led(directory) as (leader, _, _):
        copied = Sender(replicated(leader))
        await copied.open()
        await copied.stream(blocks // 4)
        best = max((1, 2, 4, 8, 16), key=lambda group: pipe.stream(blocks // 2, group))
        found: tuple[list[float], list[float]] = ([], [])
        for _ in range(rounds):
            found[0].append(pipe.stream(blocks, best))
            found[1].append(await copied.stream(blocks))
        ratios = [b / a for a, b in zip(*found, strict=True)]
        print(f"bare pipe, three syncs, groups of {best} blocks ", quarters(found[0], "messages/s"))
        print("host with three copies                    ", quarters(found[1], "messages/s"))
        print(f"ratio: {statistics.median(ratios):.2f}, at least 0.3 wanted")
        await copied.service.close()
    pipe.close()


# ---- a copy that catches up


class Load(threading.Thread):
    """Blocks to the leader as fast as a window lets them, until told to stop; ``done``: messages that are released."""

    def __init__(self, leader: Copy, store: ReplicatedStore, first: int) -> None:
        super().__init__(daemon=True)
        self.leader, self.store, self.next = leader, store, first
        self.over = False
        self.done = 0

    def run(self) -> None:
        body = bytes(BODY * BLOCK_MESSAGES)
        while not self.over:
            self.store.commit([LogEntry(BLOCK, 1, self.next, META, (body,))])
            self.next += 1
            self.done += BLOCK_MESSAGES
            while self.store.last_index() - self.leader.released > WINDOW:
                time.sleep(0.0002)


def catch_up(directory: Path, messages: int) -> None:
    with led(directory) as (leader, followers, known):
        store = ReplicatedStore(leader)
        list(store.recover_runs())
        away = followers[1]
        away.end()
        load = Load(leader, store, 1)
        load.start()
        began = time.perf_counter()
        while load.done < messages:
            time.sleep(0.01)
        before = load.done / (time.perf_counter() - began)
        done, began = load.done, time.perf_counter()
        away.begin()
        leader.know({away.id: away.address})
        known[away.id] = away.address
        away.tell(know=known)

        def behind() -> int:
            return next(one.behind for one in leader.status().copies if one.copy == away.id)

        while behind() > 64:
            time.sleep(0.02)
        took = time.perf_counter() - began
        meanwhile = (load.done - done) / took
        load.over = True
        load.join()
        print(f"{messages:,} messages of {BODY} bytes missed: caught up in {took:.1f} s, at most 30 s wanted")
        print(
            f"the leader meanwhile: {meanwhile:,.0f} messages/s of {before:,.0f}, {meanwhile / before:.2f};"
            " at least 0.7 wanted"
        )


# ---- a copy that takes over


def take_over(copy: Copy) -> dict[str, Any]:
    """Lead, and begin the host; seconds until either."""
    began = time.perf_counter()
    copy.lead()
    while not copy.leads:
        time.sleep(0.001)
    elected = time.perf_counter() - began
    service = HostService(
        replicated(copy), SystemClock(), Config.from_values({"imq.ping.interval": 0}), token=TOKEN, key="bench/h1"
    )
    threading.Thread(target=run, args=(_serve(service, begun := threading.Event()),), daemon=True).start()
    begun.wait()
    return {"elected": elected, "started": time.perf_counter() - began - elected, "peak_mb": peak_mb()}


async def _serve(service: HostService, begun: threading.Event) -> None:
    await service.start(threaded=True)
    begun.set()
    await asyncio.Event().wait()


def watched(copy: Copy, seconds: float) -> dict[str, Any]:
    """The longest time within so many seconds in which a copy heard no leader, and in which it said nothing itself."""
    end, unled, silent = time.perf_counter() + seconds, 0.0, 0.0
    led = asked = time.perf_counter()
    while asked < end:
        is_led, now = copy.is_led(), time.perf_counter()
        silent, asked = max(silent, now - asked), now
        if is_led:
            led = now
        unled = max(unled, now - led)
        time.sleep(0.005)
    return {"unled": unled, "silent": silent}


def peak_mb() -> float:
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def takeover(directory: Path, messages: int, per_commit: int, settled: int) -> None:
    with led(directory) as (leader, followers, known):
        store = ReplicatedStore(leader)
        list(store.recover_runs())
        began = time.perf_counter()
        fill_store(cast(Store, store), messages, 100, per_commit, settled, priorities=False)
        last = store.last_index()
        print(f"{messages:,} messages in {last:,} entries, in {time.perf_counter() - began:.0f} s", flush=True)
        while any(one.behind for one in leader.status().copies):
            time.sleep(0.02)
        leader.shut_down()
        next_leader, other = followers
        while any(one.tell()["led"] for one in followers):
            time.sleep(0.02)
        other.ask(watch=WATCHED_S)
        found = next_leader.tell(lead=True)
        print(
            f"elected after {found['elected']:.2f} s, its host started after {found['started']:.2f} s more,"
            f" at most {found['peak_mb']:.0f} MB resident; load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
        print_seen("the third copy", other.answer())
        began = time.perf_counter()
        followers.append(back := Follower(directory / "c0", "n0"))
        print(f"the copy that led is back after {time.perf_counter() - began:.2f} s", flush=True)
        known[back.id] = back.address
        for one in followers:
            one.tell(know=known)
        for one in (other, back):
            one.ask(watch=WATCHED_S)
        print_seen("the third copy", other.answer())
        print_seen("the copy that is back", back.answer())


def print_seen(who: str, seen: dict[str, Any]) -> None:
    print(
        f"within {WATCHED_S:.0f} s {who} was without a leader for {seen['unled']:.2f} s at most, and busy for"
        f" {seen['silent']:.2f} s; load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run it as a host's process runs its host."""
    sys.setswitchinterval(SWITCH_S)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(work)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("lone", "throughput", "catch-up", "takeover", "follower", "sink"))
    parser.add_argument("rest", nargs="*")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--count", type=int, default=300, help="sends, or blocks, of a slice")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--per-commit", type=int, default=20, help="messages of a commit, for takeover")
    parser.add_argument("--settled", type=int, default=0, metavar="N", help="acknowledge every N-th, for takeover")
    parser.add_argument("--dir", help="a folder on the disk to test")
    given = parser.parse_args()
    if given.what == "follower":
        follow(*given.rest)
        return
    if given.what == "sink":
        sink(*given.rest)
        return
    directory = Path(tempfile.mkdtemp(prefix="copies-", dir=given.dir))
    try:
        if given.what == "lone":
            run(compare_lone(directory, given.rounds, given.count))
        elif given.what == "throughput":
            run(compare_throughput(directory, given.rounds, given.count))
        elif given.what == "takeover":
            takeover(directory, given.messages, given.per_commit, given.settled)
        else:
            catch_up(directory, given.messages)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
