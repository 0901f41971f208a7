"""A client of stomp.py and the server that it looks at, as scenarios use them."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any, Final

import stomp

from tests.contracts.stomp_rig import Seen

PATIENCE_S: Final = 60.0
"""For what has to come."""
QUIET_S: Final = 1.5
"""For what may come or not: nothing more comes when so long nothing has."""
USER, PASSWORD = "ann", "secret"


class Client:
    """A connection of stomp.py, with numbered receipts."""

    def __init__(
        self,
        port: int,
        version: str,
        *,
        user: str = USER,
        heartbeats: tuple[int, int] = (0, 0),
        auto_decode: bool = True,
        auto_content_length: bool = True,
        **connect: Any,
    ) -> None:
        made = {"1.0": stomp.Connection10, "1.1": stomp.Connection11, "1.2": stomp.Connection12}[version]
        beats = {} if version == "1.0" else {"heartbeats": heartbeats}
        self.version, self.seen = version, Seen()
        self.stomp = made(
            [("127.0.0.1", port)],
            reconnect_attempts_max=1,
            auto_decode=auto_decode,
            auto_content_length=auto_content_length,
            **beats,
        )
        self.stomp.set_listener("seen", self.seen)
        self.stomp.connect(user, PASSWORD, wait=True, **connect)
        wait(lambda: self.seen.connected, PATIENCE_S)  # stomp.py may tell this listener after the one that waited.
        self._receipts = 0

    def frame(self, command: str, body: Any = "", /, **headers: Any) -> str:
        """Send a frame with a receipt: "done", "error", "closed" or "silence". ``a_b`` is the header ``a-b``."""
        self._receipts += 1
        receipt = f"r{self._receipts}"
        named = {name.replace("_", "-"): str(value) for name, value in headers.items()}
        with suppress(stomp.exception.NotConnectedException):
            self.stomp.send_frame(command, {**named, "receipt": receipt}, body)
        return self.answer(receipt)

    def answer(self, receipt: str) -> str:
        seen = self.seen
        wait(lambda: receipt in seen.receipts or seen.errors or seen.disconnections, PATIENCE_S)
        if receipt in seen.receipts:
            return "done"
        return "error" if seen.errors else "closed" if seen.disconnections else "silence"

    def send(self, destination: str, body: Any = "x", /, **headers: Any) -> str:
        return self.frame("SEND", body, destination=destination, **headers)

    def subscribe(self, destination: str, ack: str = "auto", name: Any = 1, /, **headers: Any) -> str:
        return self.frame("SUBSCRIBE", destination=destination, ack=ack, id=name, **headers)

    def acknowledge(self, frame: Any, command: str = "ACK", /, **headers: Any) -> str:
        found = frame.headers
        if self.version == "1.2":
            return self.frame(command, id=found["ack"], **headers)
        named = {"subscription": found["subscription"]} if self.version == "1.1" else {}
        return self.frame(command, message_id=found["message-id"], **named, **headers)

    def got(self, count: int) -> list[str]:
        """Bodies of the first so many messages."""
        wait(lambda: len(self.seen.messages) >= count, PATIENCE_S)
        return self.seen.bodies[:count]

    def settled(self) -> list[str]:
        """Bodies once nothing more comes."""
        before = -1
        while before != len(self.seen.messages):
            before = len(self.seen.messages)
            wait(lambda: len(self.seen.messages) > before, QUIET_S)  # noqa: B023 - called before it changes
        return self.seen.bodies

    def close(self) -> None:
        with suppress(stomp.exception.NotConnectedException, OSError):  # A scenario may have said DISCONNECT itself.
            self.stomp.disconnect()


def wait(condition: Callable[[], Any], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


class Side:
    """One server, for one scenario. ``name``: of the scenario and the version; destinations of its own have it."""

    def __init__(self, port: int, version: str, name: str, opened: ExitStack) -> None:
        self.port, self.version, self.name = port, version, f"{name}.{version.replace('.', '')}"
        self._opened = opened

    @property
    def queue(self) -> str:
        return f"/queue/{self.name}"

    @property
    def topic(self) -> str:
        return f"/topic/{self.name}"

    def client(self, **more: Any) -> Client:
        made = Client(self.port, self.version, **more)
        self._opened.callback(made.close)
        return made

    def rest(self, queue: str | None = None) -> str:
        """What is left in a queue: bodies, with ! for those that are said to be redelivered."""
        client = self.client()
        client.subscribe(queue or self.queue)
        client.settled()
        found = " ".join(
            frame.body + "!" * (frame.headers.get("redelivered") == "true") for frame in client.seen.messages
        )
        client.close()
        return found or "nothing"
