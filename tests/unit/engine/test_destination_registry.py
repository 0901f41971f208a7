"""The registry finds destinations by name and number, and says why one cannot be used."""

from __future__ import annotations

import pytest

from raybroker.model.errors import InvalidDestinationError, StoreDamagedError
from tests.unit.engine.parts import Desk


def test_names_belong_to_a_kind() -> None:
    desk = Desk()
    queue, topic = desk.add("a"), desk.add("a", "topic")
    registry = desk.registry
    assert [registry.named(kind, "a") for kind in ("queue", "topic")] == [queue, topic]
    assert registry.matching(None, "a") == [queue, topic]
    assert registry.matching("topic", None) == [topic]
    assert registry.by_number(topic.number) is topic
    with pytest.raises(InvalidDestinationError, match=r"imq\.autocreate\.queue"):
        registry.named("queue", "b")
    with pytest.raises(InvalidDestinationError):
        registry.matching("topic", "b")


def test_a_halted_destination_is_named_and_not_used() -> None:
    desk = Desk()
    destination = desk.add()
    desk.registry.halted[destination.number] = StoreDamagedError("block 7")
    assert desk.registry.named("queue", "q") is destination
    with pytest.raises(StoreDamagedError, match="block 7"):
        desk.registry.find("queue", "q")


def test_another_one_of_the_same_name_is_not_the_same() -> None:
    desk = Desk()
    old = desk.add()
    new = desk.add()
    assert (desk.registry.has(old), desk.registry.has(new)) == (False, True)


def test_a_checkpoint_holds_dormant_ones_and_no_temporary_ones() -> None:
    desk = Desk()
    kept, temporary, dormant = desk.add("kept"), desk.add("tmp", owner="me"), desk.add("dormant", auto_created=True)
    del desk.registry.destinations["queue", "dormant"]
    desk.registry.dormant["queue", "dormant"] = desk.registry.definitions.pop(dormant.number), dormant
    assert [destination for _, destination in desk.registry.defined()] == [kept, dormant]
    assert desk.registry.definition(temporary).owner == "me"
