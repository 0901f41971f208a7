"""The order in which appended records become durable and what waited for them goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from raybroker.engine.path.runner import Runner
from raybroker.model.blocks.record import NOTE, LogEntry

ENTRY = LogEntry(NOTE, 1, 0, b"x")


class Waiting:
    """A committer that commits when the test says so."""

    overloaded = False
    pending_bytes = 0

    def __init__(self) -> None:
        self.batches: list[tuple[list[LogEntry], Callable[[], None]]] = []

    def submit(self, entries: Sequence[LogEntry], done: Callable[[], None]) -> None:
        self.batches.append((list(entries), done))

    def commit(self) -> None:
        self.batches.pop(0)[1]()

    def close(self) -> None: ...


def test_what_waits_for_records_goes_when_they_are_durable() -> None:
    committer, told = Waiting(), list[str]()
    runner = Runner(committer)
    runner.append([ENTRY], lambda: told.append("first"))
    runner.append([ENTRY, ENTRY], None)
    assert (told, runner.in_flight, [len(entries) for entries, _ in committer.batches]) == ([], 2, [1, 2])
    committer.commit()
    assert (told, runner.in_flight) == (["first"], 1)
    committer.commit()
    assert runner.in_flight == 0


def test_what_has_no_records_goes_at_once_only_when_nothing_is_under_way() -> None:
    committer, told = Waiting(), list[str]()
    runner = Runner(committer)
    runner.append([], lambda: told.append("at once"))
    runner.append([ENTRY], lambda: told.append("records"))
    runner.append([], lambda: told.append("behind them"))
    runner.append([], None)
    assert (told, len(committer.batches)) == (["at once"], 2)
    committer.commit()
    committer.commit()
    assert told == ["at once", "records", "behind them"]
