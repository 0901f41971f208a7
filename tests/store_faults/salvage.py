"""Salvage of damaged stores: a host with queues, durable subscriptions and transactions, damage, and an oracle.

    python -m tests.store_faults.salvage --damages 500 --seed 1

The oracle knows what was sent and acknowledged, and from the undamaged files in which bytes each message stands.  After
a salvage the store opens; every message comes out that was owed and whose bytes are intact; none comes out that was
never sent; and one that was acknowledged comes flagged as redelivered.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from raybroker.actors.stores.salvage import SalvageReport, salvage_store
from raybroker.engine.salvage import KIND
from raybroker.model.blocks.record import BLOCK, CHECKPOINT
from raybroker.store.fileio import FileIO
from raybroker.store.journal import Journal
from raybroker.store.journal.anchors import Manifest
from raybroker.store.journal.format import JournalRow
from raybroker.store.journal.scan import SegmentScan
from raybroker.store.journal.segment import segment_name
from tests.store_faults.bit_rot import Image, write
from tests.store_faults.script import UnsyncedIO, open_journal
from tests.sweep import Deadline
from tests.unit.engine.rig import DMQ, Client, Rig

QUEUES = ("q", "r")
SUBSCRIPTIONS = ("s", "u")
SEGMENT_BYTES = 16 << 10
TWICE = 0.25
"""Of the damages, how many are two."""
TEXT = re.compile(rb"<[a-z]+-\d{4}>")
Place = tuple[str, str]
"""(queue, "") or ("t", durable subscription)."""


@dataclass(frozen=True)
class Batch:
    """Where a batch stands in the undamaged files."""

    file: str
    offset: int
    head: int
    nbytes: int
    rows: list[JournalRow]
    sealed: bool

    def texts(self, data: bytes, row: JournalRow) -> list[str]:
        start = self.offset + row.offset
        return [found.decode() for found in TEXT.findall(data[start : start + row.nbytes])]


@dataclass
class Built:
    """A closed store. ``owed``: what each place has to give; ``acked``: what it is done with; ``undecided``: messages
    of a prepared transaction."""

    image: Image
    sent: set[str] = field(default_factory=set)
    owed: dict[Place, set[str]] = field(default_factory=dict)
    acked: dict[Place, set[str]] = field(default_factory=dict)
    undecided: set[str] = field(default_factory=set)

    def batches(self) -> Iterator[Batch]:
        manifest = manifest_of(self.image)
        for record in manifest.segments:
            name = segment_name(record.slot)
            data = self.image[name]
            scan = SegmentScan(_Memory(data), 0, record.number, record.data_end if record.sealed else len(data))
            try:
                for offset, header, rows in scan.batches(512, record.chain, record.first_seq):
                    yield Batch(name, offset, header.head_bytes, header.nbytes, rows, record.sealed)
            except ValueError:
                assert not record.sealed


class _Memory(FileIO):
    """One file in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def pread(self, fd: int, nbytes: int, offset: int) -> bytes:
        return self._data[offset : offset + nbytes]


def manifest_of(image: Image) -> Manifest:
    return max((Manifest.decode(image[f"manifest.{i}"]) for i in (0, 1)), key=lambda one: one.generation)


def files_of(directory: Path) -> Image:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


class World:
    """A host over a journal of small segments."""

    def __init__(self, directory: Path, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.journal: Journal = open_journal(directory, UnsyncedIO(), record_bytes=-1, segment_bytes=segment_bytes)
        self.rig: Any = Rig(self.journal, self.journal.incarnation)  # type: ignore[arg-type]

    def step(self) -> None:
        self.rig.sync()
        while self.journal.maintain(1 << 20):
            pass

    def close(self) -> None:
        self.rig.sync()
        self.journal.close()


def build(directory: Path, seed: int, *, messages: int = 120, segment_bytes: int = SEGMENT_BYTES) -> Built:
    draw = random.Random(seed)
    world = World(directory, segment_bytes)
    rig, built = world.rig, Built({})
    for name in QUEUES:
        rig.create(name)
    rig.create("t", "topic")
    places = [(name, "") for name in QUEUES] + [("t", name) for name in SUBSCRIPTIONS]
    for place in places:
        built.owed[place], built.acked[place] = set(), set()
    client = Client(rig, "c")
    consumers = {place: _consumer(client, place) for place in places}
    producers = {
        name: client.producer(name, "topic" if name == "t" else "queue", number)
        for number, name in enumerate((*QUEUES, "t"), 20)
    }
    pending: dict[Place, list[str]] = {place: [] for place in places}
    for number in range(messages):
        name = draw.choice((*QUEUES, "t"))
        texts = [f"<{name}-{number * 8 + i:04d}>" for i in range(draw.choice((1, 1, 1, 3)))]
        padded = [text + "." * draw.randrange(120) for text in texts]
        if draw.random() < 0.15:
            client.ok("txn_begin", txn=number + 1, key=number.to_bytes(16, "big"))
            client.send(producers[name], *padded, txn=number + 1)
            client.ok("txn_commit", txn=number + 1, key=number.to_bytes(16, "big"), acks=[])
        else:
            client.send(producers[name], *padded)
        world.step()
        built.sent.update(texts)
        for place in places:
            if place[0] == name:
                built.owed[place].update(texts)
        _take(client, consumers, pending)
        for place, consumer in consumers.items():
            if pending[place] and draw.random() < 0.3:
                some = [body for body in pending[place] if draw.random() < 0.6]
                client.ack(consumer, *some)
                pending[place] = [body for body in pending[place] if body not in some]
                done = {body[: body.index(">") + 1] for body in some}
                built.owed[place] -= done
                built.acked[place] |= done
        world.step()
    client.send(producers["q"], "<q-9999>", txn=9999)
    client.ok("txn_prepare", txn=9999, key=b"p" * 16, coordinator="h9", acks=[])
    built.sent.add("<q-9999>")
    built.undecided.add("<q-9999>")
    client.session.close()
    world.close()
    built.image = files_of(directory)
    return built


def _consumer(client: Client, place: Place) -> int:
    name, subscription = place
    if not subscription:
        return client.consumer(name, limit=10_000)
    own = {"name": subscription, "durable": True, "shared": False}
    return client.consumer(name, "topic", limit=10_000, subscription=own)


def _take(client: Client, consumers: dict[Place, int], into: dict[Place, list[str]]) -> None:
    """What has come to any of them since the last time."""
    client.rig.sync()
    places = {handle: place for place, handle in consumers.items()}
    for _, to, tag, attempt, block in client.peer.take("deliver"):
        for index in range(block.count):
            body = bytes(block.body(index)).decode()
            client.tags[to, body] = tag + index
            into[places[to]].append(body if attempt < 2 else f"{body}!")


@dataclass
class Out:
    """What a salvaged store gives: text → whether it was flagged as redelivered; ``where``: names of destinations."""

    given: dict[Place, dict[str, bool]]
    names: set[str]
    notes: list[str]


def drain(directory: Path) -> Out:
    """Everything that comes out of a store that opens; of a copy, because it is acknowledged."""
    copy = directory.with_name(directory.name + "-copy")
    shutil.rmtree(copy, ignore_errors=True)
    world = World(shutil.copytree(directory, copy))
    client = Client(world.rig, "c")
    places: list[Place] = []
    quarantine = world.rig.host.quarantine
    if ("queue", DMQ) not in world.rig.host.registry.destinations:
        world.rig.create(DMQ)
    for destination in list(world.rig.host.registry.destinations.values()):
        for damaged_block in list(quarantine.read_blocks(destination)):
            if damaged_block is not None:
                quarantine.skip(destination, damaged_block, lambda done: None)
        world.rig.sync()
    for kind, name in list(world.rig.host.registry.destinations):
        if name == DMQ:
            continue
        if kind == "queue":
            places.append((name, ""))
            continue
        subscriptions = [queue.subscription for queue in world.rig.destination(name, "topic").queues.values()]
        places += [(name, one.name) for one in subscriptions if one is not None and one.name]
    consumers = {}
    for place in places:
        if place[1].startswith(KIND):
            other = Client(world.rig)
            own = {"name": place[1], "durable": True, "shared": True}
            consumers[place] = other, other.consumer(place[0], "topic", limit=10_000, subscription=own)
        else:
            consumers[place] = client, _consumer(client, place)
    given: dict[Place, dict[str, bool]] = {place: {} for place in places}
    for owner in {id(c): c for c, _ in consumers.values()}.values():
        handles = {place: handle for place, (c, handle) in consumers.items() if c is owner}
        while True:  # Shared subscriptions give some at a time.
            got: dict[Place, list[str]] = {place: [] for place in places}
            _take(owner, handles, got)
            for place, handle in handles.items():
                if got[place]:
                    owner.ack(handle, *[body.rstrip("!") for body in got[place]])
                for body in got[place]:
                    given[place][body[: body.index(">") + 1]] = body.endswith("!")
            if not any(got.values()):
                break
    notes = world.journal.notices()
    names = {place[0] for place in places}
    world.close()
    return Out(given, names, notes)


def touched(built: Built, image: Image) -> tuple[set[str], set[str]]:
    """Texts whose own bytes were touched, and texts of batches whose head was, and which no summary knows."""
    bytes_hit, heads_hit = set[str](), set[str]()
    anchors = ("manifest.0", "manifest.1", "commit.mark")
    known = {
        segment_name(r.slot): (r.summary_offset, r.summary_offset + r.summary_bytes)
        for r in manifest_of(built.image).segments
        if r.sealed and all(image.get(name) == built.image[name] for name in anchors)
    }
    for batch in built.batches():
        old, new = built.image[batch.file], image.get(batch.file, b"")
        end = batch.offset + batch.head
        head = old[batch.offset : end] != new[batch.offset : end]
        start, stop = known.get(batch.file, (0, 0))
        lost = head and (start == stop or old[start:stop] != new[start:stop])
        for row in batch.rows:
            if row.kind != BLOCK:
                continue
            start = batch.offset + row.offset
            texts = batch.texts(old, row)
            if old[start : start + row.nbytes] != new[start : start + row.nbytes]:
                bytes_hit.update(texts)
            if lost:
                heads_hit.update(texts)
    return bytes_hit, heads_hit


def check(directory: Path, built: Built, image: Image) -> SalvageReport:
    """Salvage it and hold what comes out against the oracle."""
    write(image, directory)
    report = salvage_store(directory, io=UnsyncedIO())
    again = salvage_store(directory, io=UnsyncedIO())
    assert not again.why, f"it still does not open: {again.why}"
    bytes_hit, heads_hit = touched(built, image)
    out = drain(directory)
    assert bool(report.why) == any("set aside" in line for line in out.notes)
    everywhere = {text for given in out.given.values() for text in given}
    assert everywhere <= built.sent, f"never sent: {everywhere - built.sent}"
    for place, owed in built.owed.items():
        got = out.given.get(place, {})
        if place in out.given:
            missing = owed - got.keys() - bytes_hit - heads_hit - _elsewhere(out, place)
            assert not missing, f"{place} lacks {sorted(missing)}"
            for text in got.keys() & built.acked[place]:
                assert got[text], f"{text} was acknowledged at {place}, and comes unflagged"
        elif owed - bytes_hit - heads_hit:
            left = owed - bytes_hit - heads_hit - _elsewhere(out, place)
            assert not left, f"{place} is not there, and {sorted(left)} are nowhere"
    for row in report.destinations if not bytes_hit else ():
        got = {text for (name, _), given in out.given.items() if name == row["name"] for text in given}
        hidden = len(built.undecided) if row["name"] == "q" or row["definition_lost"] else 0
        if row["name"] != DMQ:
            assert len(got) <= row["kept_messages"] <= len(got) + hidden, f"{row} is told, and {len(got)} come"
    return report


def _elsewhere(out: Out, place: Place) -> set[str]:
    """What comes out at a destination or subscription that was made because its own definition is lost."""
    return {text for (name, sub), given in out.given.items() if KIND in name + sub for text in given}


# ---- damage


def flipped(image: Image, name: str, at: int, bit: int = 0) -> Image:
    data = bytearray(image[name])
    data[at] ^= 1 << bit
    return {**image, name: bytes(data)}


def places_of_heads(built: Built) -> list[tuple[str, int, bool]]:
    """(file, an offset in the head, whether the batch has a checkpoint) of each batch."""
    return [(b.file, b.offset + b.head - 1, any(row.kind == CHECKPOINT for row in b.rows)) for b in built.batches()]


def damaged(built: Built, draw: random.Random) -> tuple[Image, str]:
    """One damage that counts: mostly a bit of a head."""
    image = built.image
    used = [segment_name(record.slot) for record in manifest_of(image).segments]
    kind = draw.choice(("head", "head", "head", "bit", "anchor", "cut", "removed", "zeros"))
    if kind == "head":
        batch = draw.choice(list(built.batches()))
        at = batch.offset + draw.randrange(batch.head)
        return flipped(image, batch.file, at, draw.randrange(8)), f"a head of {batch.file} at {at}"
    name = draw.choice(used)
    if kind == "bit":
        at = draw.randrange(len(image[name]))
        return flipped(image, name, at, draw.randrange(8)), f"a bit of {name} at {at}"
    if kind == "anchor":
        name = draw.choice(("manifest.0", "manifest.1", "commit.mark"))
        if draw.random() < 0.2:
            return {n: data for n, data in image.items() if n != name}, f"{name} removed"
        at = draw.randrange(min(len(image[name]), 200))
        return flipped(image, name, at, draw.randrange(8)), f"{name} at {at}"
    if kind == "cut":
        at = draw.randrange(len(image[name]))
        return {**image, name: image[name][:at]}, f"{name} cut at {at}"
    if kind == "zeros":
        at = draw.randrange(len(image[name]) // 512) * 512
        return {**image, name: image[name][:at] + bytes(512) + image[name][at + 512 :]}, f"{name} zeros at {at}"
    return {n: data for n, data in image.items() if n != name}, f"{name} removed"


def run(parent: Path, *, damages: int, seed: int, seconds: float | None = None) -> Counter[str]:
    """How many stores had to be salvaged; AssertionError with the damage at the first that is not right."""
    deadline, draw, counts = Deadline(seconds), random.Random(seed), Counter[str]()
    built = build(parent / "built", seed)
    for number in range(damages):
        image, what = damaged(built, draw)
        if draw.random() < TWICE:
            second, more = damaged(built, draw)
            both = {name: data for name, data in image.items() if name in second}
            both |= {name: data for name, data in second.items() if data != built.image[name] and name in both}
            image, what = both, f"{what}; {more}"
        try:
            report = check(parent / "store", built, image)
        except BaseException as error:
            error.add_note(f"seed {seed}, damage {number}: {what}")
            raise
        counts["salvaged" if report.why else "opens"] += 1
        if deadline.passed:
            break
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--damages", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as parent:
        print(f"seed {arguments.seed}: {dict(run(Path(parent), damages=arguments.damages, seed=arguments.seed))}")


if __name__ == "__main__":
    main()
