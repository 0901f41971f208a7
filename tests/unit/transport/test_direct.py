"""Sockets that a thread serves: what it reads and writes, and what it leaves to the loop."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from raybroker.transport.direct import BUFFERS_MAX, SUPPORTED, DirectSockets

pytestmark = pytest.mark.skipif(not SUPPORTED, reason="this system has no epoll")


class Link:
    def __init__(self) -> None:
        self.buffer = bytearray(64)
        self.came: list[bytes] = []

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self.buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.came.append(bytes(self.buffer[:nbytes]))


class Unsent:
    """The loop's transport: what it was given, and what it has not written yet."""

    def __init__(self, before: bytes = b"") -> None:
        self.data = bytearray(before)

    def get_write_buffer_size(self) -> int:
        return len(self.data)

    def write(self, data: bytes) -> None:
        self.data += data


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    yield ours, theirs
    ours.close()
    theirs.close()


@pytest.fixture
def sockets() -> DirectSockets:
    return DirectSockets()


def ready(sockets: DirectSockets, timeout_s: float = 5) -> list[int]:
    return [number for number, _ in sockets.wait(timeout_s)]


def test_what_comes_is_read_into_the_links_buffer(
    sockets: DirectSockets, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    link = Link()
    sockets.add(ours.fileno(), link, Unsent())
    assert ready(sockets, 0) == []
    theirs.send(b"hello")
    assert ready(sockets) == [ours.fileno()]
    sockets.read(ours.fileno())
    sockets.read(ours.fileno())  # Nothing is left: that is no news.
    assert link.came == [b"hello"]
    assert not sockets.needs_loop


def test_the_end_of_a_connection_is_left_to_the_loop(
    sockets: DirectSockets, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    link = Link()
    sockets.add(ours.fileno(), link, Unsent())
    theirs.close()
    assert ready(sockets) == [ours.fileno()]
    sockets.read(ours.fileno())
    assert (link.came, sockets.needs_loop) == ([], True)


def test_a_bell_ends_the_wait_and_is_heard_once(sockets: DirectSockets) -> None:
    sockets.ring()
    sockets.ring()
    (bell,) = ready(sockets)
    sockets.read(bell)
    assert ready(sockets, 0) == []


def test_a_socket_that_was_removed_is_served_no_more(
    sockets: DirectSockets, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    sockets.add(ours.fileno(), Link(), Unsent())
    sockets.remove(ours.fileno())
    sockets.remove(ours.fileno())
    theirs.send(b"late")
    assert ready(sockets, 0) == []


def test_buffers_are_written_in_order(sockets: DirectSockets, pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    transport = Unsent()
    sockets.write(ours.fileno(), transport, [b"one", memoryview(b"two"), bytearray(b"three")])
    assert theirs.recv(64) == b"onetwothree"
    assert (transport.data, sockets.needs_loop) == (b"", False)


def test_what_the_transport_still_has_goes_first(
    sockets: DirectSockets, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    theirs.setblocking(False)
    transport = Unsent(b"before ")
    sockets.write(ours.fileno(), transport, [b"after"])
    assert (transport.data, sockets.needs_loop) == (b"before after", True)
    with pytest.raises(BlockingIOError):
        theirs.recv(64)


@pytest.mark.parametrize("size", [1, 777, 100_000])
def test_what_the_socket_does_not_take_is_the_transports(
    sockets: DirectSockets, pair: tuple[socket.socket, socket.socket], size: int
) -> None:
    ours, theirs = pair
    theirs.setblocking(False)
    transport, sent, came = Unsent(), bytearray(), bytearray()
    while not sockets.needs_loop:
        buffers = [bytes([len(sent) % 251]) * size, bytes([len(sent) % 241]) * size]
        sent += buffers[0] + buffers[1]
        sockets.write(ours.fileno(), transport, buffers)
    while len(came) < len(sent) - len(transport.data):
        came += theirs.recv(1 << 20)
    assert transport.data
    assert came + transport.data == sent


def test_a_broken_socket_and_too_many_buffers_are_the_transports(
    sockets: DirectSockets, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    transport = Unsent()
    many = [b"x"] * (BUFFERS_MAX + 1)
    sockets.write(ours.fileno(), transport, many)
    assert transport.data == b"".join(many)
    theirs.close()
    transport = Unsent()
    sockets.write(ours.fileno(), transport, [b"lost"])
    assert (transport.data, sockets.needs_loop) == (b"lost", True)


def test_a_wait_with_a_spin_finds_what_is_there_and_sleeps_when_nothing_comes() -> None:
    sockets = DirectSockets()
    sockets.spin_for(10_000_000_000, time.monotonic_ns)
    spin = sockets.spin
    assert spin is not None
    assert sockets.wait(0.001) == []
    assert (spin.count, spin.paid) == (1, 0)
    sockets.ring()
    assert sockets.wait(10.0), "the one after a spin in vain sleeps"
    assert spin.count == 1
    assert sockets.wait(10.0)
    assert spin.count == 2
    assert sockets.wait(0), "whoever does not wait does not spin"
    assert spin.count == 2
