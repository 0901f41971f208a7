"""The parser: bytes in, in any pieces; frames out, one at a time.

Frames are asked for one by one, because a frame may decide how the next ones are read: CONNECT settles the version and
the limits.  A parser that has raised has no further frame to give: where the next one begins is not known.

    BETWEEN  line ends are heart-beats, or belong to the end of the last frame; the first other byte begins a frame
    HEAD     up to an empty line: at most HEAD_BYTES_MAX bytes with HEADERS_MAX headers
    BODY     with content-length so many bytes and a NUL; without, all up to a NUL
"""

from __future__ import annotations

from typing import Final

from raybroker.model.errors import MessageTooLargeError, ProtocolError
from raybroker.wire.stomp.frame import (
    CONTENT_LENGTH,
    PLAIN,
    VERSIONS,
    WITH_BODY,
    StompFrame,
    Version,
    decode_headers,
)

HEAD_BYTES_MAX: Final = 64 << 10
HEADERS_MAX: Final = 1000
COMMAND_CHARS_MAX: Final = 32
_LENGTH_DIGITS_MAX: Final = 18
_LF: Final = 0x0A
_CR: Final = 0x0D


class Parser:
    """``body_bytes_max``: largest body; ``head_bytes_max``: command and headers. Both, and the version, may be changed
    between two frames."""

    def __init__(self, *, body_bytes_max: int, head_bytes_max: int = HEAD_BYTES_MAX, version: Version = "1.0") -> None:
        self.body_bytes_max = body_bytes_max
        self.head_bytes_max = head_bytes_max
        self.version: Version = version
        self._data = bytearray()
        self._at = 0
        """Where the frame begins, or what is between two."""
        self._seen = 0
        """Up to where the end of the head, or of the body, was looked for."""
        self._head: tuple[str, dict[str, str]] | None = None
        self._body_at = 0
        self._length: int | None = None

    @property
    def buffered(self) -> int:
        """Bytes that belong to no frame yet that was given."""
        return len(self._data) - self._at

    def feed(self, data: bytes) -> None:
        """Bytes have come."""
        if self._at:
            del self._data[: self._at]
            self._seen -= self._at
            self._body_at -= self._at
            self._at = 0
        self._data += data

    def next_frame(self) -> StompFrame | None:
        """The next frame, or None when more bytes are needed.

        Raises ProtocolError for what is no frame of the version, and MessageTooLargeError.
        """
        if self._head is None and not self._read_head():
            return None
        assert self._head is not None
        end = self._end_of_body()
        if end < 0:
            return None
        command, headers = self._head
        body = bytes(memoryview(self._data)[self._body_at : end])
        if body and command not in WITH_BODY and self.version != "1.0":
            raise ProtocolError(f"a {command} frame has no body")
        self._head = None
        self._at = self._seen = end + 1
        return StompFrame(command, headers, body)

    def _read_head(self) -> bool:
        data, at = self._data, self._at
        while at < len(data) and (data[at] == _LF or data[at] == _CR):
            at += 1
        if at != self._at:
            self._at = at
            self._seen = max(self._seen, at)
        if at == len(data):
            return False
        start = max(at, self._seen - 3)
        limit = at + self.head_bytes_max + 4
        found, size = data.find(b"\n\n", start, limit), 2
        other = data.find(b"\n\r\n", start, found + 1 if found >= 0 else limit)
        if other >= 0:
            found, size = other, 3
        nul = data.find(b"\0", start, found if found >= 0 else limit)
        if nul >= 0:
            raise ProtocolError("a frame has ended before the empty line that ends its headers")
        if found < 0:
            if len(data) - at > self.head_bytes_max:
                raise ProtocolError(f"command and headers of a frame have more than {self.head_bytes_max} bytes")
            self._seen = len(data)
            return False
        self._head = self._parsed_head(bytes(data[at:found]))
        self._body_at = self._seen = found + size
        self._length = self._length_of(self._head[1])
        return True

    def _parsed_head(self, head: bytes) -> tuple[str, dict[str, str]]:
        if len(head) > self.head_bytes_max:
            raise ProtocolError(f"command and headers of a frame have more than {self.head_bytes_max} bytes")
        try:
            text = head.decode()
        except UnicodeDecodeError:
            raise ProtocolError("the headers of a frame are no UTF-8") from None
        lines = text.split("\n")
        if "\r" in text:
            lines = [line.removesuffix("\r") for line in lines]
        command = lines[0]
        if len(command) > COMMAND_CHARS_MAX or not (command.isascii() and command.isalpha()):
            raise ProtocolError(f"{command[:COMMAND_CHARS_MAX]!r} is no command of STOMP")
        if len(lines) > HEADERS_MAX + 1:
            raise ProtocolError(f"a frame has more than {HEADERS_MAX} headers")
        version = self.version
        if command == "STOMP":  # It is sent before there is a version, by clients of 1.1 and later.
            version = VERSIONS[-1]
        elif command in PLAIN:
            version = "1.0" if not any(line.startswith("accept-version:") for line in lines) else VERSIONS[-1]
        return command, decode_headers(lines[1:], version, command)

    def _length_of(self, headers: dict[str, str]) -> int | None:
        text = headers.get(CONTENT_LENGTH)
        if text is None:
            return None
        text = text.strip()
        if not (text.isascii() and text.isdecimal()) or len(text) > _LENGTH_DIGITS_MAX:
            raise ProtocolError(f"{CONTENT_LENGTH}:{text:.40} is no number of bytes")
        length = int(text)
        self._check_size(length)
        return length

    def _check_size(self, size: int) -> None:
        if size > self.body_bytes_max:
            raise MessageTooLargeError(f"a body has {size} bytes or more; {self.body_bytes_max} are allowed")

    def _end_of_body(self) -> int:
        """Return where the NUL is; -1 when it has not come."""
        data, start = self._data, self._body_at
        if self._length is not None:
            end = start + self._length
            if end >= len(data):
                return -1
            if data[end]:
                raise ProtocolError(f"{CONTENT_LENGTH} is {self._length}, and no NUL follows so many bytes")
            return end
        end = data.find(b"\0", max(start, self._seen))
        if end < 0:
            self._seen = len(data)
        self._check_size((len(data) if end < 0 else end) - start)
        return end
