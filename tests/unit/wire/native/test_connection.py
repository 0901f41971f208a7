"""The native protocol: every frame round trips however it is cut, and only a protocol error leaves the machine."""

from __future__ import annotations

import inspect
import struct
from collections.abc import Callable
from typing import Any, get_args

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raybroker.model.blocks.block import BLOCK_BYTES_MAX, Block, encode_block
from raybroker.model.errors import ProtocolError, SecurityError
from raybroker.wire.native import connection, decoding
from raybroker.wire.native import frames as wire
from raybroker.wire.native.connection import FIRST_BYTES, PREFACE_BYTES, SCRATCH_BYTES, TOKEN_BYTES, Native, preface
from raybroker.wire.native.frames import CONTROL_BYTES_MAX, FRAME_BYTES_MAX
from tests.fuzz import samples
from tests.fuzz.samples import Sample, cuts, shape

TOKEN = bytes(range(TOKEN_BYTES))


def host_end() -> Native:
    """A listening side that has authenticated its peer."""
    machine = Native(token=TOKEN)
    assert machine.receive_data(preface(TOKEN)) == []
    return machine


def client_end() -> Native:
    return Native(token=None)


ENDS: dict[str, tuple[Callable[[], Native], st.SearchStrategy[Sample]]] = {
    "host": (host_end, samples.to_host),
    "client": (client_end, samples.to_client),
}
ends = pytest.mark.parametrize("end", ENDS)


def test_every_frame_type_has_samples() -> None:
    known = {kind.__name__ for kind in get_args(wire.Frame)}
    assert known == set(samples.TO_HOST) | set(samples.TO_CLIENT)


# ---- round trips -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", samples.TO_HOST)
@given(data=st.data())
@settings(max_examples=25)
def test_a_frame_to_the_host_comes_out_as_it_went_in(name: str, data: st.DataObject) -> None:
    sample = data.draw(samples.TO_HOST[name])
    machine = host_end()
    assert [shape(f) for f in machine.receive_data(sample.data)] == [sample.frame]
    assert machine.held_bytes == 0


@pytest.mark.parametrize("name", samples.TO_CLIENT)
@given(data=st.data())
@settings(max_examples=25)
def test_a_frame_to_the_client_comes_out_as_it_went_in(name: str, data: st.DataObject) -> None:
    sample = data.draw(samples.TO_CLIENT[name])
    machine = client_end()
    assert [shape(f) for f in machine.receive_data(sample.data)] == [sample.frame]
    assert machine.held_bytes == 0


@ends
@given(data=st.data())
@settings(max_examples=60)
def test_frames_come_out_the_same_however_the_stream_is_cut(end: str, data: st.DataObject) -> None:
    make, strategy = ENDS[end]
    some = data.draw(st.lists(strategy, max_size=5))
    stream = b"".join(s.data for s in some)
    machine = make()
    found = []
    arrived = 0
    for piece in data.draw(cuts(stream)):
        arrived += len(piece)
        found += [shape(f) for f in machine.receive_data(piece)]
        assert machine.held_bytes <= arrived
    assert found == [s.frame for s in some]
    assert machine.held_bytes == 0


@ends
@given(data=st.data())
@settings(max_examples=30)
def test_frames_come_out_the_same_byte_by_byte_and_with_the_preface_in_front(end: str, data: st.DataObject) -> None:
    _, strategy = ENDS[end]
    some = data.draw(st.lists(strategy, min_size=1, max_size=3))
    stream = b"".join(s.data for s in some)
    machine = Native(token=TOKEN if end == "host" else None)
    if end == "host":
        stream = preface(TOKEN) + stream
    found = []
    for index in range(len(stream)):
        found += [shape(f) for f in machine.receive_data(stream[index : index + 1])]
    assert found == [s.frame for s in some]


@ends
@given(data=st.data())
@settings(max_examples=30)
def test_what_follows_a_frame_stays_for_the_next_one(end: str, data: st.DataObject) -> None:
    make, strategy = ENDS[end]
    first, second = data.draw(strategy), data.draw(strategy)
    machine = make()
    cut = data.draw(st.integers(0, len(second.data) - 1))
    assert [shape(f) for f in machine.receive_data(first.data + second.data[:cut])] == [first.frame]
    assert machine.held_bytes == cut
    assert [shape(f) for f in machine.receive_data(second.data[cut:])] == [second.frame]


def test_many_rows_of_sent_are_one_frame() -> None:
    rows = [(1, 10, 5), (2, 7, 1), (1, 15, 3)]
    assert client_end().receive_data(wire.sent(rows)) == [wire.SentFrame(*row) for row in rows]


def block_of(size: int) -> bytes:
    return encode_block([b"x" * size], producer=7, first_seq=1, timestamp_ms=0, persistent=True, kinds=0)


@pytest.mark.parametrize("extra", [-1, 0, 1])
@pytest.mark.parametrize("piece", [1000, FIRST_BYTES, SCRATCH_BYTES, 1 << 30])
@pytest.mark.parametrize("scratch", [FIRST_BYTES, SCRATCH_BYTES])
def test_a_frame_about_as_large_as_the_scratch_comes_through(extra: int, piece: int, scratch: int) -> None:
    empty = len(b"".join(wire.send(1, 1, block_of(0))))
    stream = b"".join(wire.send(1, 1, block_of(scratch - empty + extra)))
    assert len(stream) == scratch + extra
    stream = wire.ping(1) + stream + wire.ping(2)
    machine = host_end()
    found = [f for at in range(0, len(stream), piece) for f in machine.receive_data(stream[at : at + piece])]
    assert [type(f) for f in found] == [wire.PingFrame, wire.SendFrame, wire.PingFrame]
    assert isinstance(found[1], wire.SendFrame)
    assert found[1].block.body(0) == b"x" * (scratch - empty + extra)


def test_messages_of_a_frame_are_not_touched_by_what_comes_after_it() -> None:
    machine = client_end()
    small, large = block_of(100), block_of(300_000)
    found = [f for block in (small, large) for f in machine.receive_data(b"".join(wire.deliver(1, 1, 1, 1, (block,))))]
    machine.receive_data(b"".join(wire.pong(n) for n in range(20_000)))
    assert [bytes(f.block.view) for f in found if isinstance(f, wire.DeliverFrame)] == [small, large]


def test_the_largest_message_fits_into_a_frame() -> None:
    assert BLOCK_BYTES_MAX + 64 == FRAME_BYTES_MAX
    assert FRAME_BYTES_MAX >= 70 * 1024 * 1024 + 64 * 1024


def feed(machine: Native, data: bytes, step: int) -> None:
    """Bytes that complete no frame, in steps; never more is held than a preface before authentication."""
    for at in range(0, len(data), step):
        assert machine.receive_data(data[at : at + step]) == []
        assert machine.authenticated or machine.held_bytes < PREFACE_BYTES


# ---- authentication --------------------------------------------------------------------------------------------------


def test_the_right_token_opens_the_door() -> None:
    machine = Native(token=TOKEN)
    assert not machine.authenticated
    machine.receive_data(preface(TOKEN)[:-1])
    assert not machine.authenticated
    machine.receive_data(preface(TOKEN)[-1:])
    assert machine.authenticated


STRANGERS = {
    "wrong token": connection.MAGIC + bytes(TOKEN_BYTES),
    "last byte wrong": preface(TOKEN)[:-1] + b"\xff",
    "other magic": b"RBK\x02" + TOKEN,
    "no magic": TOKEN + b"RBK\x01",
    "an HTTP request": b"GET / HTTP/1.1\r\nHost: broker.example\r\nAccept: */*\r\n\r\n",
    "a TLS hello": bytes.fromhex("16030100f1010000ed0303") + bytes(60),
    "zeros": bytes(200),
    "a frame without a preface": wire.call(1, "hello", {"client_id": "somebody", "started": True}),
    "a declared 4 GiB": b"\xff\xff\xff\xff\x04" + bytes(60),
}


@pytest.mark.parametrize("name", STRANGERS)
@pytest.mark.parametrize("step", [1, 7, 36, 10_000])
def test_who_shows_no_token_is_refused_and_nothing_is_parsed(
    name: str, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("something was parsed before authentication")

    monkeypatch.setattr(decoding, "_unpack", never)
    monkeypatch.setattr(connection, "TO_HOST", dict.fromkeys(range(256), never))
    data = STRANGERS[name] + wire.ping(1) * 10
    machine = Native(token=TOKEN)
    with pytest.raises(SecurityError, match="token"):
        feed(machine, data, step)
    assert machine.closed
    assert not machine.authenticated
    assert machine.receive_data(preface(TOKEN) + wire.ping(1)) == []
    assert not machine.authenticated


@given(st.binary(min_size=PREFACE_BYTES, max_size=100), st.data())
def test_random_bytes_never_authenticate(garbage: bytes, data: st.DataObject) -> None:
    machine = Native(token=TOKEN)
    if garbage[:PREFACE_BYTES] == preface(TOKEN):
        return
    with pytest.raises(SecurityError):
        feed(machine, garbage, data.draw(st.integers(1, 50)))


def test_a_partial_preface_keeps_less_than_a_preface_and_says_nothing() -> None:
    machine = Native(token=TOKEN)
    for size in range(PREFACE_BYTES):
        assert machine.held_bytes == size
        assert machine.receive_data(preface(TOKEN)[size : size + 1]) == []
    assert machine.held_bytes == 0


def test_the_token_is_compared_in_constant_time() -> None:
    assert "hmac.compare_digest" in inspect.getsource(Native._check_preface)


# ---- illegal frames --------------------------------------------------------------------------------------------------


def framed(kind: int, body: bytes, length: int | None = None) -> bytes:
    return struct.pack("<IB", len(body) + 1 if length is None else length, kind) + body


def with_gaps() -> bytes:
    """A block that only a host could have made."""
    block = encode_block([b"a", b"b", b"c"], producer=7, first_seq=1, timestamp_ms=0, persistent=True, kinds=0)
    return b"".join(Block(block).pick(0b101))


def with_headers(size: int) -> bytes:
    return encode_block(
        [b"", b""], producer=7, first_seq=1, timestamp_ms=0, persistent=True, kinds=0, headers=[b"", bytes(size)]
    )


def settle(**changes: object) -> bytes:
    """A SETTLE frame with fields of our choice; without arguments it is a right one."""
    fields = {"handle": 1, "epoch": 1, "request": 1, "outcome": "fail", "delay_ms": 0, "reason": "", "ranges": [[1, 2]]}
    return packed(18, list((fields | changes).values()))


def packed(kind: int, value: object) -> bytes:
    return framed(kind, msgpack.packb(value))


def nested(depth: int) -> bytes:
    """A CALL whose arguments are nested that deep, which no encoder would make."""
    return framed(1, b"\x93\x01\xa1x\x81\xa1y" + b"\x91" * depth + b"\xc0")


ILLEGAL = {
    "an unknown type": framed(99, b""),
    "type zero": framed(0, b""),
    "what only a host says": wire.acked(1, 0),
    "a length of zero": framed(13, b"", length=0),
    "a control frame over its limit": struct.pack("<IB", CONTROL_BYTES_MAX + 1, 1),
    "a message frame over its limit": struct.pack("<IB", FRAME_BYTES_MAX + 1, 4),
    "four GiB of messages": struct.pack("<IB", 0xFFFF_FFFF, 4),
    "four GiB of control": struct.pack("<IB", 0xFFFF_FFFF, 1),
    "a CALL that is no msgpack": framed(1, b"\xc1\xc1"),
    "a CALL cut short": framed(1, msgpack.packb([1, "hello", {"a": 1}])[:-1]),
    "a CALL with bytes behind": framed(1, msgpack.packb([1, "hello", {}]) + b"\0"),
    "a CALL of a map": packed(1, {"request": 1}),
    "a CALL of two": packed(1, [1, "hello"]),
    "a CALL of four": packed(1, [1, "hello", {}, 0]),
    "a CALL with a text for a number": packed(1, ["1", "hello", {}]),
    "a CALL with a truth value for a number": packed(1, [True, "hello", {}]),
    "a CALL with a negative number": packed(1, [-1, "hello", {}]),
    "a CALL with a number past 32 bits": packed(1, [1 << 32, "hello", {}]),
    "a CALL with bytes for a name": packed(1, [1, b"hello", {}]),
    "a CALL with a list for arguments": packed(1, [1, "hello", []]),
    "a CALL with numbers for names": packed(1, [1, "hello", {1: 2}]),
    "a CALL of broken text": framed(1, b"\x93\x01\xa2\xff\xfe\x80"),
    "a CALL nested too deeply": nested(5_000),
    "a CALL that declares a huge list": framed(1, b"\xdd\xff\xff\xff\xff"),
    "a CALL that declares a huge text": framed(1, b"\x93\x01\xdb\xff\xff\xff\xff"),
    "a SEND without a block": framed(4, bytes(12)),
    "a SEND too short": framed(4, bytes(11)),
    "a SEND with half a block": framed(4, bytes(12) + block_of(10)[:-1]),
    "a SEND with gaps": framed(4, bytes(12) + with_gaps()),
    "a SEND with headers past their bound": framed(4, bytes(12) + with_headers(69_633)),
    "a SEND_TX too short": framed(17, bytes(19)),
    "a SEND_TX without a block": framed(17, struct.pack("<IQQ", 1, 1, 1)),
    "a SEND_TX of no transaction": framed(17, struct.pack("<IQQ", 1, 1, 0) + block_of(1)),
    "a SEND_TX of a transaction past 32 bits": framed(17, struct.pack("<IQQ", 1, 1, 1 << 32) + block_of(1)),
    "a SEND_TX with gaps": framed(17, struct.pack("<IQQ", 1, 1, 1) + with_gaps()),
    "a SEND_TX over its limit": struct.pack("<IB", FRAME_BYTES_MAX + 1, 17),
    "a SETTLE over its limit": struct.pack("<IB", CONTROL_BYTES_MAX + 1, 18),
    "a SETTLE of an unknown outcome": settle(outcome="lost"),
    "a SETTLE with a handle past 32 bits": settle(handle=1 << 32),
    "a SETTLE with a negative epoch": settle(epoch=-1),
    "a SETTLE with a request past 32 bits": settle(request=1 << 32),
    "a SETTLE with a delay below -1": settle(delay_ms=-2),
    "a SETTLE with a delay past its bound": settle(delay_ms=wire.DELAY_MS_MAX + 1),
    "a SETTLE with a long reason": settle(reason="x" * (wire.REASON_CHARS_MAX + 1)),
    "a SETTLE with half a range": settle(ranges=[[1]]),
    "a SETTLE with a range that is none": settle(ranges=[1]),
    "a SETTLE with a range of truth values": settle(ranges=[[True, True]]),
    "a SETTLE with a range backwards": settle(ranges=[[2, 1]]),
    "a SETTLE with a negative range": settle(ranges=[[-1, 1]]),
    "a SETTLE with a range of a fraction": settle(ranges=[[1, 2], [1, 1.5]]),
    "a BEGUN too short": framed(19, bytes(19)),
    "a BEGUN too long": framed(19, bytes(21)),
    "an EXTEND too short": framed(20, bytes(11)),
    "an EXTEND with half a range": framed(20, bytes(12 + 8)),
    "an EXTEND with a range backwards": framed(20, bytes(12) + struct.pack("<QQ", 2, 1)),
    "an ACK too short": framed(8, bytes(15)),
    "an ACK with half a range": framed(8, bytes(16 + 8)),
    "an ACK with a range backwards": framed(8, bytes(16) + struct.pack("<QQ", 2, 1)),
    "a CREDIT too long": framed(10, bytes(17)),
    "a PING too short": framed(13, bytes(7)),
    "a FLOW of two": framed(15, b"\x02"),
    "a FLOW of nothing": framed(15, b""),
}


@pytest.mark.parametrize("name", ILLEGAL)
@pytest.mark.parametrize("step", [1, 10_000_000])
def test_an_illegal_frame_closes_the_machine_for_good(name: str, step: int) -> None:
    machine = host_end()
    data = ILLEGAL[name]
    with pytest.raises(ProtocolError):
        feed(machine, data, step)
    assert machine.closed
    assert not machine.authenticated
    assert machine.held_bytes == 0
    assert machine.receive_data(wire.ping(1)) == []


def test_refused_rows_must_have_the_right_shape() -> None:
    wrong: list[list[Any]] = [
        [1],
        [[1, 2, "a"]],
        [[1, 2, "a", 3]],
        [["1", 2, "a", "b"]],
        [[1, 2, "a", "b", "c"]],
        [[True, 1, "", ""]],
    ]
    for rows in wrong:
        with pytest.raises(ProtocolError):
            client_end().receive_data(packed(6, [1, 1, 1, rows]))


@ends
@given(data=st.data())
@settings(max_examples=200)
def test_only_a_protocol_error_leaves_the_decoder_for_mutated_frames(end: str, data: st.DataObject) -> None:
    make, strategy = ENDS[end]
    machine = make()
    arrived = 0
    try:
        for piece in data.draw(cuts(data.draw(samples.mutated(strategy)))):
            arrived += len(piece)
            machine.receive_data(piece)
            assert machine.held_bytes <= arrived
    except ProtocolError:
        assert machine.closed
        assert machine.receive_data(wire.ping(1)) == []


@ends
@given(kind=st.integers(0, 24), body=st.binary(max_size=80))
@settings(max_examples=200)
def test_only_a_protocol_error_leaves_the_decoder_for_random_bodies(end: str, kind: int, body: bytes) -> None:
    machine = ENDS[end][0]()
    try:
        machine.receive_data(framed(kind, body))
    except ProtocolError:
        assert machine.closed


# ---- what is written can be read -------------------------------------------------------------------------------------


def test_a_control_frame_over_its_limit_is_not_written() -> None:
    with pytest.raises(ProtocolError, match="control frame"):
        wire.reply(1, "x" * CONTROL_BYTES_MAX)


def test_an_acknowledgement_of_deliveries_that_nobody_made_can_be_answered() -> None:
    """A peer may name any range; the number of what was not found in it need not fit its field."""
    assert client_end().receive_data(wire.acked(1, (1 << 64) - 1)) == [wire.AckedFrame(1, (1 << 32) - 1)]


def test_the_settle_frame_of_this_file_without_a_fault_is_right() -> None:
    assert host_end().receive_data(settle()) == [wire.SettleFrame(1, 1, 1, "fail", 0, "", [(1, 2)])]


def test_a_reason_is_cut_and_made_text_when_it_is_sent() -> None:
    (found,) = host_end().receive_data(wire.settle(1, 1, 0, "reject", -1, "\ud800" + "x" * 9_000, []))
    assert isinstance(found, wire.SettleFrame)
    assert found.reason == "?" + "x" * (wire.REASON_CHARS_MAX - 1)


def test_the_largest_headers_of_a_dead_message_can_be_sent_on() -> None:
    (found,) = host_end().receive_data(framed(4, bytes(12) + with_headers(69_632)))
    assert isinstance(found, wire.SendFrame)
