"""What a peer can make the machine hold: about as much as it has sent, whatever it declares."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable

import pytest

from raybroker.model.errors import ProtocolError
from raybroker.wire.native import connection
from raybroker.wire.native.connection import PREFACE_BYTES, SCRATCH_BYTES, TOKEN_BYTES, Native, preface
from raybroker.wire.native.frames import FRAME_BYTES_MAX, ping

TOKEN = bytes(range(TOKEN_BYTES))


def host_end() -> Native:
    """A listening side that has authenticated its peer."""
    machine = Native(token=TOKEN)
    assert machine.receive_data(preface(TOKEN)) == []
    return machine


def traced(call: Callable[[], object]) -> int:
    """Bytes that a call held at its peak."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_declared_length_alone_costs_no_memory() -> None:
    machines = []

    def declare() -> None:
        for _ in range(20):
            machine = host_end()
            machine.receive_data(struct.pack("<IB", FRAME_BYTES_MAX, 4) + bytes(100))
            machines.append(machine)

    assert traced(declare) < 20 * (connection.GROW_BYTES + 2 * SCRATCH_BYTES) + (1 << 20)
    assert [m.held_bytes for m in machines] == [105] * 20


def test_a_connection_that_has_said_little_holds_little() -> None:
    machines = []

    def log_in() -> None:
        for number in range(200):
            machine = host_end()
            assert len(machine.receive_data(ping(number))) == 1
            machines.append(machine)

    assert traced(log_in) < 200 * (connection.FIRST_BYTES + 2048)


def test_a_frame_declared_as_4_gib_is_refused_with_its_first_five_bytes() -> None:
    for kind in (1, 4, 8):
        machine = host_end()

        def declare(machine: Native = machine, kind: int = kind) -> None:
            with pytest.raises(ProtocolError, match="4294967295"):
                machine.receive_data(struct.pack("<IB", 0xFFFF_FFFF, kind))

        assert traced(declare) < 1 << 19


def test_a_large_frame_that_grows_slowly_holds_little_more_than_what_came() -> None:
    machine = host_end()
    machine.receive_data(struct.pack("<IB", FRAME_BYTES_MAX, 4))
    piece = bytes(100_000)

    def grow() -> None:
        for _ in range(50):
            machine.receive_data(piece)

    # A buffer that grows may be copied once more while it does.
    assert traced(grow) < 2 * (50 * len(piece)) + 2 * connection.GROW_BYTES
    assert machine.held_bytes == 5 + 50 * len(piece)


def test_before_the_token_no_more_than_a_preface_is_allocated() -> None:
    machine = Native(token=TOKEN)
    assert machine.buffer().nbytes <= PREFACE_BYTES
