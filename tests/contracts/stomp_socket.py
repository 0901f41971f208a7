"""A socket that speaks frames of STOMP, without a client that would mend what a test does wrong."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Self

from raybroker.wire.stomp.frame import StompFrame, Version, encode
from raybroker.wire.stomp.parser import Parser


class StompSocket:
    """``made``: connected to a service; it is closed with this."""

    def __init__(self, made: socket.socket, version: Version = "1.2") -> None:
        self.version = version
        self.socket = made
        self._parser = Parser(body_bytes_max=1 << 27, version=version)

    def send(self, command: str, headers: Mapping[str, object] | None = None, body: bytes = b"") -> None:
        texts = {name: str(value) for name, value in (headers or {}).items()}
        self.socket.sendall(encode(StompFrame(command, texts, body), self.version))

    def receive(self) -> StompFrame | None:
        """The next frame; None when the connection has ended."""
        while (frame := self._parser.next_frame()) is None:
            data = self.socket.recv(65_536)
            if not data:
                return None
            self._parser.feed(data)
        return frame

    def expect(self, command: str) -> StompFrame:
        frame = self.receive()
        assert frame is not None, f"the connection ended before {command}"
        assert frame.command == command, frame
        return frame

    def login(self, user: str = "ann", password: str = "secret", **headers: object) -> Self:
        accepted = {} if self.version == "1.0" else {"accept-version": self.version}
        self.send("CONNECT", {"login": user, "passcode": password, **accepted, **headers})
        self.expect("CONNECTED")
        return self

    def done(self, command: str, headers: Mapping[str, object] | None = None, body: bytes = b"") -> None:
        """Send a frame and wait for its receipt."""
        self.send(command, {**(headers or {}), "receipt": "done"}, body)
        assert self.expect("RECEIPT").headers["receipt-id"] == "done"

    def refused(self, command: str, headers: Mapping[str, object] | None = None, body: bytes = b"") -> StompFrame:
        """Send a frame that is answered by ERROR; the connection ends."""
        self.send(command, headers, body)
        error = self.expect("ERROR")
        assert self.receive() is None
        return error

    def close(self) -> None:
        self.socket.close()
