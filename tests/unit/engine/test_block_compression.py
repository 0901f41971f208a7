"""Compression by the host: only where it is asked for, counted, and switched while it runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from raybroker.content.packed_block import packed, unpacked
from raybroker.engine.memory.block_compression import PAGING, STORE, BlockCompression
from raybroker.model.blocks.block import Block, encode_block
from raybroker.model.blocks.large_block import LargeBlock, LargePayload, payload_of
from raybroker.model.blocks.record import PackedPayload

DATA = encode_block([b"text " * 500], producer=1, first_seq=1, timestamp_ms=0, persistent=True, kinds=1)


class Body:
    """A body in a file of the store."""

    nbytes = 2_500

    def claim(self) -> bool:
        return True

    def piece(self, number: int) -> bytes:
        raise AssertionError("nobody reads it")


class Rig:
    def __init__(self, **config: bool) -> None:
        self.config: Any = {STORE: False, PAGING: False} | config
        self.writer: Any = SimpleNamespace(payload=None)
        self.files: Any = SimpleNamespace(pack=None, saved_bytes=0)
        codec: Any = SimpleNamespace(packed=packed)
        self.because = ""
        self.said: list[str] = []
        store: Any = SimpleNamespace(plain_because=lambda: self.because)
        self.part = BlockCompression(codec, self.config, store, self.writer, self.files, self.said.append)


def test_off_the_store_gets_blocks_by_the_usual_way() -> None:
    rig = Rig()
    assert rig.writer.payload is payload_of
    assert rig.files.pack is None
    assert (rig.part.blocks, rig.part.saved_bytes, rig.part.paging_saved_bytes) == (0, 0, 0)


def test_on_the_store_gets_packed_blocks_and_what_is_saved_is_counted() -> None:
    rig = Rig(**{STORE: True})
    (kept,) = rig.writer.payload(Block(DATA))
    assert bytes(unpacked(kept)) == DATA
    assert (rig.part.blocks, rig.part.saved_bytes) == (1, len(DATA) - len(kept))
    tiny = encode_block([b"x"], producer=1, first_seq=1, timestamp_ms=0, persistent=True, kinds=1)
    (small,) = rig.writer.payload(Block(tiny))
    assert rig.part.blocks == 1, "what got no smaller does not count"
    assert unpacked(small) is small


def test_a_body_that_is_in_a_file_of_the_store_stays_there() -> None:
    rig = Rig(**{STORE: True})
    front = encode_block([bytes(2_500)], producer=1, first_seq=1, timestamp_ms=0, persistent=True, kinds=1, front=True)
    assert type(rig.writer.payload(LargeBlock(front, Body()))) is LargePayload


def test_the_two_are_switched_apart_and_while_it_runs() -> None:
    rig = Rig()
    rig.config[PAGING] = True
    rig.part.configure()
    assert rig.writer.payload is payload_of
    assert bytes(unpacked(rig.files.pack(DATA))) == DATA
    rig.files.saved_bytes = 5
    assert rig.part.paging_saved_bytes == 5
    rig.config.update({PAGING: False, STORE: True})
    rig.part.configure()
    assert rig.files.pack is None
    assert rig.writer.payload is not payload_of


def test_a_host_without_paging_has_nothing_to_switch() -> None:
    writer: Any = SimpleNamespace(payload=None)
    config: Any = {STORE: False, PAGING: True}
    codec: Any = SimpleNamespace(packed=packed)
    store: Any = SimpleNamespace(plain_because=lambda: "")
    assert BlockCompression(codec, config, store, writer, None, print).paging_saved_bytes == 0


def test_a_store_that_keeps_blocks_as_they_came_gets_them_so_and_the_log_hears_of_it_once() -> None:
    rig = Rig(**{STORE: True})
    rig.because = "no right"
    assert type(rig.writer.payload(Block(DATA))) is PackedPayload, "until it is looked again"
    rig.part.follow_store()
    rig.part.follow_store()
    assert rig.writer.payload is payload_of
    assert (rig.said, rig.part.refused_because) == (["no right"], "no right")
    rig.because = ""
    rig.part.follow_store()
    assert type(rig.writer.payload(Block(DATA))) is PackedPayload
    assert rig.said == ["no right", "messages are compressed where they are stored from now on"]


def test_a_store_that_keeps_blocks_as_they_came_is_no_matter_where_nobody_compresses() -> None:
    rig = Rig()
    rig.because = "no right"
    rig.part.follow_store()
    rig.part.configure()
    assert (rig.said, rig.part.refused_because) == ([], "")
    rig.config[STORE] = True
    rig.part.configure()
    assert (rig.said, rig.part.refused_because, rig.writer.payload) == (["no right"], "no right", payload_of)


def test_what_is_compressed_keeps_what_it_is_made_of() -> None:
    found = Rig(**{STORE: True}).writer.payload(Block(DATA))
    assert type(found) is PackedPayload
    assert b"".join(found.plain) == DATA
