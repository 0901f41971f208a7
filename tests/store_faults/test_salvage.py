"""Salvage of damaged stores: what is intact comes out, and what is lost is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raybroker.actors.stores.salvage import salvage_store
from raybroker.engine.salvage import KIND
from raybroker.model.blocks.record import BLOCK, CHECKPOINT
from raybroker.model.errors import StoreDamagedError, StoreError
from raybroker.store.journal import set_aside, verify
from raybroker.store.journal.segment import segment_name
from tests.store_faults import salvage as rig
from tests.store_faults.bit_rot import Image, write
from tests.store_faults.salvage import Built, check, drain, files_of, flipped, manifest_of
from tests.store_faults.script import UnsyncedIO, open_journal

pytestmark = pytest.mark.xdist_group("salvage")  # One worker makes what they share.

MANY = 5_000


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """A store of several segments, some of them before its last checkpoint."""
    built = rig.build(tmp_path_factory.mktemp("built") / "store", 1)
    assert len(manifest_of(built.image).segments) > 2
    return built


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """A store without a checkpoint: all of it is in one segment."""
    built = rig.build(tmp_path_factory.mktemp("small") / "store", 2, messages=12, segment_bytes=1 << 20)
    assert not any(row.kind == CHECKPOINT for batch in built.batches() for row in batch.rows)
    return built


def salvaged(store: Path, image: Image, **options: Any) -> Any:
    write(image, store)
    return salvage_store(store, io=UnsyncedIO(), **options)


def test_a_bit_of_any_head_costs_that_batch_and_no_more(tmp_path: Path, small: Built) -> None:
    batches = list(small.batches())
    for number, batch in enumerate(batches):
        report = check(tmp_path / "store", small, flipped(small.image, batch.file, batch.offset + batch.head - 1))
        assert report.why
        (lost,) = report.ranges
        before = sum(len(one.rows) for one in batches[:number])
        assert (lost.file, lost.offset, lost.first_seq) == (batch.file, batch.offset, before)
        assert lost.entries == len(batch.rows)


def test_a_bit_of_any_head_of_a_store_of_many_segments(tmp_path: Path, built: Built) -> None:
    for batch in list(built.batches())[::7]:
        check(tmp_path / "store", built, flipped(built.image, batch.file, batch.offset + 20))


def newest_manifest(built: Built) -> Image:
    return flipped(built.image, f"manifest.{manifest_of(built.image).generation & 1}", 40)


def both_manifests(built: Built) -> Image:
    return flipped(flipped(built.image, "manifest.0", 40), "manifest.1", 40)


def no_anchors(built: Built) -> Image:
    return {name: data for name, data in built.image.items() if not name.startswith(("manifest", "commit"))}


def mark(built: Built) -> Image:
    return flipped(flipped(built.image, "commit.mark", 20), "commit.mark", 532)


@pytest.mark.parametrize("damage", [newest_manifest, both_manifests, no_anchors, mark])
def test_without_anchors_nothing_is_lost_that_is_in_segments(
    tmp_path: Path, built: Built, small: Built, damage: Callable[[Built], Image]
) -> None:
    for one in (built, small):
        report = check(tmp_path / "store", one, damage(one))
        assert report.why
        assert report.faults
        out = drain(tmp_path / "store")
        for place, owed in one.owed.items():
            assert owed <= out.given[place].keys()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_segment_that_is_cut_short(tmp_path: Path, built: Built, share: float) -> None:
    for record in manifest_of(built.image).segments:
        name = segment_name(record.slot)
        end = int(len(built.image[name]) * share)
        report = check(tmp_path / "store", built, {**built.image, name: built.image[name][:end]})
        assert report.why
        assert name in report.moved


def test_a_segment_that_is_removed(tmp_path: Path, built: Built) -> None:
    for record in manifest_of(built.image).segments:
        name = segment_name(record.slot)
        report = check(tmp_path / "store", built, {n: data for n, data in built.image.items() if n != name})
        assert [(lost.file, lost.segment) for lost in report.ranges] == [(name, record.number)]


def test_two_segments_that_were_exchanged_lose_nothing(tmp_path: Path, built: Built) -> None:
    one, two = (segment_name(record.slot) for record in manifest_of(built.image).segments[-2:])
    image = {**built.image, one: built.image[two], two: built.image[one]}
    report = check(tmp_path / "store", built, image)
    assert report.why
    assert not report.ranges


def summarized(built: Built) -> list[rig.Batch]:
    """Batches with blocks behind the last checkpoint, in segments that have a summary."""
    batches = list(built.batches())
    last = max(n for n, batch in enumerate(batches) if any(row.kind == CHECKPOINT for row in batch.rows))
    return [batch for batch in batches[last:] if batch.sealed and any(row.kind == BLOCK for row in batch.rows)]


def test_the_head_of_a_sealed_batch_costs_no_message_that_the_summary_knows(tmp_path: Path) -> None:
    for messages in range(120, 160, 4):  # Where checkpoints are depends on the sizes of records.
        built = rig.build(tmp_path / f"built{messages}", 1, messages=messages)
        if batches := summarized(built):
            break
    kept = 0
    for batch in batches:
        report = check(tmp_path / "store", built, flipped(built.image, batch.file, batch.offset + batch.head - 1))
        kept += sum(lost.blocks_kept for lost in report.ranges)
    assert kept


def test_a_destination_whose_definition_is_lost_keeps_its_messages(tmp_path: Path, small: Built) -> None:
    first = next(small.batches())
    assert first.rows[0].destination == 1
    report = check(tmp_path / "store", small, flipped(small.image, first.file, first.offset + 60))
    (row,) = [row for row in report.destinations if row["definition_lost"]]
    out = drain(tmp_path / "store")
    assert small.owed["q", ""] <= out.given[row["name"], ""].keys()
    assert row["name"].startswith(KIND)


def test_a_subscription_whose_definition_is_lost_keeps_its_messages(tmp_path: Path, small: Built) -> None:
    for batch in small.batches():
        if any(row.meta[:1] == b"\7" for row in batch.rows if row.kind != BLOCK and row.destination):
            report = check(tmp_path / "store", small, flipped(small.image, batch.file, batch.offset + batch.head - 2))
            assert any("a durable subscription is lost" in note for row in report.destinations for note in row["notes"])
            return
    raise AssertionError("no subscription was made")


def test_a_transaction_whose_decision_may_be_lost_waits_for_an_administrator(tmp_path: Path, small: Built) -> None:
    last = list(small.batches())[-1]
    assert any(b"prepared" in row.meta for row in last.rows)
    report = salvaged(tmp_path / "a", flipped(small.image, last.file, last.offset + 60))
    assert "<q-9999>" not in drain(tmp_path / "a").given["q", ""]
    assert report.ranges[0].entries == len(last.rows)
    world = _grown(tmp_path / "b", small)
    tail = list(world.batches())[-1]
    report = salvaged(tmp_path / "c", flipped(world.image, tail.file, tail.offset + 60))
    assert any("transaction" in note and "coordinator h9" in note for note in report.notes)
    (row,) = rig.World(tmp_path / "c").rig.host.transactions.transaction_rows()
    assert (row["state"], row["kind"], row["messages"]) == ("PREPARED", KIND, 1)


def _grown(directory: Path, built: Built) -> Built:
    """The same store, with a batch behind the prepared transaction."""
    write(built.image, directory)
    world = rig.World(directory)
    client = rig.Client(world.rig, "d")
    client.send(client.producer("r", number=90), "<r-8888>")
    world.close()
    return Built(files_of(directory))


def test_numbers_are_never_given_twice(tmp_path: Path, small: Built) -> None:
    """Blocks and destinations after a salvage have numbers that no block and no note of the old log has."""
    rows = [row for batch in small.batches() for row in batch.rows]
    highest = max(row.ordinal for row in rows if row.kind == BLOCK)
    blocks = [batch for batch in small.batches() if any(row.kind == BLOCK for row in batch.rows)]
    salvaged(tmp_path / "store", flipped(small.image, blocks[-1].file, blocks[-1].offset + 60))
    world = rig.World(tmp_path / "store")
    destination = world.rig.create("new")
    assert destination.number > max(row.destination for row in rows)
    for name in rig.QUEUES:
        assert world.rig.destination(name).block_index.next_ordinal > max(
            [row.ordinal for row in rows if row.destination == world.rig.destination(name).number], default=0
        )
    assert highest
    world.close()


def test_a_salvaged_store_is_sound_and_salvaged_again_when_it_is_damaged_again(tmp_path: Path, built: Built) -> None:
    store, image = tmp_path / "store", built.image
    for number in (1, 2, 3):
        batch = list(Built(image).batches())[-1]
        report = salvaged(store, flipped(image, batch.file, batch.offset + 60)) if number == 1 else None
        if report is None:
            now = files_of(store)
            batch = list(Built(now).batches())[-1]
            (store / batch.file).write_bytes(flipped(now, batch.file, batch.offset + 60)[batch.file])
            report = salvage_store(store, io=UnsyncedIO())
        assert report.folder == str(store / f"set-aside-{number}")
        assert verify(store).sound
        drain(store)


def test_a_store_that_opens_is_left_alone(tmp_path: Path, built: Built) -> None:
    report = salvaged(tmp_path / "store", built.image)
    assert (report.why, report.done) == ("", False)
    assert files_of(tmp_path / "store") == {**built.image, "lock": files_of(tmp_path / "store")["lock"]}


def test_a_dry_run_changes_nothing_and_tells_the_same(tmp_path: Path, small: Built) -> None:
    batch = list(small.batches())[5]
    image = flipped(small.image, batch.file, batch.offset + 60)
    told = salvaged(tmp_path / "store", image, dry_run=True).as_dict()
    after = files_of(tmp_path / "store")
    assert {name: data for name, data in after.items() if name != "lock"} == {
        name: data for name, data in image.items() if name != "lock"
    }
    assert not list((tmp_path / "store").glob("set-aside*"))
    done = salvaged(tmp_path / "store", image).as_dict()
    assert {**told, "done": True, "at": ""} == {**done, "at": ""}


def test_the_record_and_the_damaged_files_are_kept(tmp_path: Path, small: Built) -> None:
    batch = list(small.batches())[5]
    image = flipped(small.image, batch.file, batch.offset + 60)
    report = salvaged(tmp_path / "store", image)
    folder = Path(report.folder)
    assert (folder / batch.file).read_bytes() == image[batch.file]
    assert (folder / "commit.mark").read_bytes() == image["commit.mark"]
    record = json.loads((folder / "record.json").read_text())
    assert record["ranges"][0]["entries"] == len(batch.rows)
    assert record["kept_messages"] == report.kept
    assert record["summary"] == report.summary
    journal = open_journal(tmp_path / "store", UnsyncedIO())
    list(journal.recover())
    assert [line for line in journal.notices() if report.summary in line and str(folder) in line]
    journal.close()


def test_a_store_that_is_open_is_not_touched(tmp_path: Path, built: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raybroker.actors.stores.salvage.LOCK_WAIT_S", 0.1)
    write(built.image, tmp_path / "store")
    journal = open_journal(tmp_path / "store", UnsyncedIO())
    with pytest.raises(StoreError, match="is open in process"):
        salvage_store(tmp_path / "store")
    journal.close()


def test_a_folder_without_a_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store in"):
        salvage_store(tmp_path)
    assert not list(tmp_path.iterdir())


class DyingIO(UnsyncedIO):
    """Fails, and everything after that too, at the n-th change; ``changes``: how many there were."""

    def __init__(self, fail_at: int = -1) -> None:
        self.changes = 0
        self.fail_at = fail_at

    def _change(self) -> None:
        self.changes += 1
        if 0 <= self.fail_at <= self.changes:
            raise OSError(28, "no space left on device")

    def create(self, path: Path) -> int:
        self._change()
        return super().create(path)

    def pwritev(self, fd: int, buffers: Any, offset: int) -> int:
        self._change()
        return super().pwritev(fd, buffers, offset)

    def rename(self, old: Path, new: Path) -> None:
        self._change()
        super().rename(old, new)

    def unlink(self, path: Path) -> None:
        self._change()
        super().unlink(path)


def test_a_salvage_that_is_interrupted_anywhere_is_undone_and_done_again(tmp_path: Path, small: Built) -> None:
    batch = list(small.batches())[5]
    image, store = flipped(small.image, batch.file, batch.offset + 60), tmp_path / "store"
    write(image, store)
    counting = DyingIO()
    salvage_store(store, io=counting)
    whole = drain(store).given
    for fail_at in range(2, counting.changes + 1):
        write(image, store)
        with pytest.raises((StoreError, OSError)):
            salvage_store(store, io=DyingIO(fail_at))
        if set_aside.begun(UnsyncedIO(), store) is not None:
            with pytest.raises(StoreDamagedError, match="was interrupted"):
                open_journal(store, UnsyncedIO())
            with pytest.raises(StoreError, match="interrupted"):
                salvage_store(store, dry_run=True)
        report = salvage_store(store, io=UnsyncedIO())
        if report.why:
            assert drain(store).given == whole, fail_at
        else:
            assert fail_at >= counting.changes - 1, "only what was done is done"


@pytest.mark.sweep
@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_is_damaged_the_store_opens_afterwards(tmp_path: Path, seed: int, sweep_seconds: float) -> None:
    counts = rig.run(tmp_path, damages=MANY, seed=seed, seconds=sweep_seconds)
    assert counts["salvaged"] >= sum(counts.values()) // 4, counts


def test_a_few_damages(tmp_path: Path) -> None:
    counts = rig.run(tmp_path, damages=40, seed=3)
    assert counts["salvaged"] >= 10, counts
