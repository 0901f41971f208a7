"""Checkpoints: what is written of a host, and what is read back with the records behind it."""

from __future__ import annotations

import pytest

from raybroker.core.durable import records
from raybroker.engine.checkpoint import Definition, Recovered, encode_checkpoint, read_back
from raybroker.engine.schedules.schedule_log import ScheduleLog
from raybroker.engine.transactions.transaction_log import TxLog
from raybroker.engine.transactions.transaction_log import decided as transaction_decided
from raybroker.model.blocks.record import BLOCK, CHECKPOINT, NOTE, LogEntry
from raybroker.model.errors import StoreDamagedError
from raybroker.model.settings.settings import destination_attributes
from tests.unit.engine.parts import Desk
from tests.unit.engine.rig import made

LIMITED = destination_attributes({"maxNumMsgs": 7}, type="topic")


def attributes_note(number: int, definition: Definition) -> LogEntry:
    return LogEntry(NOTE, number, 0, records.encode(records.ATTRIBUTES, 0) + definition.encode())


@pytest.mark.parametrize(
    "definition",
    [
        Definition("q", False, destination_attributes({}, type="queue")),
        Definition("t", True, LIMITED, "topic", paused={"production": 0, "consumption": 99}),
    ],
)
def test_a_definition_comes_back_as_it_was(definition: Definition) -> None:
    assert Definition.decode(definition.encode()) == definition
    assert definition.key == (definition.kind, definition.name)


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'{"name": "q", "auto": false, "kind": "queue"}'])
def test_a_definition_that_cannot_be_read_is_damage(data: bytes) -> None:
    with pytest.raises(StoreDamagedError, match="definition does not decode"):
        Definition.decode(data)


def test_a_checkpoint_stands_for_everything_before_it() -> None:
    world = Desk()
    destination = world.add("q", maxNumMsgs=7)
    world.put(destination, "a", "b")
    transactions, schedules = TxLog(), ScheduleLog()
    transactions.remember(b"k", True, False)
    schedules.remember("s")
    entry = encode_checkpoint(9, transactions, schedules, world.registry.defined())
    assert (entry.kind, entry.destination) == (CHECKPOINT, 0)
    found = read_back([entry])
    assert (found.next_number, found.definitions) == (9, {destination.number: world.registry.definition(destination)})
    assert (found.transactions.outcome(b"k"), list(found.schedules.ended)) == (True, ["s"])
    assert list(found.recoveries) == [destination.number]
    assert found.dead(destination.number) == []


def test_records_behind_it_are_sorted_by_destination() -> None:
    definition = Definition("q", False, destination_attributes({}, type="queue"))
    found = read_back(
        [
            attributes_note(4, definition),
            transaction_decided(1, b"k", True, False),
            LogEntry(NOTE, 0, 0, b'{"ended": 3, "id": "s"}'),
        ]
    )
    assert (found.next_number, found.definitions) == (5, {4: definition})
    assert (found.transactions.outcome(b"k"), list(found.schedules.ended)) == (True, ["s"])


def test_a_destroyed_destination_leaves_its_blocks_dead() -> None:
    world = Desk()
    destination = world.add()
    log = [attributes_note(destination.number, world.registry.definition(destination))]
    for body in "ab":
        block = made(body, producer=99, first_seq=world.own.take_seqs(1))
        log += world.executor.perform(destination, *world.own.send(destination, block)).records
    found = read_back(log)
    assert found.dead(destination.number) == []
    found = read_back([*log, LogEntry(NOTE, destination.number, 0, records.encode(records.GONE, 0))])
    assert (found.definitions, found.dead(destination.number)) == ({}, [1, 2])


@pytest.mark.parametrize(
    "entry",
    [
        LogEntry(CHECKPOINT, 0, 0, b"short"),
        LogEntry(CHECKPOINT, 0, 0, b"\1\0\0\0\1\0\0\0\0\0\0\0"),
        LogEntry(BLOCK, 3, 1, b"\0"),
        LogEntry(NOTE, 3, 0, b""),
    ],
)
def test_what_cannot_be_understood_is_damage(entry: LogEntry) -> None:
    with pytest.raises(StoreDamagedError):
        read_back([entry])


def test_an_empty_store_is_a_new_host() -> None:
    assert read_back([]) == Recovered(1, {}, {}, TxLog(), ScheduleLog())
