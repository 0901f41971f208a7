"""Bit rot: whatever happens to the bytes of a closed store, no wrong byte is ever given out as a right one.

    python -m tests.store_faults.bit_rot --damages 1500 --seed 1

A store is filled, closed, and damaged: flipped bits, zeroed sectors, truncated files, pages as they were in an earlier
image, exchanged or missing files.  Then it is opened and everything in it is read.  Either that names the damage, or
state and payloads are exactly what they should be; in the latter case ``verify`` must find the damage, unless it only
touched bytes that mean nothing: padding, unused space, free files, the pid in the lock file.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
from collections import Counter
from pathlib import Path

from raybroker.model.errors import StoreDamagedError
from raybroker.store.journal import Journal, Report, verify
from raybroker.store.journal.own_files import BODY_PREFIX
from raybroker.store.journal.segment import Segment
from tests.store_faults.script import Host, Model, UnsyncedIO, open_journal, payload_of
from tests.sweep import Deadline

MARK = "commit.mark"
SECTOR_BYTES = 512
PAGE_BYTES = 4096
OPERATIONS_MAX = 300
"""By then a log has had a summary that counts."""
Image = dict[str, bytes]


def summed_up(journal: Journal) -> list[Segment]:
    """The segments that recovery reads from their summaries: sealed, and before the last checkpoint."""
    return [s for s in journal._log.segments.values() if s.sealed and s.number < journal._checkpoint.segment]


def build(directory: Path, seed: int) -> tuple[Image, Image, Model]:
    """(an earlier image, the last image, what the last one holds); both of a closed store, the last one with a summary
    that counts: a log that was emptied, or compacted in a rest, has none for a while."""
    images = []
    model = Model(seed)
    for operations in (60, 60):
        journal = open_journal(directory, UnsyncedIO())
        host = Host(journal, seed)
        for _ in range(operations):
            host.step()
            host.settle()
        while images and not summed_up(journal):
            assert host.model.number < OPERATIONS_MAX, "a log that never has a summary shows nothing about them"
            host.step()
            host.settle()
        journal.close()
        images.append({path.name: path.read_bytes() for path in directory.iterdir()})
        model = host.model.copy()
    return images[0], images[1], model


def damaged(now: Image, earlier: Image, draw: random.Random) -> tuple[Image, str]:
    """The image with one damage, and what it is."""
    image = dict(now)
    some = sorted(name for name in now if now[name] and (name.startswith("segment") or draw.random() < 0.5))
    name = draw.choice(some)
    data = bytearray(now[name])
    kind = draw.choice(("bit", "bit", "bit", "sector", "sector", "truncate", "page", "page", "file", "swap", "remove"))
    if kind == "bit":
        at = draw.randrange(len(data) * 8)
        data[at // 8] ^= 1 << at % 8
        what = f"bit {at % 8} of byte {at // 8} of {name} flipped"
    elif kind == "sector":
        at = draw.randrange(-(-len(data) // SECTOR_BYTES)) * SECTOR_BYTES
        data[at : at + SECTOR_BYTES] = bytes(len(data[at : at + SECTOR_BYTES]))
        what = f"sector at {at} of {name} zeroed"
    elif kind == "truncate":
        at = draw.randrange(len(data))
        del data[at:]
        what = f"{name} cut at {at}"
    elif kind == "page":
        old = earlier.get(name, b"")
        at = draw.randrange(-(-len(data) // PAGE_BYTES)) * PAGE_BYTES
        page = old[at : at + PAGE_BYTES]
        data[at : at + len(page)] = page
        what = f"page at {at} of {name} as it was earlier"
    elif kind == "file" and name in earlier:
        data = bytearray(earlier[name])
        what = f"{name} as it was earlier"
    elif kind == "remove":
        del image[name]
        return image, f"{name} removed"
    else:
        other = draw.choice(sorted(other for other in now if other.startswith("segment")))
        image[other] = now[name]
        data = bytearray(now[other])
        what = f"{name} and {other} exchanged"
    image[name] = bytes(data)
    return image, what


def write(image: Image, directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(mode=0o700)
    for name, data in image.items():
        (directory / name).write_bytes(data)
        (directory / name).chmod(0o600)


def noticed(directory: Path, seed: int, model: Model) -> str:
    """Where the damage shows: open, read, or nowhere; AssertionError if something wrong is given out as right."""
    try:
        journal = open_journal(directory, UnsyncedIO())
    except StoreDamagedError:
        return "open"
    try:
        host = Host(journal, seed)
        assert host.model.number == model.number, f"{model.number} operations, found {host.model.number}"
        assert host.model.live == model.live, "other blocks than there should be"
        bad = 0
        for (destination, ordinal), nbytes in model.live.items():
            try:
                data = journal.read(destination, ordinal)
            except StoreDamagedError:
                bad += 1
                continue
            assert data == payload_of(destination, ordinal, nbytes), f"wrong bytes of {destination}/{ordinal}"
        return "read" if bad else "nowhere"
    except StoreDamagedError:
        return "open"
    finally:
        journal.close()


def meaningful(now: Image, earlier: Image, image: Image, sound: Report) -> bool:
    """Whether the damage touched a byte that a sound store of this content is checked for."""
    for name in now:
        if name == "lock" or (name == MARK and image.get(name) == earlier[name]):
            continue  # an old mark says less and nothing false: after a power cut it would be a legal one
        old, new = now[name], image.get(name)
        if new is None and name.startswith(BODY_PREFIX):
            continue  # it may have belonged to a block that is dead; whoever reads a living one is told
        for start, end in sound.covered.get(name, ()):
            if new is None or old[start:end] != new[start:end]:
                return True
    return False


def run(parent: Path, *, damages: int, seed: int, seconds: float | None = None) -> Counter[str]:
    """How many damages showed where: that many, or what the seconds allow; AssertionError with the seed at the first
    that is not noticed."""
    deadline = Deadline(seconds)
    draw = random.Random(seed)
    counts: Counter[str] = Counter()
    stores = max(1, damages // 500)
    for number in range(stores):
        directory = parent / "store"
        store_seed = seed * 100 + number
        shutil.rmtree(directory, ignore_errors=True)
        earlier, now, model = build(directory, store_seed)
        sound = verify(directory)
        assert sound.sound, sound.damages
        for i in range(-(-damages // stores)):
            image, what = damaged(now, earlier, draw)
            where = f"seed {seed}, store {number}, damage {i}: {what}"
            if image == now:
                counts["no change"] += 1
                continue
            try:
                counts[judge(directory, image, store_seed, model, meaningful(now, earlier, image, sound))] += 1
            except BaseException as error:
                error.add_note(where)
                raise
            if deadline.passed:
                return counts
    return counts


def judge(directory: Path, image: Image, seed: int, model: Model, touched: bool) -> str:
    write(image, directory)
    if "lock" in image:
        found = not verify(directory).sound
        assert found or not touched, "verify finds nothing"
    write(image, directory)
    place = noticed(directory, seed, model)
    if place != "nowhere":
        return place
    return "verify (redundant or dead bytes)" if touched else "harmless (unused bytes)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--damages", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as parent:
        counts = run(Path(parent), damages=arguments.damages, seed=arguments.seed)
    print(f"seed {arguments.seed}: {sum(counts.values())} damages, noticed at: {dict(counts)}")


if __name__ == "__main__":
    main()
