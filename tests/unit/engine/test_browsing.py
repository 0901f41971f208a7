"""A browser sees what waited when it was made, in parts, and takes nothing."""

from __future__ import annotations

import pytest

from raybroker.core import command as cmd
from raybroker.engine.destinations.browsing import Browsing, look
from raybroker.model.errors import InvalidDestinationError
from tests.unit.engine.parts import Desk
from tests.unit.engine.rig import text_of


class BrowsingDesk(Desk):
    def __init__(self) -> None:
        super().__init__()
        self.destination = self.add()

    def browser(self, selector: str | None = None) -> Browsing:
        return Browsing(
            self.destination, selector, ("waiting",), self.registry, self.executor, self.codec, self.clock.now_ms
        )

    def seen(self, browser: Browsing, most: int = 100) -> list[str]:
        return [
            text_of(block, index)
            for seen, block in browser.next(most)
            for index in range(block.count)
            if seen.mask >> index & 1
        ]


def test_it_goes_on_where_the_last_part_ended() -> None:
    world = BrowsingDesk()
    world.put(world.destination, "a", "b", "c")
    world.put(world.destination, "d")
    browser = world.browser()
    assert browser.messages == 4
    assert [world.seen(browser, 2), world.seen(browser, 2), world.seen(browser, 2)] == [["a", "b"], ["c", "d"], []]
    assert not browser.more
    assert world.destination.block_index.messages == 4, "nothing was taken"


def test_what_was_consumed_since_and_what_is_new_are_left_out() -> None:
    world = BrowsingDesk()
    ordinal = world.put(world.destination, "a", "b")
    browser = world.browser()
    world.executor.perform(world.destination, cmd.Remove({ordinal: 0b01}))
    world.put(world.destination, "new")
    assert world.seen(browser) == ["b"]


def test_expired_messages_and_those_that_do_not_match_are_left_out() -> None:
    world = BrowsingDesk()
    world.put(world.destination, "short", ttl=10, properties={"n": 2})
    world.put(world.destination, "x", properties={"n": 1})
    world.put(world.destination, "y", properties={"n": 2})
    browser = world.browser("n = 2")
    world.clock.ms += 10
    assert world.seen(browser) == ["y"]


def test_a_destroyed_queue_ends_the_browser() -> None:
    world = BrowsingDesk()
    world.put(world.destination, "a")
    browser = world.browser()
    del world.registry.destinations["queue", "q"]
    with pytest.raises(InvalidDestinationError, match="was destroyed"):
        world.seen(browser)


def test_states_are_told_apart() -> None:
    world = BrowsingDesk()
    world.put(world.destination, "later", delay=100)
    world.put(world.destination, "now")
    assert [seen.state for seen in look(world.destination, ("waiting", "delayed"))] == ["waiting", "delayed"]
    assert [seen.state for seen in look(world.destination, ("delayed",))] == ["delayed"]
