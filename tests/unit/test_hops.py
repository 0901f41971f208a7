"""How many functions one message passes: sent, received and acknowledged over a loopback connection, layer by layer."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

import raybroker as rb
from raybroker.client.io.io_thread import IoThread

PACKAGE: Final = str(Path(rb.__file__).parent) + "/"
FUNCTIONS_MAX: Final = {
    "client": 58,
    "content": 3,
    "core": 51,
    "engine": 32,
    "model": 16,
    "services": 8,
    "store": 6,
    "system": 1,
    "transport": 6,
    "wire": 12,
}
"""Different functions of a layer on the way of one message.  Figures only ever go down, or are paid for: seven of
the client are there for threads that may serve the sockets themselves, two of it and three of the model for bodies that
go in pieces, one of the client for an acknowledgement that says what of it went back, one of it for messages that are
held while nothing may leave, one of the transport for a pipe that holds its writer back, and four of the client stand
in the place of fourteen of the standard library's, which are not counted: what a thread waits at for one answer."""
ROUNDS: Final = 10


@contextmanager
def functions_called() -> Iterator[set[tuple[str, str]]]:
    """The (layer, function) that any thread enters meanwhile, of those that a new thread or this one runs."""
    found: set[tuple[str, str]] = set()

    def enter(frame: FrameType, event: str, arg: Any) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(PACKAGE) and not frame.f_code.co_name.startswith("<"):
            layer = path.removeprefix(PACKAGE).split("/")[0].removesuffix(".py")
            found.add((layer, f"{path.removeprefix(PACKAGE)}:{frame.f_code.co_qualname}"))

    threading.setprofile(enter)
    sys.setprofile(enter)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def test_a_message_passes_no_more_functions_than_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """What timers do beside the message differs from round to round, so what every round has counts."""
    monkeypatch.setattr(IoThread, "_shared", None)  # A thread that ran before would not be looked at.
    with functions_called() as found, rb.loopback() as connection:
        session = connection.session(ack="client")
        producer, consumer = session.producer("orders"), session.consumer("orders")
        common: set[tuple[str, str]] | None = None
        for _ in range(ROUNDS):
            found.clear()
            producer.send("x")
            message = consumer.receive(timeout=60)
            assert message is not None
            message.acknowledge()
            seen = set(found)
            common = seen if common is None else common & seen
    assert common
    layers = sorted({layer for layer, _ in common})
    count = {layer: sum(found == layer for found, _ in common) for layer in layers}
    more = {layer: number for layer, number in count.items() if number > FUNCTIONS_MAX.get(layer, 0)}
    assert not more, "\n".join(sorted(name for layer, name in common if layer in more))
