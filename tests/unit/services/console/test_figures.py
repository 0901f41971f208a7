"""Figures of the console: asked for seldom, rates, and pages of many."""

from __future__ import annotations

import asyncio
from typing import Any

from raybroker.model.listing import Listing, Row
from raybroker.services.console.figures import EVERY_S, SHARE, Figures, page


class Asked:
    """A broker whose destinations are ``rows``; an answer takes ``takes_s``."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.takes_s = 0.0
        self.count = 0
        self.rows: list[Row] = [_row("a", 5, 10, 5), _row("b", 7, 20, 13)]
        self.figures = Figures(lambda: self.now_s, lambda: int(self.now_s * 1000))

    async def ask(self) -> Any:
        self.count += 1
        self.now_s += self.takes_s
        return Listing(self.rows, {"other": "it is down"})

    def sampled(self) -> Any:
        return asyncio.run(self.figures.sample(self.ask))


def _row(name: str, held: int, came: int, went: int, **more: Any) -> Row:
    return {"type": "queue", "name": name, "messages": held, "messages_in": came, "messages_out": went} | more


def test_the_broker_is_asked_again_when_rows_are_old_or_something_was_changed() -> None:
    asked = Asked()
    asked.sampled()
    asked.sampled()
    assert asked.count == 1
    asked.figures.changed()
    asked.sampled()
    assert asked.count == 2
    asked.now_s += EVERY_S
    assert asked.sampled().missing == {"other": "it is down"}
    assert asked.count == 3


def test_what_costs_more_is_asked_for_less_often() -> None:
    asked = Asked()
    asked.takes_s = 0.5
    assert asked.sampled().every_s == 0.5 / SHARE
    asked.now_s += 0.5 / SHARE - 1
    asked.sampled()
    assert asked.count == 1


def test_many_who_ask_at_once_have_one_answer() -> None:
    asked = Asked()

    async def at_once() -> None:
        await asyncio.gather(*(asked.figures.sample(asked.ask) for _ in range(20)))

    asyncio.run(at_once())
    assert asked.count == 1


def test_rates_are_those_since_the_last_answer_and_never_below_zero() -> None:
    asked = Asked()
    assert [row["in_rate"] for row in asked.sampled().rows] == [None, None]
    asked.rows = [_row("a", 5, 30, 0), _row("c", 1, 1, 1)]
    asked.now_s += 10
    a, c = asked.sampled().rows
    assert (a["in_rate"], a["out_rate"], c["in_rate"]) == (2.0, 0.0, None)


def test_rates_of_the_first_look_are_those_of_the_history() -> None:
    asked = Asked()
    asked.figures = Figures(
        lambda: asked.now_s, lambda: 0, lambda key: (3.5, None) if key == ("queue", "a") else (0, 1)
    )
    assert [(row["in_rate"], row["out_rate"]) for row in asked.sampled().rows] == [(3.5, None), (0, 1)]


def test_full_is_what_is_held_of_the_nearer_limit() -> None:
    asked = Asked()
    limits = {"maxNumMsgs": 10, "maxTotalMsgBytes": 1000}
    asked.rows = [
        _row("a", 5, 0, 0, bytes=900, attributes=limits),
        _row("b", 5, 0, 0, bytes=1, attributes={"maxNumMsgs": -1}),
    ]
    assert [row["full_percent"] for row in asked.sampled().rows] == [90.0, None]


def test_a_page_is_filtered_sorted_and_cut() -> None:
    rows = [{"type": kind, "name": name, "messages": held} for kind, name, held in
            (("queue", "Ä", 3), ("queue", "ab", None), ("topic", "AB", 9), ("queue", "注文", 5))]  # fmt: skip

    def names(**more: Any) -> tuple[int, list[str]]:
        asked = {"type": "", "text": "", "sort": "name", "falling": False, "start": 0, "most": 10, **more}
        count, found = page(rows, **asked)
        return count, [row["name"] for row in found]

    assert names(text="ab") == (2, ["AB", "ab"])
    assert names(text="注") == (1, ["注文"])
    assert names(type="queue", sort="messages", falling=True) == (3, ["注文", "Ä", "ab"])
    assert names(sort="messages", start=1, most=2) == (4, ["Ä", "注文"])
