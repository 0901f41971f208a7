"""Owner batches: taking from them, unpacking them, and taking out units that nobody has any more."""

from __future__ import annotations

from raybroker.core.blocks.block_entry import BlockEntry, Columns
from raybroker.core.delivery.run import Run
from raybroker.core.unit_of_order.owner_batches import LOOKED_AT_MAX, take_first, take_out, unpack, unpack_all
from raybroker.core.unit_of_order.unit import Unit, UnitOwner


class Batches:
    """Sessions with owner batches; a block is written as the units of its messages."""

    def __init__(self) -> None:
        self.held: dict[int, BlockEntry] = {}
        self.units: dict[str, Unit] = {}
        self.owners: list[UnitOwner] = []

    def owner(self, name: str, *blocks: str) -> UnitOwner:
        """Each block is a batch of that session, which has one earlier message of each unit."""
        owner = UnitOwner(name)
        self.owners.append(owner)
        for text in blocks:
            names, ordinal = tuple(text.split()), len(self.held) + 1
            self.held[ordinal] = BlockEntry(len(names), 4, True, Columns(units=names))
            owner.owner_batches.append(Run(ordinal, ordinal, (1 << len(names)) - 1, 0, 0, 4))
            for name_ in names:
                unit = self.units.setdefault(name_, Unit(name_))
                if unit.owner is None:
                    unit.owner, unit.held, owner.units = owner, 1, owner.units + 1
                unit.batched += 1
        return owner

    def batches(self, owner: UnitOwner) -> list[tuple[int, int]]:
        return [(run.ordinal, run.mask) for run in owner.owner_batches]

    def waiting(self, name: str) -> list[tuple[int, int]]:
        return [(run.ordinal, run.mask) for run in self.units[name].waiting()]


def test_what_a_session_gets_of_its_first_batch_is_held_and_the_rest_stays() -> None:
    destination = Batches()
    owner = destination.owner("x", "a b a", "b")
    take_first(destination.units, destination.held, owner, 0b011)
    assert destination.batches(owner) == [(1, 0b100), (2, 0b1)]
    assert {name: (unit.held, unit.batched) for name, unit in destination.units.items()} == {"a": (2, 1), "b": (2, 1)}
    take_first(destination.units, destination.held, owner, 0b100)
    assert destination.batches(owner) == [(2, 0b1)]


def test_unpacked_messages_wait_in_their_units_in_order() -> None:
    destination = Batches()
    owner = destination.owner("x", "a b a", "b a")
    assert {unit.name for unit in unpack(destination.units, destination.held, owner)} == {"a", "b"}
    assert destination.batches(owner) == []
    assert destination.waiting("a") == [(1, 0b101), (2, 0b10)]
    assert destination.waiting("b") == [(1, 0b010), (2, 0b01)]
    assert [unit.batched for unit in destination.units.values()] == [0, 0]


def test_only_sessions_with_one_of_the_blocks_are_unpacked() -> None:
    destination = Batches()
    one, two = destination.owner("x", "a a"), destination.owner("y", "b b")
    found = unpack_all(destination.units, destination.held, destination.owners, [2, 9])
    assert [unit.name for unit in found] == ["b"]
    assert (destination.batches(one), destination.batches(two)) == ([(1, 0b11)], [])
    assert [unit.name for unit in unpack_all(destination.units, destination.held, destination.owners)] == ["a"]


def test_a_freed_unit_is_taken_out_of_every_batch_and_the_others_stay() -> None:
    destination = Batches()
    owner = destination.owner("x", "a b a", "a", "b")
    assert take_out(destination.units, destination.held, [destination.units["a"]]) == []
    assert destination.batches(owner) == [(1, 0b010), (3, 0b1)]
    assert destination.waiting("a") == [(1, 0b101), (2, 0b1)]
    assert (destination.units["a"].batched, destination.units["b"].batched) == (0, 2)


def test_where_there_is_much_to_look_at_everything_is_unpacked() -> None:
    destination = Batches()
    owner = destination.owner("x", "a" + " b" * LOOKED_AT_MAX)
    assert {unit.name for unit in take_out(destination.units, destination.held, [destination.units["a"]])} == {"a", "b"}
    assert destination.batches(owner) == []
    assert sum(mask.bit_count() for _, mask in destination.waiting("b")) == LOOKED_AT_MAX
