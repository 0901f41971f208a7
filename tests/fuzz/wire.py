"""Fuzzing of the parts that read bytes of a peer, without sockets: ``python -m tests.fuzz.wire --seconds N``.

See ``engine.py`` for the options, and ``listeners.py`` for whole listeners; ``python -m tests.fuzz`` has both.
"""

from __future__ import annotations

import asyncio
import sys
from typing import NamedTuple

import msgpack
from hypothesis import strategies as st

from raybroker.content.bodies import decode_body
from raybroker.content.death_records import dead_block, dead_wish, revive_block
from raybroker.content.expiration_log import expiry_record
from raybroker.content.headers import HEADER_NAMES, content_of, decode_header
from raybroker.model.blocks.block import Block, encode_block
from raybroker.model.errors import MessageFormatError, ProtocolError, SecurityError
from raybroker.wire.native import frames as wire
from raybroker.wire.native.connection import GROW_BYTES, PREFACE_BYTES, SCRATCH_BYTES, Native, preface
from tests.fuzz import amqp, engine, samples
from tests.fuzz.engine import Target
from tests.fuzz.rig import QUEUE, TOKEN, Rig, consumer_args


def _pieces(data: bytes) -> list[bytes]:
    """The first byte says how the rest is cut."""
    if not data:
        return []
    step = data[0] or 1 << 30
    return [data[at : at + step] for at in range(1, len(data), step)]


def _decode(machine: Native, data: bytes, arrived: int = 0) -> None:
    try:
        for piece in _pieces(data):
            arrived += len(piece)
            machine.receive_data(piece)
            assert machine.held_bytes <= arrived
            assert machine.buffer().nbytes <= max(GROW_BYTES, SCRATCH_BYTES)
    except (ProtocolError, SecurityError):
        assert machine.closed
        assert machine.held_bytes == 0
        assert machine.receive_data(wire.ping(1)) == []


def host_decoder(data: bytes) -> None:
    machine = Native(token=TOKEN)
    machine.receive_data(preface(TOKEN))
    _decode(machine, data)


def client_decoder(data: bytes) -> None:
    _decode(Native(token=None), data)


def stranger(data: bytes) -> None:
    """Nobody gets in without the token."""
    machine = Native(token=TOKEN)
    _decode(machine, data)
    assert not machine.authenticated or data[1 : 1 + PREFACE_BYTES] == preface(TOKEN)


def block(data: bytes) -> None:
    try:
        found = Block(data)
        found.check()
    except ProtocolError:
        return
    for index in range(found.count):
        found.kind_of(index)
        found.header(index)
        found.priority_of(index)
        found.expires_of(index)
        found.deliver_at_of(index)
        found.seq_of(index)
        Block(b"".join(found.part(index, found.count))).check()
    some = Block(b"".join(found.pick(sum(1 << index for index in range(0, found.count, 2)))))
    some.check()
    some.with_overrides(now_ms=1, ttl_ms=1, delay_ms=1, priority=1, persistent=True).check()
    about(some)


class Killed(NamedTuple):
    """Why the messages of the fuzzed blocks are dead."""

    reason: str = "ERROR"
    comment: str = "poison"
    attempts: int = 3
    origin: tuple[str, str] = ("queue", "orders")
    broker: str = "b1"
    failure: str = "ValueError: poison"
    cause: str = "poison"
    subscription: str = '{"client_id": "c", "name": "n", "durable": true}'


def about(found: Block) -> None:
    """Everything that a host reads in a block's headers or writes into them."""
    view, whole = content_of(found), (1 << found.count) - 1
    view.dedup_ids()
    for index in range(found.count):
        view.properties(index)
        for name in HEADER_NAMES:
            view.header(index, name)
        dead_wish(found, index)
        expiry_record(found, index, "%header%,%properties%")
    kwargs = {"producer": 1, "first_seq": 1, "now_ms": 1}
    dead = Block(dead_block(found, whole, Killed(), truncate=bool(found.count % 2), **kwargs))
    dead.check()
    ((_, _, _, mask, revived),) = revive_block(dead, whole, **kwargs)
    assert mask == whole
    Block(revived).check()


def content(data: bytes) -> None:
    try:
        decode_header(data)
    except ProtocolError:
        pass
    try:
        decode_body(data[0] if data else 0, data[1:], 1 << 20)
    except MessageFormatError:
        pass
    about(
        Block(
            encode_block(
                [b"", data], producer=1, first_seq=1, timestamp_ms=0, persistent=True, kinds=0x81, headers=[data, b""]
            )
        )
    )


class Service:
    """A whole host behind an authenticated connection; after each input it must still serve an honest client."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.unseen: list[str] = []
        self.loop.set_exception_handler(lambda _, context: self.unseen.append(str(context)))

    def __call__(self, data: bytes) -> None:
        self.loop.run_until_complete(self._run(data))
        assert not self.unseen, self.unseen

    async def _run(self, data: bytes) -> None:
        async with Rig() as rig:
            peer = rig.guest()
            peer.feed(wire.call(1, "hello", {"started": True}))
            peer.feed(wire.call(2, "open_producer", {"handle": 1, "name": QUEUE, "type": "queue", "producer": 7}))
            peer.feed(wire.call(3, "open_consumer", consumer_args(handle=2, limit=2)))
            for piece in _pieces(data):
                peer.feed(piece)
                await asyncio.sleep(0)
            rig.state()
            if not peer.closed:
                peer.transport.close()
            assert rig.host.failure is None
            purge: asyncio.Future[None] = self.loop.create_future()
            if ("queue", QUEUE) in rig.host.registry.destinations:
                rig.host.administration.purge(QUEUE, lambda: purge.set_result(None))
                await purge
            assert rig.serves()


def targets() -> dict[str, tuple[Target, st.SearchStrategy[bytes]]]:
    """Name → what is fuzzed, and inputs for it."""
    first = st.integers(0, 255).map(lambda n: bytes([n]))
    to_host, to_client = samples.mutated(samples.to_host), samples.mutated(samples.to_client)
    near = st.binary(max_size=120)
    strange = st.one_of(near, st.just(preface(TOKEN)), near.map(lambda b: preface(TOKEN)[:30] + b))
    headers = st.dictionaries(st.sampled_from("pcrtdux") | samples.words, samples.maps | samples.plain).map(
        msgpack.packb
    )
    hostile = st.lists(samples.hostile, min_size=1, max_size=5).map(b"".join)
    return {
        "host_decoder": (host_decoder, st.tuples(first, to_host | near).map(b"".join)),
        "client_decoder": (client_decoder, st.tuples(first, to_client | near).map(b"".join)),
        "stranger": (stranger, st.tuples(first, strange).map(b"".join)),
        "block": (block, samples.mutated(samples.blocks().map(lambda b: samples.Sample(("", ()), b))) | near),
        "content": (content, headers | near),
        "service": (Service(), st.tuples(first, hostile | to_host).map(b"".join)),
        **amqp.targets(),
    }


def main(arguments: list[str]) -> int:
    return engine.main("tests.fuzz.wire", targets(), arguments)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
