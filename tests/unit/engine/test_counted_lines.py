"""Lines with a count: one at once, then one a minute at most, whatever comes."""

from __future__ import annotations

from raybroker.engine.counted_lines import KNOWN_MAX, TOLD_EVERY_MS, CountedLines


class Told:
    def __init__(self) -> None:
        self.now_ms = 5
        self.lines: list[str] = []
        self.counted = CountedLines(lambda: self.now_ms, self.lines.append)

    def note(self, key: str, count: int = 1) -> None:
        self.counted.note(key, count, lambda count: f"{key} {count}")

    def after(self, ms: int) -> list[str]:
        self.now_ms += ms
        self.counted.tell_due()
        told, self.lines[:] = list(self.lines), []
        return told


def test_many_of_a_kind_are_one_line_and_then_one_a_minute() -> None:
    told = Told()
    for _ in range(1000):
        told.note("a", 2)
    told.note("b")
    assert told.lines == []
    assert told.after(1000) == ["a 2000", "b 1"]
    for _ in range(3):
        told.note("a")
    assert told.after(TOLD_EVERY_MS - 1) == []
    assert told.after(1) == ["a 3"]


def test_what_has_not_come_again_is_forgotten_and_told_at_once_when_it_does() -> None:
    told = Told()
    told.note("a")
    assert (told.after(0), told.after(TOLD_EVERY_MS)) == (["a 1"], [])
    told.note("a")
    assert told.after(1) == ["a 1"]


def test_no_number_of_kinds_fills_the_memory() -> None:
    told = Told()
    for n in range(2 * KNOWN_MAX):
        told.note(str(n))
    assert len(told.after(0)) == KNOWN_MAX
