"""The state of the screen: each key makes the next one of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from raybroker.cli.top.views import FALLING, VIEWS, TableView

FILTER_CHARS_MAX: Final = 100
HELP: Final = (
    "1 2 3 4   show destinations, brokers, connections, consumers; Tab the next one",
    "← →       sort by the column before or behind (also < and >)",
    "r         turn the order round",
    "/         filter by a text in any column; Enter ends it, Esc clears it",
    "p, space  pause: nothing is renewed until the next p",
    "↑ ↓       line by line; PgUp PgDn Home End (also k, j, g, G)",
    "? h       this help",
    "q         end",
)
SEQUENCES: Final = {
    "[A": "up",
    "[B": "down",
    "[C": "right",
    "[D": "left",
    "[H": "home",
    "[F": "end",
    "[1~": "home",
    "[4~": "end",
    "[5~": "page up",
    "[6~": "page down",
    "[Z": "shift tab",
}
"""What terminals send for keys, behind Esc; with O in place of [ in another mode."""
PLAIN: Final = {"\r": "enter", "\n": "enter", "\x7f": "backspace", "\b": "backspace", "\t": "tab", "\x15": "clear"}


@dataclass(frozen=True)
class Screen:
    """What is shown, and how.

    sorts   view → column and whether the largest is first
    typing  keys go to the filter
    first   number of the row at the top
    """

    view: str = "destinations"
    sorts: Mapping[str, tuple[str, bool]] = field(
        default_factory=lambda: {view.name: (view.sort, view.sort in FALLING) for view in VIEWS.values()}
    )
    filter: str = ""
    typing: bool = False
    paused: bool = False
    helping: bool = False
    ended: bool = False
    first: int = 0

    @property
    def table(self) -> TableView:
        return VIEWS[self.view]

    @property
    def sort(self) -> tuple[str, bool]:
        return self.sorts[self.view]

    def showing(self, view: str) -> Screen:
        return replace(self, view=view, first=0, paused=False)

    def sorted_by(self, column: str, *, reverse: bool = False) -> Screen:
        """The largest numbers come first, and texts by the alphabet; ``reverse``: the other way."""
        return self._sorted(column, falling=(column in FALLING) != reverse)

    def _sorted(self, column: str, *, falling: bool) -> Screen:
        return replace(self, sorts={**self.sorts, self.view: (column, falling)}, first=0)

    def pressed(self, key: str, page: int) -> Screen:
        """``page``: rows that there is room for."""
        if self.typing:
            return self._typed(key)
        if self.helping:
            return replace(self, helping=False, ended=key == "q")
        names = list(VIEWS)
        if key in ("1", "2", "3", "4"):
            return self.showing(names[int(key) - 1])
        if key in ("tab", "shift tab"):
            step = 1 if key == "tab" else -1
            return self.showing(names[(names.index(self.view) + step) % len(names)])
        if key in ("left", "<", "right", ">"):
            return self._next_column(-1 if key in ("left", "<") else 1)
        if key in _MOVES:
            return replace(self, first=max(0, _MOVES[key](self.first, page)))
        column, falling = self.sort
        changes: dict[str, Screen] = {
            "q": replace(self, ended=True),
            "r": self._sorted(column, falling=not falling),
            "/": replace(self, typing=True),
            "esc": replace(self, filter="", first=0),
            "p": replace(self, paused=not self.paused),
            " ": replace(self, paused=not self.paused),
            "?": replace(self, helping=True),
            "h": replace(self, helping=True),
        }
        return changes.get(key, self)

    def within(self, rows: int, page: int) -> Screen:
        """It is not scrolled beyond its last row."""
        return replace(self, first=max(0, min(self.first, rows - page)))

    def _typed(self, key: str) -> Screen:
        if key == "enter":
            return replace(self, typing=False)
        if key in ("esc", "clear"):
            return replace(self, filter="", typing=key == "clear", first=0)
        if key == "backspace":
            return replace(self, filter=self.filter[:-1], first=0)
        if len(key) == 1 and key.isprintable() and len(self.filter) < FILTER_CHARS_MAX:
            return replace(self, filter=self.filter + key, first=0)
        return self

    def _next_column(self, step: int) -> Screen:
        keys = list(self.table.columns)
        return self.sorted_by(keys[(keys.index(self.sort[0]) + step) % len(keys)])


_MOVES: Final[Mapping[str, Callable[[int, int], int]]] = {
    "up": lambda first, page: first - 1,
    "k": lambda first, page: first - 1,
    "down": lambda first, page: first + 1,
    "j": lambda first, page: first + 1,
    "page up": lambda first, page: first - page,
    "page down": lambda first, page: first + page,
    "home": lambda first, page: 0,
    "g": lambda first, page: 0,
    "end": lambda first, page: 1 << 30,
    "G": lambda first, page: 1 << 30,
}


def keys(text: str) -> Iterator[str]:
    """The keys of what a terminal sent: characters, and names such as up, enter and esc."""
    at = 0
    while at < len(text):
        if text[at] == "\x1b":
            name, at = _sequence(text, at + 1)
            if name:
                yield name
            continue
        yield PLAIN.get(text[at], text[at])
        at += 1


def _sequence(text: str, at: int) -> tuple[str, int]:
    """(key, where it ends) of what stands behind Esc; "" for a key that nothing is known of."""
    if text[at : at + 1] not in ("[", "O"):
        return "esc", at
    end = at + 1
    while end < len(text) and not "@" <= text[end] <= "~":
        end += 1
    return SEQUENCES.get("[" + text[at + 1 : end + 1], ""), end + 1
