"""Targets that attack the listeners of a real broker over sockets, a conversation an input.

An input is a conversation: pieces of bytes, each written by itself. Its first byte says how it goes on: whether the
client reads meanwhile, ends its side, or just goes. Conversations are made of valid ones, which are cut, repeated,
reordered and changed byte by byte, and of bytes that mean nothing.

After each conversation the connection has to end, and the log has to have no exception and no line of ERROR; after each
round the process must not have grown by GROWTH_BYTES_MAX, a client that means well is served, and no client or task is
left behind (:meth:`Attacked.check`).
"""

from __future__ import annotations

import socket
import tempfile
from base64 import b64encode
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

from hypothesis import strategies as st

from raybroker.system.process_memory import resident_bytes
from raybroker.wire.native import frames as wire
from raybroker.wire.native.connection import preface
from raybroker.wire.native.preamble import preamble
from raybroker.wire.scram import ScramClient
from raybroker.wire.stomp.frame import StompFrame, Version, encode
from tests.fuzz import samples
from tests.fuzz.doors import PASSWORD, AllDoors, Raw

GROWTH_BYTES_MAX: Final = 192 << 20
"""How much the process may grow in all: nothing of a conversation stays, but allocators keep what they had once."""
CHECK_EVERY: Final = 25
"""Conversations between two looks at what is left."""
END_S: Final = 30.0
"""How long a connection may take to end, once its client has ended its side."""
SEPARATOR: Final = b"\xf5\xf5"
"""Between the pieces of a conversation, in an input."""
Conversation = list[bytes]


class Attacked:
    """A broker with all its listeners, and what an attack must not have done."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self.doors = AllDoors(
            folder,
            self._stack,
            **{
                "raybroker.handshake.timeout_ms": 2000,
                "raybroker.service.unread_timeout": 5,
                "raybroker.http.headers_timeout": 2,
                "raybroker.http.body_timeout": 2,
                "imq.authentication.client.response.timeout": 2,
            },
        )
        self.before = resident_bytes()
        self.tried = 0

    def attack(self, listener: str, data: bytes, opened: Callable[[], Any] | None = None) -> None:
        """One conversation; ``opened``: makes the connection, when it has something before."""
        how, pieces = data[0] if data else 0, data[1:].split(SEPARATOR)
        made = opened() if opened is not None else self.doors.socket(listener)
        with made, suppress(OSError):
            made.settimeout(END_S)
            for piece in pieces:
                made.sendall(piece)
                if how & 1:
                    self._read_some(made)
            if how & 2:
                return  # It just goes.
            made.shutdown(socket.SHUT_WR)
            while made.recv(65_536):
                continue
        self.tried += 1
        self.blame(data)
        if self.tried % CHECK_EVERY == 0:
            self.check(listener)

    @staticmethod
    def _read_some(made: Any) -> None:
        made.settimeout(0.01)
        with suppress(TimeoutError):
            made.recv(65_536)
        made.settimeout(END_S)

    def blame(self, data: bytes = b"") -> None:
        found, self.doors.faults.found = self.doors.faults.found, []
        assert not found, (found, data)

    def check(self, listener: str) -> None:
        """What holds between attacks."""
        self.doors.serves(listener)
        self.doors.nothing_left()
        grown = resident_bytes() - self.before
        assert grown < GROWTH_BYTES_MAX, f"the process has grown by {grown >> 20} MiB"
        self.blame()

    def close(self) -> None:
        self._stack.close()


@cache
def attacked() -> Attacked:
    """One for all targets of a process; :func:`close` ends it."""
    return Attacked()


def close() -> None:
    if attacked.cache_info().currsize:
        attacked().close()
        attacked.cache_clear()


# ---- conversations ---------------------------------------------------------------------------------------------------


@st.composite
def mutations(draw: st.DrawFn, valid: st.SearchStrategy[Conversation]) -> bytes:
    """A conversation as an input: pieces left out, doubled and exchanged, bytes changed, cut and put in."""
    pieces = [bytes(piece) for piece in draw(valid)]
    for _ in range(draw(st.integers(0, 4))):
        if not pieces:
            break
        at = draw(st.integers(0, len(pieces) - 1))
        piece = bytearray(pieces[at])
        where = draw(st.integers(0, max(0, len(piece) - 1)))
        what = draw(st.sampled_from(("drop", "double", "swap", "flip", "cut", "insert", "end", "many")))
        if what == "drop":
            del pieces[at]
            continue
        if what == "double":
            pieces.insert(at, pieces[at])
        elif what == "swap":
            pieces[0], pieces[at] = pieces[at], pieces[0]
            continue
        elif what == "flip" and piece:
            piece[where] ^= draw(st.integers(1, 255))
        elif what == "cut":
            del piece[where : where + draw(st.integers(1, 20))]
        elif what == "insert":
            piece[where:where] = draw(st.binary(max_size=20))
        elif what == "end":
            del piece[where:]
        elif what == "many":
            piece *= draw(st.sampled_from((2, 10, 50)))
        pieces[at] = bytes(piece)
    return bytes([draw(st.integers(0, 3))]) + SEPARATOR.join(pieces)


def noise() -> st.SearchStrategy[bytes]:
    return st.tuples(st.integers(0, 3), st.binary(max_size=300)).map(lambda drawn: bytes([drawn[0]]) + drawn[1])


_first = ScramClient("ann", PASSWORD, "n" * 24).first()
_CONTROL_CALLS: Final = (
    ("mechanisms", {}),
    ("login", {"mechanism": "digest", "first": _first, "client": {"client_id": "x"}}),
    ("login", {"mechanism": "basic", "first": "ann", "client": {}}),
    ("proof", {"final": "c=biws,r=n,p=x"}),
    ("proof", {"final": PASSWORD}),
    ("certify", {"client": {}}),
    ("ask", {"method": "brokers", "args": []}),
)
_ASKS: Final = (
    ("brokers", []),
    ("members", []),
    ("routes", ["q", "queue", ["u"]]),
    ("locate", ["queue", "fuzzed", True]),
    ("locate", ["topic", "fuzzed", True, False]),
    ("settings", []),
    ("create_temporary", ["queue"]),
    ("admin", ["x", {}]),
    ("unsubscribe", ["c", "n"]),
    ("changed", [0, 0.01]),
    ("release_routes", []),
    ("subscribe", [{"topic": "t", "client_id": None, "name": "n"}]),
    ("brokers_changed", [0, 0.01]),
    ("matching", ["a.*"]),
    ("destroy_temporary", ["queue", "x"]),
)
_calls = st.sampled_from(_CONTROL_CALLS) | st.tuples(st.sampled_from([op for op, _ in _CONTROL_CALLS]), samples.maps)
_asks = st.sampled_from(_ASKS) | st.tuples(
    st.sampled_from([method for method, _ in _ASKS]) | samples.words, st.lists(samples.plain, max_size=4)
)


def _control() -> st.SearchStrategy[Conversation]:
    """Of a stranger: the preamble, the preface and the requests of logins."""
    calls = st.lists(_calls, max_size=6).map(
        lambda rows: [wire.call(number, op, args) for number, (op, args) in enumerate(rows)]
    )
    return calls.map(lambda frames: [preamble(""), preface(bytes(32)), *frames])


def _asked() -> st.SearchStrategy[Conversation]:
    """Of a client that has logged in."""
    return st.lists(_asks, max_size=6).map(
        lambda rows: [wire.call(n, "ask", {"method": name, "args": args}) for n, (name, args) in enumerate(rows)]
    )


def _host() -> st.SearchStrategy[Conversation]:
    """Of a guest of a host."""
    opening = [
        wire.call(1, "hello", {"started": True}),
        wire.call(2, "open_producer", {"handle": 1, "name": "fuzzed", "type": "queue", "producer": 7}),
    ]
    harm = st.lists(samples.hostile | samples.to_host.map(lambda sample: sample.data), max_size=6)
    return harm.map(lambda frames: [*opening, *frames])


_BASIC: Final = b"Authorization: Basic " + b64encode(b"ann:secret") + b"\r\n"
_METHODS: Final = (b"GET", b"POST", b"PUT", b"HEAD", b"OPTIONS", b"TRACE", b"CONNECT", b"")
_PATHS: Final = (
    b"/queues/fuzzed/messages",
    b"/queues/fuzzed/receive?max=5&wait_ms=10",
    b"/topics/fuzzed/messages",
    b"/health",
    b"/queues/fuzzed/acknowledge",
    b"/queues/fuzzed/release",
    b"/openapi.json",
    b"/native/poll",
    b"/native/poll/up",
    b"/native/poll/down",
    b"/native/poll/end",
    b"/queues/%2e%2e/receive",
    b"/queues/fuzzed/messages?max=-1&max=2",
    b"*",
)
_BODIES: Final = (
    b"",
    b'{"body": 1}',
    b'[{"body": "x"}, {"body": {"a": [1]}}]',
    b'{"receipts": ["x"]}',
    b"[" * 5000,
    b'"\xff"',
    b'{"body": 1e999}',
    b'{"body": "x", "properties": {"p": null}}',
)
_EXTRA: Final = (
    b"",
    b"Content-Encoding: gzip\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Expect: 100-continue\r\n",
    b"Connection: close\r\n",
    b"Raybroker-Session: x\r\nRaybroker-Number: 1\r\n",
    b"Upgrade: h2c\r\n",
    b"X: \xff\r\n",
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAA\r\n",
)


def _request(method: bytes, path: bytes, extra: bytes, body: bytes) -> bytes:
    if b"chunked" in extra:
        body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
        length = b""
    else:
        length = b"Content-Length: %d\r\n" % len(body)
    kind = b"Content-Type: application/json\r\n"
    return b"%s %s HTTP/1.1\r\nHost: x\r\n%s%s%s%s\r\n%s" % (method, path, _BASIC, kind, length, extra, body)


def _http(paths: tuple[bytes, ...] = _PATHS) -> st.SearchStrategy[Conversation]:
    one = st.builds(
        _request, st.sampled_from(_METHODS), st.sampled_from(paths), st.sampled_from(_EXTRA), st.sampled_from(_BODIES)
    )
    return st.lists(one, min_size=1, max_size=4)


_UPGRADE: Final = (
    b"GET /native HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
)


def _masked(head: int, data: bytes) -> bytes:
    size = len(data)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
    return bytes([head]) + length + bytes(4) + data


def _web_socket() -> st.SearchStrategy[Conversation]:
    heads = st.sampled_from((0x82, 0x02, 0x80, 0x00, 0x81, 0x89, 0x8A, 0x88, 0xC2, 0x83, 0xFF))
    said = _control().map(b"".join) | st.binary(max_size=200)
    frames = st.lists(st.builds(_masked, heads, said), max_size=6)
    return frames.map(lambda found: [_UPGRADE, *found])


_COMMANDS: Final = ("SEND", "SUBSCRIBE", "UNSUBSCRIBE", "ACK", "NACK", "BEGIN", "COMMIT", "ABORT", "DISCONNECT", "X")
_HEADERS: Final = (
    "destination",
    "id",
    "ack",
    "transaction",
    "receipt",
    "selector",
    "content-length",
    "message-id",
    "reply-to",
    "priority",
    "prefetch-count",
    "durable-subscription-name",
    "expires",
    "AMQ_SCHEDULED_DELAY",
    "JMSXGroupID",
    "foo",
)
_VALUES: Final = (
    "/queue/fuzzed",
    "/topic/fuzzed",
    "/topic/a.>",
    "/temp-queue/t",
    "1",
    "1-1",
    "t",
    "client",
    "client-individual",
    "-1",
    "a = 1",
    "(",
    "",
    "99999999",
    "\x00",
    "\\",
    "é",
)
_texts = st.dictionaries(st.sampled_from(_HEADERS), st.sampled_from(_VALUES) | st.text(max_size=6), max_size=5)


def _stomp(version: Version) -> st.SearchStrategy[Conversation]:
    accepted = {} if version == "1.0" else {"accept-version": version, "heart-beat": "0,100"}
    login = encode(StompFrame("CONNECT", {"login": "ann", "passcode": PASSWORD, **accepted}, b""), version)
    frames = st.lists(st.builds(StompFrame, st.sampled_from(_COMMANDS), _texts, st.binary(max_size=30)), max_size=8)
    return frames.map(lambda found: [login, *(encode(frame, version) for frame in found)])


def _guest() -> Any:
    """A connection to the host that has shown its secret."""
    doors = attacked().doors
    client = Raw(doors.socket("jms"))
    with client.socket:
        opening = client.login().located("fuzzed")
        made = doors.socket("jms")
        made.sendall(opening)
    return made


def _logged_in() -> Any:
    return Raw(attacked().doors.socket("jms")).login().socket


def _target(listener: str, opened: Callable[[], Any] | None = None) -> Callable[[bytes], None]:
    def target(data: bytes) -> None:
        attacked().attack(listener, data, opened)

    return target


def _metrics() -> st.SearchStrategy[Conversation]:
    all_names, some = b"/metrics?tier=all&names=%ff", b"/metrics/destinations?names=*"
    return _http((b"/metrics", all_names, some, b"/sd", b"/healthy", b"/x"))


def targets() -> dict[str, tuple[Callable[[bytes], None], st.SearchStrategy[bytes]]]:
    """Name → what is attacked, and inputs for it."""
    found: dict[str, tuple[Callable[[bytes], None], st.SearchStrategy[Conversation]]] = {
        "control": (_target("jms"), _control()),
        "control_tls": (_target("ssljms"), _control()),
        "tls_handshake": (_target("ssljms", lambda: attacked().doors.socket("ssljms", tls=False)), _hellos()),
        "admin": (_target("admin"), _control()),
        "control_logged_in": (_target("jms", _logged_in), _asked()),
        "host": (_target("jms", _guest), _host()),
        "port_mapper": (_target("portmapper"), st.lists(st.binary(max_size=99), max_size=4)),
        "http": (_target("httpjms"), _http()),
        "https": (_target("httpsjms"), _http()),
        "web_socket": (_target("httpjms"), _web_socket()),
        "stomp_1.0": (_target("stomp"), _stomp("1.0")),
        "stomp_1.1": (_target("stomp"), _stomp("1.1")),
        "stomp_1.2": (_target("stomp"), _stomp("1.2")),
        "stomp_tls": (_target("sslstomp"), _stomp("1.2")),
        "metrics": (_target("metrics"), _metrics()),
    }
    return {name: (target, mutations(valid) | noise()) for name, (target, valid) in found.items()}


def _hellos() -> st.SearchStrategy[Conversation]:
    """What a client of TLS says first: records whose lengths and versions are about right."""
    record = st.builds(
        lambda kind, version, body: bytes([kind]) + version + len(body).to_bytes(2, "big") + body,
        st.sampled_from((0x14, 0x15, 0x16, 0x17)),
        st.sampled_from((b"\x03\x00", b"\x03\x01", b"\x03\x03", b"\x7f\xff")),
        st.binary(max_size=80).map(lambda body: b"\x01\x00" + len(body).to_bytes(2, "big") + b"\x03\x03" + body),
    )
    return st.lists(record, min_size=1, max_size=3).map(lambda records: [preamble("loopback"), *records]) | st.lists(
        record, min_size=1, max_size=3
    )
