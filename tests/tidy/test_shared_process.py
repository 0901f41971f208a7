"""What no test does to the process that it shares with thousands of others, and with brokers that are not its own."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
OF_ALL = "asyncio|time|threading|socket|selectors|select"
FORBIDDEN = {
    r"gc\.unfreeze\(": "gives all that was collected back to the search for cycles, which takes half a second then",
    rf"""setattr\(["']?({OF_ALL})\b""": "every broker of the process has it: patch what your own one was given",
}
MISUSE = """
def test_a(monkeypatch):
    monkeypatch.setattr(asyncio, "sleep", None)
    monkeypatch.setattr("time.monotonic", None)
    gc.unfreeze()
"""


def misuses(text: str) -> list[tuple[int, str]]:
    """Numbers of lines, and what is wrong with them."""
    return [
        (text.count("\n", 0, match.start()) + 1, why)
        for pattern, why in FORBIDDEN.items()
        for match in re.finditer(pattern, text)
    ]


def test_no_test_changes_what_the_others_of_its_process_need() -> None:
    found = {
        f"{path.relative_to(TESTS)}:{line}": why
        for path in TESTS.rglob("*.py")
        if path != Path(__file__)
        for line, why in misuses(path.read_text())
    }
    assert found == {}


def test_each_misuse_is_noticed() -> None:
    assert sorted(line for line, _ in misuses(MISUSE)) == [3, 4, 5]
