"""Reading a held block, and what a damaged one and a dead store lead to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from raybroker.core import command as cmd
from raybroker.engine.memory.block_reader import BlockReader
from raybroker.engine.sessions.attachments import Attachments, Outbox
from raybroker.model.blocks.block import encode_block
from raybroker.model.blocks.large_block import LargeBlock
from raybroker.model.errors import BrokerError, StoreDamagedError, StoreError
from tests.unit.engine.parts import Desk
from tests.unit.engine.rig import RecordingPeer, made, text_of


class Reading(Desk):
    """``raises``: what the cache raises; ``performed``: commands that followed."""

    def __init__(self) -> None:
        super().__init__()
        self.raises: Exception | None = None
        self.large: LargeBlock | None = None
        self.failures: list[Exception] = []
        self.performed: list[cmd.Command] = []
        self.halted: list[str] = []
        self.executor.fail = self.failures.append
        self.executor.perform = lambda destination, command: self.performed.append(command)
        self.attachments = Attachments(1)
        self.destination = self.add()
        cache: Any = SimpleNamespace(get=self._get)
        self.reader = BlockReader(
            self.executor,
            self.registry,
            self.attachments,
            cache,
            self.codec,
            lambda destination, why: self.halted.append(why),
        )

    def _get(self, number: int, ordinal: int) -> Any:
        if self.raises is not None:
            raise self.raises
        assert (number, ordinal) == (self.destination.number, 3)
        return self.large or made("a", properties={"n": 1})


class Body:
    """Of a large block, in one piece. ``raises``: what reading it raises."""

    nbytes = 4

    def __init__(self, raises: BrokerError | None = None) -> None:
        self.raises = raises

    def piece(self, number: int) -> bytes:
        if self.raises is not None:
            raise self.raises
        return b"body"

    def claim(self) -> bool:
        return False


FRONT = encode_block([b"body"], producer=1, first_seq=1, timestamp_ms=1, persistent=True, kinds=0, front=True)


def test_a_large_block_comes_whole_where_nobody_can_ask_for_its_body() -> None:
    world = Reading()
    small = world.reader.whole(world.destination, 3)
    assert small is not None
    assert text_of(small, 0) == "a"
    world.large = LargeBlock(FRONT, Body())
    whole = world.reader.whole(world.destination, 3)
    assert whole is not None
    assert (type(whole) is LargeBlock, bytes(whole.body(0))) == (False, b"body")
    assert type(world.reader.read(world.destination, 3)) is LargeBlock


def test_a_body_that_cannot_be_read_is_as_a_block_that_cannot_be() -> None:
    for error, halts in ((StoreDamagedError("the body"), True), (StoreError("the disk"), False)):
        world = Reading()
        world.large = LargeBlock(FRONT, Body(error))
        assert world.reader.whole(world.destination, 3) is None
        assert (world.registry.halted, world.failures) == (
            ({world.destination.number: error}, []) if halts else ({}, [error])
        )


def test_a_block_and_its_headers_are_read() -> None:
    world = Reading()
    block, content = world.reader.read(world.destination, 3), world.reader.headers(world.destination, 3)
    assert block is not None
    assert content is not None
    assert (text_of(block, 0), content.properties(0)) == ("a", {"n": 1})


def test_a_damaged_block_halts_its_destination_and_ends_who_uses_it_once() -> None:
    world = Reading()
    world.raises = StoreDamagedError("block 3")
    peer, other = RecordingPeer(), RecordingPeer()
    ended = world.attachments.attach(world.destination, peer, 11, Outbox())
    world.attachments.attach(world.add("other"), other, 12, Outbox())
    for _ in range(2):
        assert world.reader.read(world.destination, 3) is None
    told = {"handle": 11, "code": StoreDamagedError.code, "text": "block 3"}
    assert peer.take() == [("event", "halted", told)]
    assert world.halted == [str(world.raises)], "whoever has to know is told, once"
    assert other.take() == []
    assert world.performed == [
        cmd.DetachConsumer(ended.number),
        cmd.DetachProducer(ended.number, forget=False),
    ]
    assert (world.registry.halted, world.failures) == ({world.destination.number: world.raises}, [])


def test_a_destination_that_is_gone_is_not_halted() -> None:
    world = Reading()
    del world.registry.destinations["queue", "q"]
    world.reader.halt(world.destination, StoreDamagedError("block 3"))
    assert (world.registry.halted, world.performed) == ({}, [])


def test_any_other_error_of_the_store_stops_the_host() -> None:
    world = Reading()
    world.raises = StoreError("the disk is gone")
    assert world.reader.read(world.destination, 3) is None
    assert (world.failures, world.registry.halted) == ([world.raises], {})


def test_headers_that_cannot_be_read_change_nothing() -> None:
    world = Reading()
    for world.raises in (StoreError("gone"), StoreDamagedError("block 3")):
        assert world.reader.headers(world.destination, 3) is None
    assert (world.failures, world.registry.halted) == ([], {})
