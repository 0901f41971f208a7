"""T5: damaged bytes are named or harmless, never given out."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from raybroker.model.errors import StoreDamagedError
from raybroker.store.journal import verify
from tests.store_faults import bit_rot
from tests.store_faults.script import Host, UnsyncedIO, open_journal

SEED = 3


FEW, MANY = 100, 5000


def test_a_few_damages_give_no_wrong_bytes_out(tmp_path: Path) -> None:
    counts = bit_rot.run(tmp_path, damages=FEW, seed=1)
    assert counts["open"] + counts["read"] >= FEW // 10, counts


@pytest.mark.sweep
@pytest.mark.parametrize("seed", [1, 2])
def test_no_damage_gives_wrong_bytes_out(tmp_path: Path, seed: int, sweep_seconds: float) -> None:
    counts = bit_rot.run(tmp_path, damages=MANY, seed=seed, seconds=sweep_seconds)
    assert counts["open"] + counts["read"] >= sum(counts.values()) // 10, counts


def test_every_bit_of_a_live_payload_matters(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    _, now, model = bit_rot.build(directory, SEED)
    draw = random.Random(SEED)
    journal = open_journal(directory, UnsyncedIO())
    Host(journal, SEED)
    key = max(model.live, key=lambda key: model.live[key])
    value = journal._index[key[0]][key[1]]
    slot = journal._log.segments[value >> 96].slot
    journal.close()
    now = {path.name: path.read_bytes() for path in directory.iterdir()}
    start, nbytes = value >> 64 & 0xFFFFFFFF, value >> 32 & 0xFFFFFFFF
    for _ in range(20):
        at = draw.randrange(start * 8, (start + nbytes) * 8)
        name = f"segment-{slot:06d}"
        data = bytearray(now[name])
        data[at // 8] ^= 1 << at % 8
        bit_rot.write({**now, name: bytes(data)}, directory)
        journal = open_journal(directory, UnsyncedIO())
        Host(journal, SEED)
        with pytest.raises(StoreDamagedError, match=rf"{name}: {nbytes} bytes at offset {start} .*block {key[1]}"):
            journal.read(*key)
        journal.close()


def test_a_refused_open_changes_nothing_and_names_the_segment(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    _, now, _ = bit_rot.build(directory, SEED)
    journal = open_journal(directory, UnsyncedIO())
    list(journal.recover())
    active = journal._log.active
    slot, number, end = active.slot, active.number, active.data_end
    journal.close()
    now = {path.name: path.read_bytes() for path in directory.iterdir()}
    name = f"segment-{slot:06d}"
    data = bytearray(now[name])
    data[end - 512] ^= 1
    data[512] ^= 1
    now[name] = bytes(data)
    bit_rot.write(now, directory)
    with pytest.raises(
        StoreDamagedError, match=rf"{name}: segment {number} is damaged at offset 512: .*entries \d+ to"
    ):
        open_journal(directory, UnsyncedIO())
    after = {path.name: path.read_bytes() for path in directory.iterdir()}
    assert {name for name in now if now[name] != after[name]} <= {"lock"}
    assert not verify(directory).sound


def test_a_damaged_summary_is_replaced_by_the_batches_themselves(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    _, now, model = bit_rot.build(directory, SEED)
    journal = open_journal(directory, UnsyncedIO())
    list(journal.recover())
    sealed = bit_rot.summed_up(journal)
    journal.close()
    now = {path.name: path.read_bytes() for path in directory.iterdir()}
    for segment in sealed:
        name = f"segment-{segment.slot:06d}"
        data = bytearray(now[name])
        data[segment.summary_offset] ^= 1
        now[name] = bytes(data)
    bit_rot.write(now, directory)
    journal = open_journal(directory, UnsyncedIO())
    Host(journal, SEED).check(model)
    assert len(journal.notices()) == len(sealed) > 0
    journal.close()
