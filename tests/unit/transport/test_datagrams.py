"""Datagrams are taken once, in order, and only from who has the key; everything else is dropped."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from raybroker.model.errors import ConfigError
from raybroker.model.settings.setting import PortRange
from raybroker.transport import datagrams
from raybroker.transport.datagrams import Address, Datagrams, Number
from raybroker.transport.loops import new_event_loop

KEY = b"k" * 32
ANY = PortRange(0, 0)
HERE = "127.0.0.1"


class Sink:
    def __init__(self) -> None:
        self.found: list[tuple[str, Number, bytes]] = []

    def __call__(self, sender: str, number: Number, source: Address, payload: bytes) -> None:
        self.found.append((sender, number, payload))


class Wire:
    """Stands for the socket: what is sent is kept."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def is_closing(self) -> bool:
        return False

    def sendto(self, data: bytes, to: Address) -> None:
        self.sent.append(data)


def sender(name: str, life: int, wire: Wire) -> Datagrams:
    made = Datagrams(name, b"own", life, Sink())
    made._transport = wire
    return made


def receiver() -> tuple[Datagrams, Sink]:
    sink = Sink()
    return Datagrams("b1", KEY, 1, sink), sink


def test_a_payload_comes_with_its_sender_and_number() -> None:
    wire, (there, sink) = Wire(), receiver()
    me = sender("b2", 7, wire)
    numbers = [me.send((HERE, 1), KEY, body) for body in (b"", b"x" * datagrams.PAYLOAD_BYTES_MAX)]
    for data in wire.sent:
        there.datagram_received(data, (HERE, 9))
    assert numbers == [Number(7, 1), Number(7, 2)]
    assert sink.found == [("b2", Number(7, 1), b""), ("b2", Number(7, 2), b"x" * 1024)]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:10],
        lambda data: data[:-1],
        lambda data: data + b"x",
        lambda data: bytes([data[0] ^ 1]) + data[1:],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: data[:20] + bytes([data[20] ^ 1]) + data[21:],
    ],
)
def test_what_was_changed_on_the_way_is_dropped(damage: Callable[[bytes], bytes]) -> None:
    wire, (there, sink) = Wire(), receiver()
    sender("b2", 7, wire).send((HERE, 1), KEY, b"word")
    there.datagram_received(damage(wire.sent[0]), (HERE, 9))
    assert (sink.found, there.dropped) == ([], 1)


def test_who_does_not_have_the_key_is_not_heard() -> None:
    wire, (there, sink) = Wire(), receiver()
    sender("b2", 7, wire).send((HERE, 1), b"another key", b"word")
    there.datagram_received(wire.sent[0], (HERE, 9))
    assert (sink.found, there.dropped) == ([], 1)


def test_what_came_before_or_was_overtaken_is_dropped_also_over_a_restart_of_the_sender() -> None:
    wire, (there, sink) = Wire(), receiver()
    old, new = sender("b2", 7, wire), sender("b2", 8, wire)
    for me, body in ((old, b"1"), (old, b"2"), (new, b"3")):
        me.send((HERE, 1), KEY, body)
    first, second, third = wire.sent
    for data in (second, first, second, third, third, second):
        there.datagram_received(data, (HERE, 9))
    assert [payload for _, _, payload in sink.found] == [b"2", b"3"]
    assert there.dropped == 4


def test_each_sender_has_numbers_of_its_own_and_the_one_that_is_silent_longest_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many have come and gone, those that there are get through."""
    monkeypatch.setattr(datagrams, "SENDERS_MAX", 2)
    wire, (there, sink) = Wire(), receiver()
    heard = ["b2", "b3", "b2", "b4", "b5", "b4"]
    for life, name in enumerate(heard):
        sender(name, life, wire).send((HERE, 1), KEY, name.encode())
        for _ in range(2):
            there.datagram_received(wire.sent[-1], (HERE, 9))
    assert [name for name, _, _ in sink.found] == heard, "each once"
    assert set(there._last) == {"b4", "b5"}


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, new_event_loop])
def test_over_real_sockets_and_whoever_is_not_there_does_no_harm(
    make_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def scene() -> None:
        came = asyncio.Event()
        sink = Sink()

        def take(sender: str, number: Number, source: Address, payload: bytes) -> None:
            sink(sender, number, source, payload)
            there.send(source, b"mine", b"answer")

        def answered(sender: str, number: Number, source: Address, payload: bytes) -> None:
            assert (sender, payload) == ("b1", b"answer")
            came.set()

        there, me = Datagrams("b1", KEY, 1, take), Datagrams("b2", b"mine", 1, answered)
        address, mine = await there.open(HERE, ANY), await me.open(HERE, ANY)
        assert address != mine
        gone = Datagrams("b3", KEY, 1, sink)
        nowhere = await gone.open(HERE, ANY)
        gone.close()
        await asyncio.sleep(0)
        me.send(nowhere, KEY, b"nobody hears this")
        async with asyncio.timeout(10):
            while not came.is_set():  # A datagram may be lost, even here.
                me.send(address, KEY, b"question")
                await asyncio.sleep(0.01)
        assert sink.found[0][0] == "b2"
        me.close()
        there.close()
        me.send(address, KEY, b"after the end")
        await asyncio.sleep(0)

    _run(make_loop, scene())


def _run(make_loop: Callable[[], asyncio.AbstractEventLoop], work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(work)


def test_without_a_free_port_the_range_is_named() -> None:
    async def scene() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
            taken.bind((HERE, 0))
            port = taken.getsockname()[1]
            with pytest.raises(ConfigError, match=f"no free port for datagrams in {port} on {HERE}"):
                await Datagrams("b1", KEY, 1, Sink()).open(HERE, PortRange(port, port))

    asyncio.run(scene())
