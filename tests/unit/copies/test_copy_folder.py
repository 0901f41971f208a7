"""The folder of a copy, on a real disk: what was saved is there, a cut is a cut, damage is never taken for absence."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from raybroker.copies.copy_folder import CopyFolder
from raybroker.copies.image_form import image_bytes
from raybroker.model.errors import StoreDamagedError, StoreError
from raybroker.replication.positions import BEGINNING, EntryKind, Term, following
from raybroker.replication.replica_set import ReplicaSet
from raybroker.store.journal import Journal
from tests.unit.copies.disks import TERM, Made, block, checkpoint, content, note, opened

THREE = ReplicaSet(("a", "b", "c"))


def again(folder: CopyFolder, node: str = "n1") -> CopyFolder:
    folder.release()
    return opened(folder.directory, node)


def test_a_new_folder_is_a_copy_that_knows_nothing(tmp_path: Path) -> None:
    folder = opened(tmp_path / "c")
    saved = folder.load()
    assert (saved.base, saved.entries, saved.damage, saved.members.voters) == (BEGINNING, (), 0, ())
    id_ = folder.head.id
    folder = again(folder)
    assert folder.head.id == id_
    folder.release()


def test_entries_are_there_again_as_they_were(tmp_path: Path) -> None:
    folder, made = opened(tmp_path / "c"), Made()
    folder.found(THREE)
    folder.load()
    entries = made.many(range(1, 6))
    folder.save_all(entries, 0)
    folder.promise(Term(5, 6), 0)
    folder = again(folder)
    saved = folder.load()
    assert saved.promised == Term(5, 6)
    assert saved.members == THREE
    assert [e.at for e in saved.entries] == [e.at for e in entries]
    assert [b"".join(e.body) for e in saved.entries] == [b"".join(e.body) for e in entries]
    assert len(content(folder)) == 5
    folder.release()


def test_what_is_known_to_be_committed_is_not_read_again(tmp_path: Path) -> None:
    folder, made = opened(tmp_path / "c"), Made()
    folder.load()
    entries = made.many(range(1, 11))
    folder.save_all(entries[:8], 0)
    folder.save_all(entries[8:], 7)
    folder = again(folder)
    saved = folder.load()
    assert saved.base == entries[6].at
    assert [e.at for e in saved.entries] == [e.at for e in entries[7:]]
    assert saved.committed == 7
    folder.release()


def test_a_set_of_copies_is_known_from_the_entry_that_made_it(tmp_path: Path) -> None:
    folder, made = opened(tmp_path / "c"), Made()
    folder.load()
    more = ReplicaSet(("a", "b", "c"), ("d",))
    first = made.entry(block(1))
    change = following(first.at, TERM, EntryKind.MEMBERS, (more.packed(),))
    made.last = change.at
    last = made.entry(checkpoint(b"all"), note(b"x"))
    folder.save_all([first, change, last], 0)
    folder.save_all([made.entry(block(2))], 3)
    folder = again(folder)
    saved = folder.load()
    assert (saved.base.index, saved.members) == (3, more)
    folder.release()


@pytest.mark.parametrize("nbytes", [100, 20_000])
@pytest.mark.parametrize("keep", [0, 1, 4, 9])
def test_a_suffix_is_cut(tmp_path: Path, keep: int, nbytes: int) -> None:
    """Also over the end of a segment; what is written then replaces it, after another restart as well."""
    folder, made = opened(tmp_path / "c"), Made()
    folder.load()
    entries = made.many(range(1, 11), nbytes)
    folder.save_all(entries, 0)
    folder.cut(keep)
    assert [ordinal for _, ordinal, _ in content(folder)] == list(range(1, keep + 1))
    made.last = entries[keep - 1].at if keep else BEGINNING
    other = made.many(range(100, 104), nbytes, Term(2, 1))
    folder = again(folder)
    saved = folder.load()
    assert [e.at for e in saved.entries] == [e.at for e in entries[:keep]]
    folder.save_all(other, 0)
    folder = again(folder)
    saved = folder.load()
    assert [e.at for e in saved.entries] == [e.at for e in [*entries[:keep], *other]]
    assert [ordinal for _, ordinal, _ in content(folder)] == [*range(1, keep + 1), 100, 101, 102, 103]
    folder.release()


def test_a_cut_that_was_not_finished_did_not_happen_or_did(tmp_path: Path) -> None:
    """The process dies before the mark of the cut log is written: the manifest alone says where it ends."""
    folder, made = opened(tmp_path / "c"), Made()
    folder.load()
    entries = made.many(range(1, 7))
    folder.save_all(entries, 0)
    folder.release()
    before = (tmp_path / "c" / "log-1" / "commit.mark").read_bytes()
    folder = opened(tmp_path / "c")
    folder.load()
    folder.cut(3)
    folder.release()
    mark = tmp_path / "c" / "log-1" / "commit.mark"
    with mark.open("r+b") as raw:
        raw.write(before)
    folder = opened(tmp_path / "c")
    assert [e.at.index for e in folder.load().entries] == [1, 2, 3]
    folder.release()


def test_a_checkpoint_that_may_be_cut_off_lets_nothing_go(tmp_path: Path) -> None:
    folder, made = opened(tmp_path / "c"), Made()
    folder.load()
    folder.save_all(made.many(range(1, 20), 20_000), 0)
    before = sorted(path.name for path in (tmp_path / "c" / "log-1").glob("segment-*"))
    folder.free(1, range(1, 20))
    folder.save_all([made.entry(checkpoint(b"nothing is owed"))], 0)
    while folder.journal.maintain(1 << 20):
        pass
    assert folder.journal.stats().segments >= 5
    folder.cut(19)
    assert len(content(folder)) == 19
    assert before
    folder.free(1, range(1, 20))
    made.last = folder.load().entries[-1].at
    folder.save_all([made.entry(checkpoint(b"nothing is owed"))], 19)
    folder.commit(20)
    while folder.journal.maintain(1 << 20):
        pass
    assert folder.journal.stats().segments <= 3
    folder.release()


def test_a_log_whose_start_was_let_go_begins_at_its_first_entry(tmp_path: Path) -> None:
    folder, made = opened(tmp_path / "c"), Made()
    folder.load()
    folder.save_all(made.many(range(1, 20), 20_000), 0)
    folder.free(1, range(1, 20))
    folder.save_all([made.entry(checkpoint(b"nothing"))], 0)
    folder.commit(20)
    while folder.journal.maintain(1 << 20):
        pass
    folder = again(folder)
    saved = folder.load()
    assert 0 < saved.base.index <= 20
    assert saved.base.index + len(saved.entries) == 20
    folder.release()


def test_a_folder_that_is_emptied_is_another_copy(tmp_path: Path) -> None:
    folder, made = opened(tmp_path / "c"), Made()
    folder.load()
    folder.save_all(made.many(range(1, 3)), 0)
    before = folder.head.id
    folder.release()
    shutil.rmtree(tmp_path / "c")
    folder = opened(tmp_path / "c")
    assert folder.head.id != before
    assert folder.load().entries == ()
    folder.release()


def test_a_clone_is_another_copy_and_takes_nothing_over(tmp_path: Path) -> None:
    folder, made = opened(tmp_path / "c"), Made()
    folder.found(THREE)
    folder.load()
    folder.save_all(made.many(range(1, 3)), 0)
    before = folder.head.id
    folder.release()
    shutil.copytree(tmp_path / "c", tmp_path / "d")
    clone = opened(tmp_path / "d")
    saved = clone.load()
    assert clone.head.id != before
    assert (saved.entries, saved.members.voters, content(clone)) == ((), (), [])
    clone.release()
    folder = opened(tmp_path / "c")
    assert (folder.head.id, len(folder.load().entries)) == (before, 2)
    folder.release()


@pytest.mark.parametrize("what", ["bits", "gone", "emptied"])
def test_a_log_that_is_damaged_is_unknown_and_not_absent(tmp_path: Path, what: str) -> None:
    folder, made = opened(tmp_path / "c"), Made()
    folder.found(THREE)
    folder.load()
    folder.save_all(made.many(range(1, 9)), 0)
    folder.promise(Term(4, 4), 0)
    id_ = folder.head.id
    folder.release()
    log = tmp_path / "c" / "log-1"
    if what == "gone":
        shutil.rmtree(log)
    elif what == "emptied":
        for path in log.iterdir():
            path.unlink()
    else:
        segment = next(log.glob("segment-000001"))
        with segment.open("r+b") as raw:
            raw.seek(512)
            data = raw.read(4096)
            raw.seek(512)
            raw.write(bytes(byte ^ 0x40 for byte in data))
    folder = opened(tmp_path / "c")
    saved = folder.load()
    assert (folder.head.id, saved.promised) == (id_, Term(4, 4))
    assert (saved.damage, saved.lost, saved.entries) == (1, None, ())
    assert folder.damaged
    folder = again(folder)
    assert folder.load().damage == 1
    folder.promise(Term(4, 4), 0)
    folder = again(folder)
    assert folder.load().damage == 0
    folder.release()


def test_a_copy_is_opened_once(tmp_path: Path) -> None:
    folder = opened(tmp_path / "c")
    with pytest.raises(StoreError, match="is open"):
        opened(tmp_path / "c")
    folder.release()


def test_a_plain_store_refuses_the_log_of_a_copy(tmp_path: Path) -> None:
    """A host without copies must not go on with such a log: nobody would have what it confirms."""
    from raybroker.engine.checkpoint import read_back

    folder, made = opened(tmp_path / "c"), Made()
    folder.load()
    folder.save_all([made.entry(note(b"\x01")), made.entry(block(1))], 0)
    folder.release()
    import os
    import time

    journal = Journal(tmp_path / "c" / "log-1", monotonic_ns=time.monotonic_ns, entropy=os.urandom)
    with pytest.raises(StoreDamagedError):
        read_back(journal.recover_runs())
    journal.close()


def test_an_image_becomes_the_journal(tmp_path: Path) -> None:
    source, made = opened(tmp_path / "a"), Made()
    source.found(THREE)
    source.load()
    entries = made.many(range(1, 16), 20_000)
    source.save_all(entries, 0)
    found = source.image(12)
    assert found is not None
    index, image = found
    assert index == 12
    target = opened(tmp_path / "b", "n2")
    target.load()
    path = tmp_path / "b" / "image-5"
    path.mkdir(mode=0o700)
    for file in image.files:
        data = (source.journal.directory / file.name).read_bytes()[: file.nbytes]
        (path / file.name).write_bytes(data.ljust(file.size_bytes, b"\0"))
        (path / file.name).chmod(0o600)
    target.install(entries[11].at, THREE, (image_bytes(image, 5),))
    assert content(target) == content(source)[:12]
    assert not (tmp_path / "b" / "log-1").exists()
    target.save_all(entries[12:], 12)
    target = again(target, "n2")
    saved = target.load()
    assert saved.base.index == 12
    assert content(target) == content(source)
    target.release()
    source.release()


def test_an_image_of_another_entry_is_not_taken(tmp_path: Path) -> None:
    source, made = opened(tmp_path / "a"), Made()
    source.load()
    entries = made.many(range(1, 5))
    source.save_all(entries, 0)
    found = source.image(3)
    assert found is not None
    target = opened(tmp_path / "b", "n2")
    target.load()
    path = tmp_path / "b" / "image-5"
    path.mkdir(mode=0o700)
    for file in found[1].files:
        data = (source.journal.directory / file.name).read_bytes()[: file.nbytes]
        (path / file.name).write_bytes(data.ljust(file.size_bytes, b"\0"))
        (path / file.name).chmod(0o600)
    with pytest.raises(StoreError, match="ends at"):
        target.install(entries[3].at, ReplicaSet(()), (image_bytes(found[1], 5),))
    target.release()
    source.release()
    target = opened(tmp_path / "b", "n2")
    assert target.load().entries == ()
    target.release()
