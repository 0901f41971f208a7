"""The listening side against strangers and against guests who behave badly: nothing changes, and others are served."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.model.blocks.block import encode_block
from raybroker.model.settings.setting import PortRange
from raybroker.services.native.native import RefusalLog
from raybroker.transport.loops import new_event_loop
from raybroker.wire.native import frames as wire
from raybroker.wire.native.connection import PREFACE_BYTES, Native, preface
from tests.fuzz.rig import QUEUE, TOKEN, Rig, consumer_args, send

OPENING = wire.call(1, "hello", {"started": True})


def in_rig(
    work: Callable[[Rig], Coroutine[Any, Any, None]],
    properties: dict[str, object] | None = None,
    loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> None:
    """Run ``work`` in a loop of its own; an exception that nobody looked at fails the test too."""
    unseen: list[str] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(str(context)))
        async with Rig(properties) as rig:
            await work(rig)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())
    assert unseen == []


async def until(condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - what is waited for is seen from outside only
            await asyncio.sleep(0.005)


STRANGERS = {
    "a wrong token": preface(bytes(32)),
    "half a preface": preface(TOKEN)[:20],
    "an HTTP request": b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n",
    "frames without a preface": OPENING + wire.call(2, "open_producer", {"handle": 1, "name": QUEUE, "producer": 7}),
    "garbage": bytes(range(256)) * 40,
}


@pytest.mark.parametrize("name", STRANGERS)
@pytest.mark.parametrize("step", [1, 1000])
def test_a_stranger_changes_nothing_and_gets_no_answer(name: str, step: int) -> None:
    async def work(rig: Rig) -> None:
        before = rig.state()
        peer = rig.stranger()
        peer.feed(STRANGERS[name], step)
        peer.feed(send(1, producer=7, first_seq=100))
        assert rig.state() == before
        assert bytes(peer.transport.written) == b""
        assert peer.closed == (len(STRANGERS[name]) + 60 >= PREFACE_BYTES)
        assert rig.serves()

    in_rig(work)


def test_who_is_silent_is_cut_off_after_the_handshake_time() -> None:
    async def work(rig: Rig) -> None:
        silent, half, idle = rig.stranger(), rig.stranger(), rig.guest()
        half.feed(preface(TOKEN)[:35])
        await until(lambda: silent.closed and half.closed and idle.closed)
        assert bytes(half.transport.written) == b""
        assert not rig.service.service.connections

    in_rig(work, {"raybroker.handshake.timeout_ms": 50})


def test_who_has_introduced_himself_is_not_cut_off() -> None:
    async def work(rig: Rig) -> None:
        guest, silent = rig.guest(), rig.stranger()
        guest.feed(OPENING)
        await until(lambda: silent.closed)
        assert not guest.closed

    in_rig(work, {"raybroker.handshake.timeout_ms": 50})


def test_who_says_nothing_from_one_ping_to_the_next_is_lost() -> None:
    async def work(rig: Rig) -> None:
        alive, silent = rig.guest(), rig.guest()
        for peer in (alive, silent):
            peer.feed(OPENING)
            peer.frames()
            peer.connection.ping()
        [ping] = [frame for frame in alive.frames() if isinstance(frame, wire.PingFrame)]
        alive.feed(wire.pong(ping.nonce))
        for peer in (alive, silent):
            peer.connection.ping()
        assert (alive.closed, silent.closed) == (False, True)
        assert rig.serves()

    in_rig(work)


def test_who_is_silent_and_reads_nothing_is_lost_with_what_waits_for_it() -> None:
    """A process that is stopped: its machine takes bytes until its buffers are full, and then the rest waits here."""

    async def work(rig: Rig) -> None:
        address = await rig.service.listen("127.0.0.1", PortRange(0, 0))
        sender = rig.guest()
        sender.feed(OPENING)
        sender.feed(wire.call(2, "open_producer", {"handle": 1, "name": QUEUE, "type": "queue", "producer": 9}))
        _, writer = await asyncio.open_connection(*address, limit=1)
        writer.write(preface(TOKEN) + OPENING + wire.call(2, "open_consumer", consumer_args(limit=10_000)))
        connections = rig.service.service.connections
        await until(lambda: any(one.consumer_keys() for one in connections))
        [stopped] = [one for one in connections if one.consumer_keys()]
        seq = 1
        while not stopped.link.unsent_bytes:
            sender.feed(send(1, producer=9, first_seq=seq, bodies=(bytes(256 << 10),)))
            seq += 1
            await asyncio.sleep(0)
        await until(lambda: stopped.link.lost)
        assert rig.serves()
        writer.transport.abort()

    in_rig(work, {"imq.ping.interval": 1})


class Honest(asyncio.Protocol):
    """A client in the loop of its host. It answers each ping, and then the loop stands still for longer than a ping is
    waited for."""

    def __init__(self) -> None:
        self.pings = 0
        self.lost = False
        self._machine = Native(token=None)

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.write(preface(TOKEN) + OPENING)

    def data_received(self, data: bytes) -> None:
        for frame in self._machine.receive_data(data):
            if isinstance(frame, wire.PingFrame):
                self.pings += 1
                self._transport.write(wire.pong(frame.nonce))
                time.sleep(2)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


def test_whoever_answered_while_the_host_itself_stood_still_is_not_taken_for_silent() -> None:
    async def work(rig: Rig) -> None:
        address = await rig.service.listen("127.0.0.1", PortRange(0, 0))
        transport, client = await asyncio.get_running_loop().create_connection(Honest, *address)
        await until(lambda: client.pings == 3 or client.lost, 60)
        assert not client.lost
        transport.close()

    in_rig(work, {"imq.ping.interval": 1}, new_event_loop)


def test_more_connections_than_allowed_are_closed_at_once_and_those_that_are_there_stay() -> None:
    async def work(rig: Rig) -> None:
        peers = [rig.guest() for _ in range(3)]
        over = rig.guest()
        assert over.closed
        assert [p.closed for p in peers] == [False] * 3
        peers.pop().transport.close()
        assert not rig.guest().closed

    in_rig(work, {"raybroker.connections_max": 3})


def test_nothing_is_read_while_a_part_is_overloaded_or_the_connection_is_paused() -> None:
    async def work(rig: Rig) -> None:
        service, disk, memory = rig.service.service, SimpleNamespace(overloaded=True), SimpleNamespace(overloaded=False)
        guest, other = rig.guest(), rig.guest()
        reading = [guest.transport.is_reading, other.transport.is_reading]
        service.bounded = disk, memory
        guest.feed(OPENING)
        assert [reads() for reads in reading] == [False, True], "nobody who sends is read"
        disk.overloaded, memory.overloaded = False, True
        service.relieved()
        assert not guest.transport.is_reading(), "another part is behind"
        guest.connection.pause(True)
        memory.overloaded = False
        service.relieved()
        assert not guest.transport.is_reading(), "its service is paused"
        guest.connection.pause(False)
        assert guest.transport.is_reading()

    in_rig(work)


def lines(caplog: pytest.LogCaptureFixture, code: str) -> list[str]:
    return [text for record in caplog.records if (text := record.getMessage()).startswith(f"[{code}]")]


def test_the_log_says_who_came_and_who_went(caplog: pytest.LogCaptureFixture) -> None:
    async def work(rig: Rig) -> None:
        caplog.clear()
        peer = rig.guest()
        peer.feed(wire.call(1, "hello", {"client_id": "billing", "connection": "c1\nforged line"}))
        assert lines(caplog, "B1065") == [
            "[B1065] client 'billing', connection 'c1\\nforged line' connected from in-process"
        ]
        second = rig.guest()
        second.feed(wire.call(1, "hello", {"client_id": "billing", "connection": "c2"}))
        assert len(lines(caplog, "B1065")) == 1
        (refused,) = lines(caplog, "B2067")
        assert "client 'billing', connection 'c2' cannot have its client id now" in refused
        peer.transport.close()
        second.transport.close()
        assert lines(caplog, "B1066") == [
            "[B1066] client 'billing', connection 'c1\\nforged line' from in-process is gone"
        ]

    with caplog.at_level("INFO", logger="raybroker.host"):
        in_rig(work)


@pytest.mark.parametrize("name", ["a wrong token", "an HTTP request", "garbage"])
def test_strangers_are_counted_and_told_once(name: str, caplog: pytest.LogCaptureFixture) -> None:
    async def work(rig: Rig) -> None:
        for _ in range(20):
            rig.stranger().feed(STRANGERS[name] + bytes(60))
        assert rig.service.service.refused_count == 20
        assert len(lines(caplog, "B2067")) == 1

    in_rig(work)


def test_one_connection_too_many_is_told_with_the_limit(caplog: pytest.LogCaptureFixture) -> None:
    async def work(rig: Rig) -> None:
        peers = [rig.guest() for _ in range(3)]
        (line,) = lines(caplog, "B2067")
        assert line.startswith("[B2067] a client from in-process was refused: raybroker.connections_max=2 connections")
        assert [peer.closed for peer in peers] == [False, False, True]

    in_rig(work, {"raybroker.connections_max": 2})


def test_later_refusals_are_told_with_a_count(caplog: pytest.LogCaptureFixture) -> None:
    now_ns = [10**12]
    log = RefusalLog(lambda: now_ns[0])
    for _ in range(5):
        log.count_refusal("10.0.0.1:7", "no token")
    now_ns[0] += 61 * 10**9
    log.count_refusal("10.0.0.2:8", "no token")
    assert lines(caplog, "B2067") == [
        "[B2067] a client from 10.0.0.1:7 was refused: no token",
        "[B2067] a client from 10.0.0.2:8 was refused: no token (5 were refused since the line before)",
    ]


ILLEGAL = {
    "an unknown frame": b"\1\0\0\0\x63",
    "a declared 4 GiB": b"\xff\xff\xff\xff\x04",
    "a frame of a host": wire.promoted(1),
    "a block of somebody else": send(1, producer=8, first_seq=50),
    "msgpack that does not decode": b"\3\0\0\0\1\xc1\xc1",
}


@pytest.mark.parametrize("name", ILLEGAL)
def test_an_illegal_frame_ends_the_connection_and_gives_back_what_it_held(name: str) -> None:
    async def work(rig: Rig) -> None:
        before = rig.state()
        peer = rig.guest()
        peer.feed(OPENING)
        peer.feed(wire.call(2, "open_producer", {"handle": 1, "name": QUEUE, "producer": 70}))
        peer.feed(wire.call(3, "open_consumer", consumer_args(handle=2, limit=2)))
        assert not peer.closed
        peer.feed(ILLEGAL[name])
        assert peer.closed
        peer.connection.link.data_received(send(1, producer=70, first_seq=1))
        assert rig.host.registry.destinations["queue", QUEUE].block_index.messages == 3
        assert rig.state()[1:] == before[1:]
        assert rig.serves()

    in_rig(work)


HOSTILE_CALLS: list[tuple[str, dict[str, Any]]] = [
    ("hello", {"flow_count": "many"}),
    ("hello", {"flow_count": float("inf")}),
    ("hello", {"flow_count": None}),
    ("hello", {"client_id": [1], "started": {}}),
    ("", {}),
    ("__init__", {}),
    ("close", {}),
    ("open_producer", {}),
    ("open_producer", {"handle": 5, "name": QUEUE}),
    ("open_producer", {"handle": 5, "name": "nowhere", "producer": 1}),
    ("open_producer", {"handle": 5, "name": [QUEUE], "producer": 1}),
    ("open_producer", {"handle": 5, "name": {}, "producer": 1}),
    ("open_producer", {"handle": 5, "name": None, "producer": 1}),
    ("open_producer", {"handle": -1, "name": QUEUE, "producer": 1}),
    ("open_producer", {"handle": 1 << 32, "name": QUEUE, "producer": 1}),
    ("open_producer", {"handle": float("inf"), "name": QUEUE, "producer": 1}),
    ("open_producer", {"handle": float("nan"), "name": QUEUE, "producer": 1}),
    ("open_producer", {"handle": 5, "name": QUEUE, "producer": -1}),
    ("open_producer", {"handle": 5, "name": QUEUE, "producer": float("inf")}),
    ("open_producer", {"handle": 5, "name": QUEUE, "producer": "x"}),
    ("open_consumer", {}),
    ("open_consumer", consumer_args(handle=5, flow="all")),
    ("open_consumer", consumer_args(handle=5, flow=["credit"])),
    ("open_consumer", consumer_args(handle=5, limit=-2)),
    ("open_consumer", consumer_args(handle=5, limit=1 << 31)),
    ("open_consumer", consumer_args(handle=5, limit=float("inf"))),
    ("open_consumer", consumer_args(handle=5, name="nowhere")),
    ("close_producer", {}),
    ("close_producer", {"handle": "x"}),
    ("close_consumer", {"handle": float("inf")}),
    ("release", {}),
    ("release", {"handle": 77, "epoch": 1, "credit": 1}),
    ("release", {"handle": 2, "epoch": -1, "credit": 1}),
    ("release", {"handle": 2, "epoch": [], "credit": 1}),
    ("open_consumer", consumer_args(handle=5, type="stack")),
    ("open_consumer", consumer_args(handle=5, selector="a = ")),
    ("open_consumer", consumer_args(handle=5, selector=7)),
    ("open_consumer", consumer_args(handle=5, lease_ms=-1)),
    ("open_consumer", consumer_args(handle=5, lease_ms=float("inf"))),
    ("open_consumer", consumer_args(handle=5, subscription={"name": "n", "durable": True, "shared": False})),
    ("open_consumer", consumer_args(handle=5, subscription=[])),
    ("open_browser", {"handle": 2, "name": QUEUE}),
    ("open_browser", {"handle": 5, "name": QUEUE, "type": "topic"}),
    ("open_browser", {"handle": 5, "name": QUEUE, "selector": "("}),
    ("browse", {"handle": 5, "max": 1}),
    ("browse", {"handle": 2, "max": float("nan")}),
    ("txn_begin", {"txn": 1}),
    ("txn_begin", {"txn": 1, "key": b""}),
    ("txn_begin", {"txn": "x", "key": b"k"}),
    ("txn_commit", {"txn": 1, "key": "text", "acks": []}),
    ("txn_commit", {"txn": 1, "key": b"k", "acks": [[5, 1, [[1, 1]]]]}),
    ("txn_prepare", {"txn": 1, "key": b"k" * 161, "acks": []}),
    ("txn_decide", {"key": b"k", "commit": True}),
    ("txn_forget", {"key": 5}),
]


@pytest.mark.parametrize(("op", "args"), HOSTILE_CALLS, ids=lambda v: str(v)[:40])
def test_a_malformed_request_is_refused_and_changes_nothing(op: str, args: dict[str, Any]) -> None:
    async def work(rig: Rig) -> None:
        peer = rig.guest()
        peer.feed(OPENING)
        peer.feed(wire.call(2, "open_consumer", consumer_args(handle=2, limit=1)))
        peer.frames()
        before = rig.state()
        peer.feed(wire.call(9, op, args))
        answers = peer.frames()
        if op == "hello" and "client_id" in args:
            assert [type(a) for a in answers] == [wire.ReplyFrame]
            return
        if not peer.closed and op != "close_producer":
            assert [(type(a), a[0]) for a in answers] == [(wire.FailedFrame, 9)]
        if not peer.closed:
            assert rig.state() == before
        assert rig.serves()

    in_rig(work)


def test_credit_past_what_the_protocol_allows_is_refused() -> None:
    async def work(rig: Rig) -> None:
        for credit in (-2, 1 << 31, 1 << 62, float("inf"), "x"):
            peer = rig.guest()
            peer.feed(OPENING)
            peer.feed(wire.call(2, "open_consumer", consumer_args(handle=2, limit=1)))
            epoch = next(f.result["epoch"] for f in peer.frames() if isinstance(f, wire.ReplyFrame) and f.request == 2)
            peer.feed(wire.call(3, "release", {"handle": 2, "epoch": epoch, "credit": credit}))
            assert [type(f) for f in peer.frames()] == [wire.FailedFrame], credit
            peer.transport.close()
        assert rig.serves()

    in_rig(work)


def test_a_producer_can_only_have_a_number_that_its_blocks_can_carry() -> None:
    async def work(rig: Rig) -> None:
        for number, right in ((0, True), ((1 << 64) - 1, True), (1 << 64, False), (-1, False)):
            try:
                data = wire.call(2, "open_producer", {"handle": 1, "name": QUEUE, "producer": number})
            except OverflowError:
                continue
            peer = rig.guest()
            peer.feed(OPENING + data)
            assert [type(f) for f in peer.frames()][1:] == [wire.ReplyFrame if right else wire.FailedFrame]
            peer.transport.close()
        rig.state()

    in_rig(work)


@pytest.mark.parametrize("first", [0, (1 << 64) - 3, (1 << 64) - 1])
def test_sequence_numbers_at_the_end_of_their_range_break_nothing(first: int) -> None:
    async def work(rig: Rig) -> None:
        peer = rig.guest()
        peer.feed(OPENING + wire.call(2, "open_producer", {"handle": 1, "name": QUEUE, "producer": 70}))
        peer.feed(send(1, producer=70, first_seq=first))
        rig.state()  # Everything that is kept about the producer can be written down.
        assert rig.serves()

    in_rig(work)


def test_an_acknowledgement_of_what_was_never_delivered_is_answered_and_settles_nothing() -> None:
    async def work(rig: Rig) -> None:
        peer = rig.guest()
        peer.feed(OPENING + wire.call(2, "open_consumer", consumer_args(handle=2, limit=1)))
        replies = [f for f in peer.frames() if isinstance(f, wire.ReplyFrame)]
        epoch = replies[-1].result["epoch"]
        peer.feed(wire.ack(2, epoch, 5, [(2, (1 << 64) - 1)]))
        assert peer.frames() == [wire.AckedFrame(5, (1 << 32) - 1)]
        peer.feed(wire.ack(2, epoch + 1, 6, [(0, (1 << 64) - 1)]) + wire.ack(3, 0, 7, [(0, (1 << 64) - 1)]))
        assert [f[0] for f in peer.frames()] == [6, 7]
        assert rig.host.registry.destinations["queue", QUEUE].block_index.messages == 3
        assert rig.serves()

    in_rig(work)


def test_an_outcome_of_what_was_never_delivered_is_answered_and_settles_nothing() -> None:
    async def work(rig: Rig) -> None:
        peer = rig.guest()
        peer.feed(OPENING + wire.call(2, "open_consumer", consumer_args(handle=2, limit=1)))
        epoch = next(f.result["epoch"] for f in peer.frames() if isinstance(f, wire.ReplyFrame) and f.request == 2)
        for request, outcome in enumerate(("reject", "release", "fail", "expired"), start=5):
            peer.feed(wire.settle(2, epoch, request, outcome, -1, "", [(2, 9)]))
            assert peer.frames() == [wire.AckedFrame(request, 8)]
            peer.feed(wire.settle(2, epoch + 1, 9, outcome, -1, "", [(1, 1)]))
            assert peer.frames() == [wire.AckedFrame(9, 1)]
        peer.feed(wire.begun(2, epoch, (1 << 64) - 1) + wire.extend(2, epoch, [(1, 1 << 40)]) + wire.begun(9, 1, 1))
        assert not peer.closed
        assert rig.host.registry.destinations["queue", QUEUE].block_index.messages == 3
        assert rig.serves()

    in_rig(work)


def test_a_block_in_a_transaction_is_seen_when_it_is_committed() -> None:
    async def work(rig: Rig) -> None:
        peer = rig.guest()
        peer.feed(OPENING + wire.call(2, "open_producer", {"handle": 1, "name": QUEUE, "producer": 70}))
        peer.feed(send_in(7, handle=1, producer=70))
        await asyncio.sleep(0)
        assert [f for f in peer.frames() if isinstance(f, wire.SentFrame)] == [], "the end of the transaction tells"
        destination = rig.host.registry.destinations["queue", QUEUE]
        assert destination.block_index.messages == 4
        assert sum(queue.plain.backlog.count for queue in destination.queues.values()) == 3
        peer.feed(wire.call(3, "txn_commit", {"txn": 7, "key": b"k", "acks": []}))
        assert [f for f in peer.frames() if isinstance(f, wire.ReplyFrame)] == [wire.ReplyFrame(3, {})]
        assert sum(queue.plain.backlog.count for queue in destination.queues.values()) == 4

    in_rig(work)


def send_in(txn: int, *, handle: int, producer: int) -> bytes:
    block = encode_block([b"x"], producer=producer, first_seq=1, timestamp_ms=0, persistent=True, kinds=0)
    return b"".join(wire.send_tx(handle, 1, txn, block))


def test_a_persistent_block_for_a_handle_that_is_not_open_is_refused_message_by_message() -> None:
    async def work(rig: Rig) -> None:
        peer = rig.guest()
        peer.feed(OPENING + send(9, producer=7, first_seq=50))
        refusals = [f for f in peer.frames() if isinstance(f, wire.RefusedFrame)]
        assert [(f.handle, f.first_seq, f.messages, f.rows[0][:3]) for f in refusals] == [
            (9, 50, 3, (0, 3, "invalid_destination"))
        ]
        assert rig.host.registry.destinations["queue", QUEUE].block_index.messages == 3

    in_rig(work)


def test_a_message_above_the_brokers_limit_is_not_taken_whoever_sends_it() -> None:
    async def work(rig: Rig) -> None:
        peer = rig.guest()
        peer.feed(OPENING + wire.call(2, "open_producer", {"handle": 1, "name": QUEUE, "producer": 70}))
        peer.feed(send(1, producer=70, first_seq=1, bodies=(b"x" * 100,)))
        peer.feed(send(1, producer=70, first_seq=2, bodies=(b"x" * 101,)))
        assert rig.host.registry.destinations["queue", QUEUE].block_index.messages == 4
        assert rig.serves()

    in_rig(work, {"imq.message.max_size": 100})


def test_a_retried_block_is_confirmed_again_and_stored_once() -> None:
    async def work(rig: Rig) -> None:
        peer = rig.guest()
        peer.feed(OPENING + wire.call(2, "open_producer", {"handle": 1, "name": QUEUE, "producer": 7}))
        peer.feed(send(1, producer=7, first_seq=1) * 2)
        await asyncio.sleep(0)
        assert [f for f in peer.frames() if isinstance(f, wire.SentFrame)] == [wire.SentFrame(1, 1, 3)] * 2
        assert rig.host.registry.destinations["queue", QUEUE].block_index.messages == 3

    in_rig(work)


def test_no_port_left_in_the_range_is_said() -> None:
    from raybroker.model.errors import ConfigError

    async def work(rig: Rig) -> None:
        _, port = await rig.service.listen("127.0.0.1", PortRange(0, 0))
        async with Rig() as other:
            with pytest.raises(ConfigError, match=r"no free port in raybroker\.data\.ports"):
                await other.service.listen("127.0.0.1", PortRange(port, port))

    in_rig(work)


@pytest.mark.parametrize("name", STRANGERS)
def test_on_a_real_socket_a_stranger_reads_nothing_and_honest_clients_are_served(name: str) -> None:
    async def work(rig: Rig) -> None:
        address = await rig.service.listen("127.0.0.1", PortRange(0, 0))
        before = rig.state()
        reader, writer = await asyncio.open_connection(*address)
        writer.write(STRANGERS[name])
        if len(STRANGERS[name]) < PREFACE_BYTES:
            writer.write_eof()
        async with asyncio.timeout(10):
            try:
                assert await reader.read() == b""
            except ConnectionResetError:
                pass
        writer.close()
        assert rig.state() == before
        assert rig.serves()

    in_rig(work)


def test_a_service_that_listens_pings_its_connections_by_itself() -> None:
    async def work(rig: Rig) -> None:
        await rig.service.listen("127.0.0.1", PortRange(0, 0))
        silent = rig.guest()
        silent.feed(OPENING)
        await until(lambda: silent.closed)
        assert [frame for frame in silent.frames() if isinstance(frame, wire.PingFrame)]

    in_rig(work, {"imq.ping.interval": 1})


def test_on_a_real_socket_an_exception_of_ours_would_be_seen() -> None:
    """Frames over TCP take the same way as in the rig: a request of the wrong shape gets its answer."""

    async def work(rig: Rig) -> None:
        address = await rig.service.listen("127.0.0.1", PortRange(0, 0))
        reader, writer = await asyncio.open_connection(*address)
        writer.write(preface(TOKEN) + OPENING + wire.call(7, "open_producer", {"handle": float("inf")}))
        async with asyncio.timeout(10):
            data = await reader.readuntil(b"is malformed")
        assert b"hello" not in data
        writer.close()
        await until(lambda: not rig.service.service.connections)

    in_rig(work)
