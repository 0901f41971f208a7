"""The parser: any pieces give the same frames, and nothing hostile grows in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.model.errors import BrokerError, MessageTooLargeError, ProtocolError
from raybroker.wire.stomp.frame import StompFrame, Version, encode
from raybroker.wire.stomp.parser import HEADERS_MAX, Parser

BODY_MAX = 10_000
VERSIONS: list[Version] = ["1.0", "1.1", "1.2"]


def parser(version: Version = "1.2", **limits: int) -> Parser:
    return Parser(**{"body_bytes_max": BODY_MAX, **limits}, version=version)  # type: ignore[arg-type]


def frames(data: bytes, version: Version = "1.2", cuts: tuple[int, ...] = ()) -> list[StompFrame]:
    """All frames of these bytes, which come in pieces."""
    machine, found = parser(version), []
    for start, end in zip((0, *cuts), (*cuts, len(data)), strict=True):
        machine.feed(data[start:end])
        while (frame := machine.next_frame()) is not None:
            found.append(frame)
    assert machine.buffered == 0
    return found


texts = st.text(st.characters(exclude_characters="\0\r", exclude_categories=["Cs"]), max_size=20)
names = texts.filter(lambda name: bool(name) and name != "content-length")
any_frame = st.builds(
    StompFrame,
    st.sampled_from(["SEND", "MESSAGE", "ERROR"]),
    st.dictionaries(names, texts, max_size=5),
    st.binary(max_size=200),
)


@st.composite
def streams(draw: st.DrawFn) -> tuple[Version, list[StompFrame], bytes, tuple[int, ...]]:
    version: Version = draw(st.sampled_from(["1.1", "1.2"]))
    sent = draw(st.lists(any_frame, max_size=4))
    beats = draw(st.lists(st.sampled_from([b"", b"\n", b"\r\n", b"\n\n"]), min_size=len(sent), max_size=len(sent)))
    data = b"".join(beat + encode(frame, version) for beat, frame in zip(beats, sent, strict=True))
    cuts = draw(st.lists(st.integers(0, len(data)), max_size=10))
    return version, sent, data, tuple(sorted(cuts))


@given(streams())
def test_what_was_written_is_read_however_it_is_cut(
    stream: tuple[Version, list[StompFrame], bytes, tuple[int, ...]],
) -> None:
    version, sent, data, cuts = stream
    found = frames(data, version, cuts)
    assert [(f.command, f.body) for f in found] == [(f.command, f.body) for f in sent]
    for frame, given_frame in zip(found, sent, strict=True):
        length = str(len(frame.body))
        assert frame.headers == {**given_frame.headers, "content-length": length}
    assert frames(data, version, tuple(range(1, len(data)))) == found


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=6), st.sampled_from(VERSIONS))
def test_any_bytes_give_the_same_however_they_are_cut(data: bytes, at: list[int], version: Version) -> None:
    def outcome(cuts: list[int]) -> tuple[list[StompFrame], str]:
        machine, found = parser(version), []
        try:
            for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
                machine.feed(data[start:end])
                while (frame := machine.next_frame()) is not None:
                    found.append(frame)
        except BrokerError as error:
            return found, str(error)
        return found, ""

    cuts = sorted(min(one, len(data)) for one in at)
    assert outcome(cuts) == outcome([])


def test_a_body_without_a_length_ends_at_the_first_nul() -> None:
    first, second = frames(b"SEND\ndestination:/queue/a\n\nhello\0\n\nDISCONNECT\n\n\0", cuts=(30, 31, 33))
    assert (first.body, second.command) == (b"hello", "DISCONNECT")


def test_lines_may_end_with_cr_lf() -> None:
    (frame,) = frames(b"SEND\r\ndestination:/queue/a\r\ncontent-length:3\r\n\r\na\0b\0\r\n")
    assert frame == StompFrame("SEND", {"destination": "/queue/a", "content-length": "3"}, b"a\0b")
    assert frames(b"SEND\nfoo:a\n\r\nbody\n\nmore\0")[0].body == b"body\n\nmore"


def test_a_connect_is_not_escaped_and_one_of_1_0_has_blanks() -> None:
    (old,) = frames(b"CONNECT\nlogin: ann\npasscode:a\\b\n\n\0")
    assert old.headers == {"login": "ann", "passcode": "a\\b"}
    (new,) = frames(b"CONNECT\naccept-version:1.1\npasscode: \\c\n\n\0")
    assert new.headers["passcode"] == " \\c"
    (stomp,) = frames(b"STOMP\naccept-version:1.2\npasscode:\\c\n\n\0", "1.0")
    assert stomp.headers["passcode"] == ":"


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "is no command of STOMP"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n\n\0", "ended before the empty line"),
        (b"SEND\nfoo\n\n\0", "is no header"),
        (b"SEND\nfoo:\xff\n\n\0", "no UTF-8"),
        (b"SEND\nfoo:bar\0", "ended before the empty line"),
        (b"SEND\ncontent-length:-1\n\n\0", "is no number of bytes"),
        (b"SEND\ncontent-length:" + b"9" * 5000 + b"\n\n\0", "is no number of bytes"),
        (b"SEND\ncontent-length:2\n\nabc\0", "no NUL follows"),
        (b"SEND\nfoo:a\\tb\n\n\0", "is no escape"),
        (b"BEGIN\n\nbody\0", "has no body"),
        (b"A" * 100 + b"\n\n\0", "is no command"),
        (b"SEND\n" + b"a:b\n" * (HEADERS_MAX + 1) + b"\n\0", "more than 1000 headers"),
        (b"SEND\n" + b"a" * 70_000, "have more than 65536 bytes"),
        (b"SEND\n" + b"a" * 66_000 + b":\n\n\0", "have more than 65536 bytes"),
    ],
)
def test_what_is_no_frame(data: bytes, told: str) -> None:
    with pytest.raises(ProtocolError, match=told):
        frames(data)


def test_a_body_is_bounded_before_it_has_come() -> None:
    for data in (f"SEND\ncontent-length:{BODY_MAX + 1}\n\n".encode(), b"SEND\n\n" + b"a" * (BODY_MAX + 1)):
        with pytest.raises(MessageTooLargeError, match="10000 are allowed"):
            frames(data)
    assert len(frames(b"SEND\n\n" + b"a" * BODY_MAX + b"\0")[0].body) == BODY_MAX


def test_version_and_limits_hold_from_the_next_frame_on() -> None:
    machine = Parser(body_bytes_max=0, head_bytes_max=100, version="1.0")
    machine.feed(b"CONNECT\naccept-version:1.2\n\n\0SEND\na:\\c\n\nhello\0")
    first = machine.next_frame()
    assert first is not None
    assert first.command == "CONNECT"
    machine.version, machine.body_bytes_max = "1.2", 5
    assert machine.next_frame() == StompFrame("SEND", {"a": ":"}, b"hello")
    assert machine.next_frame() is None


def test_bytes_that_were_read_are_let_go() -> None:
    machine = parser()
    for _ in range(1000):
        machine.feed(b"\n" * 50 + b"SEND\n\nbody\0")
        assert machine.next_frame() is not None
    assert len(machine._data) < 200
