"""A host's listening side without a socket: bytes go in by hand, and what it would write is kept."""

from __future__ import annotations

import asyncio
from typing import Any

from raybroker.config import Config
from raybroker.core.durable.snapshot import snapshot
from raybroker.hosting.host_service import HostService, HostStorage
from raybroker.model.blocks.block import encode_block
from raybroker.model.settings.settings import destination_attributes
from raybroker.services.native.native import NativeConnection
from raybroker.store.memory import MemoryStore
from raybroker.system.clock import SystemClock
from raybroker.wire.native import frames as wire
from raybroker.wire.native.connection import TOKEN_BYTES, Native, preface

TOKEN = bytes(range(TOKEN_BYTES))
QUEUE = "orders"


class FakeTransport(asyncio.Transport):
    """Keeps what is written; closing it ends the protocol at once."""

    def __init__(self, protocol: Any) -> None:
        super().__init__()
        self.protocol = protocol
        self.written = bytearray()
        self.closed = False
        self.reading = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is ever full."""

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: Any) -> None:
        self.written += data

    def writelines(self, list_of_data: Any) -> None:
        for data in list_of_data:
            self.written += data

    def is_reading(self) -> bool:
        return self.reading

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.protocol.connection_lost(None)

    abort = close


class Peer:
    """A client of the rig: raw bytes in, decoded frames out."""

    def __init__(self, connection: NativeConnection) -> None:
        self.connection = connection
        self.transport = FakeTransport(connection.link)
        self._machine = Native(token=None)
        connection.link.connection_made(self.transport)

    @property
    def closed(self) -> bool:
        return self.transport.closed

    def feed(self, data: bytes, step: int = 1 << 30) -> None:
        """Bytes as a transport hands them over; none after the connection was closed."""
        for at in range(0, len(data), step):
            if not self.closed:
                self.connection.link.data_received(data[at : at + step])

    def frames(self) -> list[wire.Frame]:
        """What the host has written since the last call, and what it would write at the end of this turn."""
        self.connection.link.flush()
        data, self.transport.written = bytes(self.transport.written), bytearray()
        return self._machine.receive_data(data)


class Rig:
    """One host with one queue that holds ``messages`` of producer 7. Use it inside a running loop."""

    def __init__(self, properties: dict[str, object] | None = None) -> None:
        config = Config.from_values({"imq.ping.interval": 0, **(properties or {})})
        self.service = HostService(HostStorage(MemoryStore()), SystemClock(), config, token=TOKEN)
        self.host = self.service.host

    async def __aenter__(self) -> Rig:
        await self.service.start(threaded=False)
        await self.service.destinations.create("queue", QUEUE, destination_attributes().as_dict("queue"), False)
        peer = self.guest()
        peer.feed(wire.call(1, "hello", {"started": True}))
        peer.feed(wire.call(2, "open_producer", {"handle": 1, "name": QUEUE, "type": "queue", "producer": 7}))
        peer.feed(send(1, producer=7, first_seq=1))
        peer.transport.close()
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.service.close()

    def stranger(self) -> Peer:
        return Peer(NativeConnection(self.service.service))

    def guest(self) -> Peer:
        """A peer that has shown the token."""
        peer = self.stranger()
        peer.feed(preface(TOKEN))
        return peer

    def state(self) -> tuple[object, ...]:
        """Everything that a client can change."""
        host = self.host
        return (
            {
                key: (destination.number, snapshot(destination), destination.block_index.messages)
                for key, destination in host.registry.destinations.items()
            },
            set(host.attachments.by_number),
            len(host.sessions.open),
            host.failure,
        )

    def serves(self) -> bool:
        """True when an honest client can still send one message and get one."""
        peer = self.guest()
        peer.feed(wire.call(1, "hello", {"started": True}))
        peer.feed(wire.call(2, "open_producer", {"handle": 1, "name": QUEUE, "type": "queue", "producer": 9}))
        peer.feed(wire.call(3, "open_consumer", consumer_args(handle=2)))
        peer.feed(send(1, producer=9, first_seq=1))
        delivered = [f for f in peer.frames() if isinstance(f, wire.DeliverFrame)]
        peer.feed(wire.call(4, "close_producer", {"handle": 1}))
        peer.transport.close()
        return self.host.failure is None and bool(delivered)


def send(handle: int, *, producer: int, first_seq: int, bodies: tuple[bytes, ...] = (b"a", b"b", b"c")) -> bytes:
    """A SEND frame of persistent messages."""
    block = encode_block(bodies, producer=producer, first_seq=first_seq, timestamp_ms=0, persistent=True, kinds=0)
    return b"".join(wire.send(handle, first_seq, block))


def consumer_args(**changes: Any) -> dict[str, Any]:
    return {
        "handle": 1,
        "name": QUEUE,
        "type": "queue",
        "flow": "credit",
        "limit": 100,
        "no_ack": False,
        "selector": None,
        "no_local": False,
        "subscription": None,
        "lease_ms": 0,
        **changes,
    }
