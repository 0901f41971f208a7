"""A slow disk is told in the log, also while a commit has not ended."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from raybroker.engine.measuring.slow_store import TOLD_EVERY_S, WINDOW_COMMITS_MIN, WINDOW_S, SlowStoreLog
from raybroker.engine.path.committer import SLOW_S, CommitMeter
from raybroker.engine.ports import Notice


class Disk:
    def __init__(self) -> None:
        self.now_ns = 10**12
        self.lines: list[str] = []
        self.meter = CommitMeter()
        self.committer: Any = SimpleNamespace(overloaded=False, pending_bytes=0)
        self.log = SlowStoreLog(self.committer, self.meter, lambda: self.now_ns, self.lines.append)

    def commit(self, took_s: float) -> None:
        self.meter.count(int(took_s * 1e9), 1000, 1)

    def tick(self, s: float = 1.0) -> list[str]:
        self.now_ns += int(s * 1e9)
        self.log.tell_due()
        found, self.lines[:] = list(self.lines), []
        return found


def test_quick_commits_are_not_told() -> None:
    disk = Disk()
    for _ in range(100):
        disk.commit(SLOW_S * 0.9)
    assert disk.tick() == []


def test_slow_ones_are_told_at_once_and_then_together() -> None:
    disk = Disk()
    for took_s in (0.1, 3.5, 1.2, 0.1):
        disk.commit(took_s)
    assert disk.tick() == ["[B2162] the disk is slow: 2 of the last 4 commits took longer than 1 s, the longest 3.5 s"]
    disk.commit(2)
    assert disk.tick() == []
    disk.commit(1.5)
    assert disk.tick(TOLD_EVERY_S) == [
        "[B2162] the disk is slow: 2 of the last 2 commits took longer than 1 s, the longest 2.0 s"
    ]
    assert disk.tick(TOLD_EVERY_S) == []


def test_a_commit_that_does_not_end_is_told_once() -> None:
    disk = Disk()
    disk.meter.began_ns = disk.now_ns
    (line,) = disk.tick(2 * SLOW_S)
    assert line.startswith("[B2161] the disk is slow: a commit has been under way for 2.0 s")
    assert disk.tick() == []
    disk.meter.began_ns = disk.now_ns
    assert len(disk.tick(2 * SLOW_S)) == 1


def test_producers_that_are_not_read_are_told_and_when_they_are_again() -> None:
    disk = Disk()
    disk.committer.overloaded, disk.committer.pending_bytes = True, 70 << 20
    assert disk.tick() == ["[B2163] the disk is behind: 70 MiB wait for it, and producers are not read until less do"]
    assert disk.tick(5) == []
    disk.committer.overloaded = False
    (line,) = disk.tick()
    assert line == "[B1163] the disk has caught up after 6 s: producers are read again"
    assert isinstance(line, Notice), "it is for information"


def test_the_disk_is_slow_while_one_of_a_hundred_commits_takes_long() -> None:
    disk = Disk()
    for took_s in [0.01] * 99 + [0.2]:
        disk.commit(took_s)
    assert disk.tick(WINDOW_S) == []
    assert not disk.log.slow, "exactly one of a hundred is not more"
    for took_s in [0.01] * 98 + [0.2, 0.3]:
        disk.commit(took_s)
    assert disk.tick(WINDOW_S / 2) == []
    (line,) = disk.tick(WINDOW_S / 2)
    assert line == (
        "[B2164] the disk is slow: 2 of 100 commits of the last 60 s took longer than 100 ms, which is more than one of"
        " a hundred; sends wait for it"
    )
    assert disk.log.slow
    assert disk.tick(WINDOW_S) == []
    assert disk.log.slow, "without commits nothing is known"
    for _ in range(WINDOW_COMMITS_MIN):
        disk.commit(0.1)
    (line,) = disk.tick(1)
    assert isinstance(line, Notice)
    assert line == "[B1164] the disk is quick again: 0 of 10 commits of the last 61 s took longer than 100 ms"
    assert not disk.log.slow
