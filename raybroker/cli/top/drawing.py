"""Lines of the screen, made of its state and of what there is to be seen. Nothing that a name has in it gets through
to the terminal but characters that can be printed, and none is broader than the screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from rich.cells import cell_len, set_cell_size

from raybroker.admin.checks import Grade
from raybroker.cli import output
from raybroker.cli.top.figures import Sight
from raybroker.cli.top.screen import HELP, Screen
from raybroker.cli.top.views import Row, chosen, is_number

ALARMS_SHARE: Final = 3
"""Alarms have at most that part of the lines."""
TEXT_CELLS_MIN: Final = 8
FIRST_CELLS_MIN: Final = 24
"""A column of texts is not squeezed below this, and the first one, of names, stays broader."""
STALE_INTERVALS: Final = 3.0
STALE_S_MIN: Final = 3.0
"""TopFigures are old when they are of so many intervals ago, and of so many seconds."""
FOOT: Final = "1-4 show  ←→ sort  r reverse  / filter  p pause  ? help  q quit"
GRADES: Final = {str(Grade.CRITICAL): "critical", str(Grade.WARNING): "warning", str(Grade.UNKNOWN): "critical"}
"""Grade → style; notes are plain."""


class ScreenLine(NamedTuple):
    """A line, and its style: title, head, warning, critical, foot or ""."""

    text: str
    style: str = ""


class Size(NamedTuple):
    columns: int
    lines: int


class ScreenTerms(NamedTuple):
    """What does not change: the name of the cluster, and seconds between two looks."""

    cluster: str
    interval_s: float

    @property
    def stale_s(self) -> float:
        return max(STALE_S_MIN, STALE_INTERVALS * self.interval_s)


class DrawnScreen(NamedTuple):
    """``lines`` of a screen; ``page``: rows that there is room for; ``rows``: how many there are."""

    lines: Sequence[ScreenLine]
    page: int
    rows: int


def picture(screen: Screen, sight: Sight, terms: ScreenTerms, size: Size, now_ns: int) -> DrawnScreen:
    """The lines are as many as the screen has, or fewer, and none is longer."""
    rows = chosen(sight.rows.get(screen.view, ()), screen.table, screen.sort, screen.filter)
    top = [_title(screen, sight, terms, now_ns), *_attention(sight, terms, size.lines, now_ns)]
    foot = [_foot(screen)]
    if screen.helping:
        body, page = [ScreenLine(text) for text in HELP], 1
    else:
        page = max(1, size.lines - len(top) - len(foot) - 2)
        screen = screen.within(len(rows), page)
        body = table(rows[screen.first : screen.first + page], screen, terms, size.columns, now_ns)
        if not rows:
            body.append(ScreenLine("nothing matches the filter" if screen.filter else f"no {screen.view}"))
        foot.insert(0, ScreenLine(_position(screen, len(rows), page)))
    room = max(0, size.lines - len(foot))
    lines = [*[*top, *body][:room], *foot][: size.lines]
    return DrawnScreen([ScreenLine(fit(line.text, size.columns), line.style) for line in lines], page, len(rows))


def attention(sight: Sight, now_ns: int) -> list[ScreenLine]:
    """Who does not answer, and what is not well: the worst first."""
    found = []
    if sight.failure is not None:
        found.append(
            ScreenLine(
                f"UNKNOWN  nothing is answered for {_age(now_ns - sight.failure.since_ns)}: {sight.failure.why}",
                "critical",
            )
        )
    for name, absence in sight.absent.items():
        age = _age(now_ns - absence.since_ns)
        text = f"UNKNOWN  {name}: no answer for {age}; what it has is old or left out ({absence.why})"
        found.append(ScreenLine(text, "critical"))
    found += [
        ScreenLine(f"{row['grade'].upper():8} {row['of']}: {row['text']}", GRADES.get(row["grade"], ""))
        for row in sight.alarms
    ]
    return [ScreenLine(printable(line.text), line.style) for line in found]


def plain_rows(rows: Sequence[Row], now_ns: int) -> list[dict[str, Any]]:
    """Rows for a pipe and for programs: with their age in seconds, and rates with one digit."""
    found = []
    for row in rows:
        told = {
            key: round(value, 1) if key.endswith("_per_second") and value is not None else value
            for key, value in row.items()
        }
        seen_ns = told.pop("seen_ns", now_ns)
        found.append({**told, "age_s": round(max(0, now_ns - seen_ns) / 1e9, 1)})
    return found


def _attention(sight: Sight, terms: ScreenTerms, lines: int, now_ns: int) -> list[ScreenLine]:
    found, most = attention(sight, now_ns), max(1, lines // ALARMS_SHARE)
    if len(found) <= most:
        return found
    left = found[most - 1 :]
    return [*found[: most - 1], ScreenLine(f"         and {len(left)} more: raybroker audit", left[0].style)]


def _title(screen: Screen, sight: Sight, terms: ScreenTerms, now_ns: int) -> ScreenLine:
    """The first line: what is shown, how old it is, and of which brokers; what is cut is the end."""
    parts = [f"raybroker {screen.view}", *(["PAUSED"] if screen.paused else [])]
    told_ns = sight.told_ns.get(screen.view)
    stale = told_ns is not None and now_ns - told_ns > terms.stale_s * 1e9
    parts.append("no answer yet" if told_ns is None else f"{'OLD: ' if stale else ''}{_age(now_ns - told_ns)} ago")
    brokers = sight.rows.get("brokers", ())
    if brokers:
        parts.append(f"{sum(row.get('state') == 'UP' for row in brokers)} of {len(brokers)} brokers up")
    parts.append(f"cluster {printable(terms.cluster)}")
    return ScreenLine(" · ".join(parts), "critical" if stale else "title")


def _position(screen: Screen, rows: int, page: int) -> str:
    key, falling = screen.sort
    shown = f"{screen.first + 1 if rows else 0}-{min(rows, screen.first + page)} of {rows}"
    order = f"by {screen.table.columns[key]}, {'descending' if falling else 'ascending'}"
    return f"{shown}, {order}" + (f", with {printable(screen.filter)!r}" if screen.filter and not screen.typing else "")


def _foot(screen: Screen) -> ScreenLine:
    if screen.typing:
        return ScreenLine(f"filter: {printable(screen.filter)}_   Enter: done  Esc: none", "title")
    return ScreenLine("any key: back" if screen.helping else FOOT, "foot")


# ---- the table -------------------------------------------------------------------------------------------------------


def table(rows: Sequence[Row], screen: Screen, terms: ScreenTerms, width: int, now_ns: int) -> list[ScreenLine]:
    """Head and rows. Where a row is old a column says since when it was not told."""
    columns = dict(screen.table.columns)
    old = {id(row): _old(row, terms, now_ns) for row in rows}
    cells = [{**{key: shown(key, row.get(key)) for key in columns}, "seen": old[id(row)]} for row in rows]
    if any(old.values()):
        columns["seen"] = "seen"
    key, falling = screen.sort
    columns[key] += "▼" if falling else "▲"
    numbers = {one for one in columns if _is_numeric([row.get(one) for row in rows])}
    widths = _widths(cells, columns, [one for one in screen.table.less if one != key], numbers, width)
    head = "  ".join(_padded(columns[one], cells_, one in numbers) for one, cells_ in widths.items())
    lines = [ScreenLine(head.rstrip(), "head")]
    for row in cells:
        text = "  ".join(_padded(row[one], cells_, one in numbers) for one, cells_ in widths.items())
        lines.append(ScreenLine(text.rstrip(), "warning" if row["seen"] else ""))
    return lines


def _widths(
    cells: Sequence[Mapping[str, str]], columns: Mapping[str, str], less: Sequence[str], numbers: set[str], width: int
) -> dict[str, int]:
    """Column → cells. Texts are squeezed, the broadest first, and then columns are left out; numbers stay whole."""
    wanted = {key: max([cell_len(title), *(cell_len(row[key]) for row in cells)]) for key, title in columns.items()}
    first = next(iter(columns))
    least = {
        key: cells_
        if key in numbers
        else min(cells_, max(cell_len(columns[key]), FIRST_CELLS_MIN if key == first else TEXT_CELLS_MIN))
        for key, cells_ in wanted.items()
    }
    for key in less:
        if sum(least[one] + 2 for one in wanted) - 2 <= width:
            break
        del wanted[key]
    while sum(cells_ + 2 for cells_ in wanted.values()) - 2 > width:
        most = max(wanted, key=lambda key: wanted[key] - least[key])
        if wanted[most] <= least[most]:
            break  # The line is cut then.
        wanted[most] -= 1
    return wanted


def _is_numeric(values: Sequence[object]) -> bool:
    found = [value for value in values if value is not None]
    return bool(found) and all(map(is_number, found))


def _old(row: Row, terms: ScreenTerms, now_ns: int) -> str:
    age_ns = now_ns - int(row.get("seen_ns", now_ns))
    return f"{_age(age_ns)} ago" if age_ns > terms.stale_s * 1e9 else ""


def _age(ns: int) -> str:
    seconds = max(0, ns) / 1e9
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def shown(key: str, value: Any) -> str:
    """A value as people read it, in characters that can be printed."""
    if value is None or value == "":
        return "-"
    if key == "id":
        return printable(str(value))
    if is_number(value):
        return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"
    return printable(output.cell(value))


def printable(text: str) -> str:
    """No character moves the cursor or changes the terminal."""
    return text if text.isprintable() else "".join(char if char.isprintable() else "·" for char in text)


def fit(text: str, width: int) -> str:
    """Return at most so many cells; what is cut ends with a sign."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + "…" if width > 1 else "…"[:width]


def _padded(text: str, width: int, right: bool) -> str:
    text = fit(text, width)
    space = " " * (width - cell_len(text))
    return space + text if right else text + space
