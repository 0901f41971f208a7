"""Errors in the shell of copies that must show: each is put in on purpose, and a check that holds without it fails."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from raybroker.copies.copy import Copy
from raybroker.copies.copy_head import HeadFile
from raybroker.copies.freed_space import SpaceHints
from raybroker.copies.images import ImageTaker
from raybroker.store.journal.format import pack_entries
from raybroker.store.journal.log import BatchSyncs
from tests.unit.copies.disks import block, checkpoint, live
from tests.unit.copies.rig import Group, Node, until


def confirmed(node: Node, ordinal: int, nbytes: int = 100) -> None:
    index = node.runs.append(pack_entries([block(ordinal, nbytes)]))
    until(lambda: node.runs.released >= index, "it is released")


def damages(node: Node) -> int:
    """How often this copy has found damage; it may have been healed since."""
    with node.runs.saving() as folder:
        return folder.head.damages


def power_cut(group: Group) -> None:
    """What was confirmed is there after a power cut of all."""
    leader = group.led()
    for ordinal in range(1, 13):
        confirmed(leader, ordinal, 3000)
    group.agree()
    ids, term = [node.runs.id for node in group.nodes], leader.runs.status().term
    for node in group.nodes:
        node.kill()
    for node in group.nodes:
        node.begin()
    assert [node.runs.id for node in group.nodes] == ids
    assert not any(damages(node) for node in group.nodes), "no copy is damaged"
    assert min(node.runs.status().term for node in group.nodes) >= term, "no promise is forgotten"
    leader = group.led()
    assert set(live(leader.runs.journal)[1]) >= set(range(1, 13))


def minority(group: Group) -> None:
    """Nothing is released that one copy alone has."""
    leader = group.led()
    for node in group.nodes:
        if node is not leader:
            node.kill()
    index = leader.runs.append(pack_entries([block(1)]))
    time.sleep(0.3)
    assert leader.runs.released < index


def snapshot(group: Group) -> None:
    """A copy that has taken files has them after a power cut."""
    leader = group.led()
    away = next(node for node in group.nodes if node is not leader)
    away.kill()
    for ordinal in range(1, 60):
        confirmed(leader, ordinal, 8000)
    away.begin()
    group.agree()
    assert (away.folder / "log-2").exists()
    away.kill()
    away.begin()
    assert not damages(away), "it is not damaged"


def early_free(group: Group) -> None:
    """A leader whose last entries nobody has lets no block go that they were the end of."""
    leader = group.led()
    confirmed(leader, 1)
    group.isolate(leader.number)
    leader.runs.append(pack_entries([checkpoint(b"one is not owed")]))
    leader.runs.free(1, [1])
    time.sleep(0.3)
    assert 1 in live(leader.runs.journal).get(1, ())


CHECKS = {check.__name__: check for check in (power_cut, minority, snapshot, early_free)}


def answered_before_the_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchSyncs, "sync", lambda self, fd: None)


def promised_before_the_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    def put(self: HeadFile, head: object) -> None:
        self.head = head  # type: ignore[assignment]

    monkeypatch.setattr(HeadFile, "write", put)


def released_before_a_majority(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Copy, "released", property(lambda self: self.report().last.index))


def swapped_before_the_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImageTaker, "_sync_files", lambda self: None)


def freed_before_it_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(self: SpaceHints, hint: object) -> None:
        for first, end in hint.spans:  # type: ignore[attr-defined]
            self._free(hint.destination, range(first, end + 1))  # type: ignore[attr-defined]

    monkeypatch.setattr(SpaceHints, "add_own", at_once)


MUTANTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
    mutant.__name__: (mutant, check)
    for mutant, check in (
        (answered_before_the_sync, "power_cut"),
        (promised_before_the_sync, "power_cut"),
        (released_before_a_majority, "minority"),
        (swapped_before_the_sync, "snapshot"),
        (freed_before_it_is_committed, "early_free"),
    )
}


def run(check: str, directory: Path) -> None:
    group = Group(directory, kept=64 << 10)
    try:
        CHECKS[check](group)
    finally:
        group.close()


@pytest.mark.parametrize("check", CHECKS)
def test_a_check_holds_without_an_error(check: str, tmp_path: Path) -> None:
    run(check, tmp_path)


@pytest.mark.parametrize("name", MUTANTS)
def test_an_error_is_noticed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant, check = MUTANTS[name]
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        run(check, tmp_path)
