"""Limits of every listener, by real sockets: logins that come all at once, answers that nobody reads, frames and
handshakes without an end, what is compressed. Each ends with its reason in the log, and a client beside it works."""

from __future__ import annotations

import gzip
import json
import socket
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import pytest
from websockets.sync.client import connect as web_socket

from raybroker.content.bodies import DEFLATED
from raybroker.errors import MessageFormatError
from raybroker.model.blocks.block import encode_block
from raybroker.model.settings.settings import settings_of
from raybroker.services.native.control import REQUESTS_UNKNOWN_MAX
from raybroker.system.process_memory import resident_bytes
from raybroker.wire.native import frames as wire
from raybroker.wire.scram import ScramClient
from tests.fuzz.doors import OPEN, PASSWORD, AllDoors, said_until_end, until

MIB: Final = 1 << 20
ARRIVING: Final = 8
"""Connections of one address that have not logged in."""
GROWTH_MAX: Final = 64 * MIB
HALF_HELLO: Final = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def doors(folder: Path, opened: ExitStack, *services: str, **more: Any) -> AllDoors:
    made = AllDoors(
        folder,
        opened,
        services or ("jms", "admin"),
        **{
            "raybroker.service.address_arriving_max": ARRIVING,
            **more,
        },
    )
    opened.callback(lambda: _clean(made))
    return made


def _clean(made: AllDoors) -> None:
    assert made.faults.found == []


def ended(made: socket.socket) -> bool:
    """Whether the connection has been ended."""
    try:
        return made.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


# ---- logins ----------------------------------------------------------------------------------------------------------


def test_many_logins_in_one_write_are_one_attempt_and_their_answers_are_bounded(
    tmp_path: Path, opened: ExitStack
) -> None:
    made = doors(tmp_path, opened)
    stranger = made.raw()
    login = wire.call(1, "login", {"mechanism": "digest", "first": ScramClient("ann", "x", "n" * 24).first()})
    proof = wire.call(2, "proof", {"final": "c=biws,r=x,p=x"})
    stranger.send(OPEN, *[login, proof] * 100)
    frames: list[Any] = []
    with suppress(EOFError, OSError):
        while True:
            frames.append(stranger.frame())
    assert len(frames) <= REQUESTS_UNKNOWN_MAX + 1
    until(
        lambda: (
            any(f"more than {REQUESTS_UNKNOWN_MAX} requests" in line for line in made.faults.refusals)
            or any("(1 in a row)" in line for line in made.faults.refusals)
        )
    )
    assert not any("(2 in a row)" in line for line in made.faults.refusals), "one connection is good for one login"
    made.serves("jms")


def test_who_is_refused_a_certificate_begins_no_other_login_behind_it(tmp_path: Path, opened: ExitStack) -> None:
    made = doors(tmp_path, opened)
    stranger = made.raw()
    first = ScramClient("ann", PASSWORD, "n" * 24).first()
    stranger.send(
        OPEN,
        wire.call(1, "certify", {}),
        wire.call(2, "login", {"mechanism": "digest", "first": first}),
    )
    with pytest.raises(ValueError, match="has shown no certificate"):
        stranger.answer(1)
    with pytest.raises((ValueError, EOFError, ConnectionError), match=r"cannot be begun|^$|reset"):
        stranger.answer(2)
    made.serves("jms")


@pytest.mark.parametrize("limit", ["address", "user"])
def test_of_many_logins_that_have_begun_no_more_come_in_than_may(tmp_path: Path, opened: ExitStack, limit: str) -> None:
    made = doors(tmp_path, opened, **{f"raybroker.service.{limit}_connections_max": 2})
    begun = []
    for _ in range(ARRIVING - 2):
        client = made.raw()
        client.send(OPEN)
        begun.append((client, client.begin()))
    told = []
    for client, proof in begun:
        try:
            client.ask("proof", final=proof)
            told.append("")
        except ValueError as error:
            told.append(str(error))
    assert told.count("") == 2
    assert all(f"raybroker.service.{limit}_connections_max" in text for text in told if text), told
    assert len(made.clients()) == 2


# ---- who does not come to an end -------------------------------------------------------------------------------------


@pytest.mark.parametrize("listener", ["jms", "ssljms", "stomp", "sslstomp", "httpsjms"])
def test_who_stops_half_way_is_bounded_by_address_and_ended_and_others_come_in(
    tmp_path: Path, opened: ExitStack, listener: str
) -> None:
    made = doors(tmp_path, opened, listener, **{"raybroker.handshake.timeout_ms": 20_000})
    half = [made.keep(listener, tls=False, timeout=0.05) for _ in range(ARRIVING * 2)]
    for one in half:
        with suppress(OSError):
            one.sendall(b"CONN" if listener == "stomp" else OPEN[:3] if listener == "jms" else HALF_HELLO)
    until(lambda: sum(ended(one) for one in half) >= ARRIVING, "those beyond the limit are ended at once")
    made.serves(listener)
    assert any("refused" in line for line in made.faults.refusals)
    for one in half:
        one.close()
    made.nothing_left()


@pytest.mark.parametrize("listener", ["jms", "ssljms", "stomp", "httpjms", "metrics"])
def test_who_dribbles_is_ended_in_time(tmp_path: Path, opened: ExitStack, listener: str) -> None:
    """A byte now and then is no progress: the time is for the whole of a login, or of headers."""
    services = () if listener == "metrics" else (listener,)
    made = doors(
        tmp_path,
        opened,
        *services,
        **{
            "raybroker.handshake.timeout_ms": 500,
            "raybroker.http.headers_timeout": 1,
        },
    )
    if listener == "metrics":
        made.endpoint._server.guard.headers_s = 1.0
    said = {
        "jms": OPEN + b"\x20\x00\x00\x00\x01",
        "ssljms": HALF_HELLO,
        "stomp": b"CONNECT\n" + b"a:b\n" * 1000,
    }.get(listener, b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 1000)
    one = made.keep(listener, tls=False, timeout=0.05)

    def over() -> bool:
        nonlocal said
        with suppress(OSError):
            one.sendall(said[:1])
            said = said[1:]
        return ended(one)

    until(over, "it is ended")
    made.serves(listener)


def test_a_header_of_a_request_that_is_too_large_is_the_settings(tmp_path: Path, opened: ExitStack) -> None:
    made = doors(
        tmp_path,
        opened,
        "httpjms",
        "stomp",
        **{
            "raybroker.http.headers_bytes_max": 2048,
            "raybroker.stomp.login_bytes_max": 512,
            "raybroker.stomp.headers_bytes_max": 1024,
        },
    )
    http = made.http()
    assert http.get("/health", headers={"x": "y" * 1024}).status_code == 200
    assert http.get("/health", headers={"x": "y" * 2048}).status_code in (400, 431)
    client = made.stomp()
    client.send("CONNECT", {"login": "ann", "x": "y" * 600})
    assert "more than 512 bytes" in client.expect("ERROR").headers["message"]
    client = made.stomp().login()
    client.send("SEND", {"destination": "/queue/q", "x": "y" * 1100})
    assert "more than 1024 bytes" in client.expect("ERROR").headers["message"]
    made.serves("stomp")


def test_frames_of_stomp_that_do_not_end_make_room_for_those_that_do(tmp_path: Path, opened: ExitStack) -> None:
    made = doors(tmp_path, opened, "stomp", **{"raybroker.stomp.frames_bytes_max": 2 * MIB})
    made.admin.create_destination("queue", "large", maxBytesPerMsg=-1)
    head = f"SEND\ndestination:/queue/large\nreceipt:r\ncontent-length:{MIB * 3 // 2}\n\n".encode()
    slow, good = made.stomp().login(), made.stomp().login("bob")
    slow.socket.sendall(head + bytes(MIB))
    until(lambda: _held(made) >= MIB)
    good.socket.sendall(head + bytes(MIB * 3 // 2) + b"\0")
    assert good.expect("RECEIPT").headers["receipt-id"] == "r"
    error = slow.expect("ERROR")
    assert "raybroker.stomp.frames_bytes_max" in error.headers["message"]
    assert "began first" in error.headers["message"]
    until(lambda: _held(made) == 0)
    assert any("raybroker.stomp.frames_bytes_max" in line for line in made.faults.refusals)


def test_frames_of_a_host_that_do_not_end_make_room_too(
    tmp_path: Path, opened: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    made = doors(tmp_path, opened, **{"raybroker.service.frames_bytes_max": 128 * MIB})
    head = (60 * MIB).to_bytes(4, "little") + bytes([wire.SEND])
    guests = []
    for _ in range(3):
        guest = made.raw()
        guest.send(made.raw().login().located("q"))
        guest.ask("hello", started=True)
        guest.send(head, bytes((50 if guests else 10) * MIB))
        guests.append(guest)
    until(lambda: host_of(made).unfinished.total >= 109 * MIB)
    with suppress(OSError):
        guests[0].send(bytes(45 * MIB))  # It began first, and it is the one that wants more.
    with pytest.raises((EOFError, ConnectionError)):  # noqa: PT012 - frames may come before the end
        while True:
            guests[0].frame()
    until(lambda: "raybroker.service.frames_bytes_max" in caplog.text)
    assert host_of(made).unfinished.total <= 128 * MIB
    for guest in guests:
        guest.close()
    until(lambda: host_of(made).unfinished.total == 0)
    made.serves("jms")


def _held(made: AllDoors) -> int:
    directory: Any = made.inside._core.directory
    return int(directory._services._gateways._open["stomp"].unfinished.total)


# ---- who does not read -----------------------------------------------------------------------------------------------


def flood(one: socket.socket, data: bytes, most: int = 256 * MIB) -> int:
    """Send that again and again until nobody takes more; how many bytes were taken."""
    one.settimeout(2.0)
    sent = 0
    with suppress(OSError):
        while sent < most:
            sent += one.send(data)
    return sent


def host_of(made: AllDoors) -> Any:
    """What listens for the one host of the broker."""
    return made.inside._core.directory._service.service  # type: ignore[attr-defined]


@pytest.mark.parametrize("what", ["pings", "requests", "browsing"])
def test_a_host_reads_nothing_from_who_does_not_read_and_ends_him(
    tmp_path: Path, opened: ExitStack, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    made = doors(tmp_path, opened, **{"raybroker.service.unread_timeout": 3})
    made.admin.create_destination("queue", "q", maxBytesPerMsg=-1)
    made.inside.session().producer("q").send_many([bytes(100_000)] * 20)
    client = made.raw().login()
    guest = made.raw()
    guest.send(client.located("q"))
    guest.ask("hello", started=True)
    guest.ask("open_browser", handle=1, name="q", type="queue", selector=None)
    before = resident_bytes()
    data = {
        "pings": wire.ping(1) * 5000,
        "requests": wire.call(9, "x" * 200, {}) * 200,
        "browsing": b"".join(
            wire.call(8, "open_browser", {"handle": n, "name": "q", "type": "queue", "selector": None})
            + wire.call(9, "browse", {"handle": n, "max": 1000})
            for n in range(2, 400)
        ),
    }[what]
    sent = flood(guest.socket, data)
    assert sent < 256 * MIB, "at some time nothing more is taken"
    assert resident_bytes() - before < GROWTH_MAX
    until(lambda: not [known for known in host_of(made).connections if known.guest is not None])
    until(lambda: "raybroker.service.unread_timeout" in caplog.text)
    made.serves("jms")
    assert resident_bytes() - before < GROWTH_MAX


def test_who_reads_again_gets_every_answer_in_order(tmp_path: Path, opened: ExitStack) -> None:
    made = doors(tmp_path, opened)
    client = made.raw().login()
    guest = made.raw()
    guest.send(client.located("q"))
    guest.ask("hello", started=True)
    count, data = 0, b""
    guest.socket.settimeout(1.0)
    with suppress(TimeoutError):
        while True:
            data = data or b"".join(wire.call(count + n + 10, "x" * 900, {}) for n in range(100))
            taken = guest.socket.send(data)
            data = data[taken:]
            count += 0 if data else 100
    guest.socket.settimeout(60)
    answers = [guest.frame() for _ in range(count)]
    assert [answer.request for answer in answers if isinstance(answer, wire.FailedFrame)] == list(range(10, 10 + count))


def test_a_control_connection_that_does_not_read_is_ended(
    tmp_path: Path, opened: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    made = doors(tmp_path, opened, **{"raybroker.service.unread_timeout": 2})
    client = made.raw().login()
    before = resident_bytes()
    ask = wire.call(9, "ask", {"method": "x" * 1000, "args": []})
    assert flood(client.socket, ask * 60) < 256 * MIB
    until(lambda: not made.clients())
    assert resident_bytes() - before < GROWTH_MAX
    until(lambda: "raybroker.service.unread_timeout" in caplog.text)
    made.serves("jms")


def test_a_stomp_client_that_does_not_read_is_ended_and_others_get_what_it_held(
    tmp_path: Path, opened: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    made = doors(tmp_path, opened, "stomp", **{"raybroker.service.unread_timeout": 2})
    made.admin.create_destination("queue", "q", maxBytesPerMsg=-1)
    made.inside.session().producer("q").send_many([bytes(200_000)] * 100)
    before = resident_bytes()
    client = made.stomp().login()
    client.send("SUBSCRIBE", {"destination": "/queue/q", "id": 1, "ack": "client"})
    until(lambda: not made.clients())
    until(lambda: "[B2068]" in caplog.text)
    assert resident_bytes() - before < GROWTH_MAX
    assert len(made.inside.session().receive("q", timeout=30).body) == 200_000
    made.serves("stomp")


def test_pings_of_a_web_socket_whose_answers_nobody_reads_are_not_read(tmp_path: Path, opened: ExitStack) -> None:
    made = doors(tmp_path, opened, "httpjms", **{"raybroker.service.unread_timeout": 2})
    one = made.keep("httpjms")
    one.sendall(UPGRADE)
    assert one.recv(65_536).startswith(b"HTTP/1.1 101")
    before = resident_bytes()
    ping = b"\x89\xfd" + bytes(4) + b"x" * 125
    assert flood(one, ping * 500) < 256 * MIB
    assert resident_bytes() - before < GROWTH_MAX
    until(lambda: any("has taken nothing" in line for line in made.faults.refusals) or ended(one))
    made.serves("httpjms")


UPGRADE: Final = (
    b"GET /native HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
)


def test_whoever_is_not_read_from_is_not_taken_for_silent(tmp_path: Path, opened: ExitStack) -> None:
    made = doors(tmp_path, opened, **{"imq.ping.interval": 1})
    client = made.raw().login()
    guest = made.raw()
    guest.send(client.located("q"))
    guest.ask("hello", started=True)
    made.admin.pause_service("jms")
    time.sleep(3.5)  # Longer than two pings, of which it answers none: nobody would hear it.
    made.admin.resume_service("jms")
    assert guest.ask("stop") is None


# ---- what is compressed ----------------------------------------------------------------------------------------------


def test_bodies_of_requests_are_never_decompressed(tmp_path: Path, opened: ExitStack) -> None:
    made = doors(tmp_path, opened, "httpjms")
    bomb = gzip.compress(json.dumps({"body": "x" * (200 * MIB)}).encode())
    before = resident_bytes()
    http = made.http()
    kind = {"content-type": "application/json", "content-encoding": "gzip"}
    answer = http.post("/queues/q/messages", content=bomb, headers=kind)
    assert (answer.status_code, answer.headers["accept-encoding"]) == (415, "identity")
    assert "Content-Encoding 'gzip'" in answer.json()["detail"]
    opened_one = http.post("/native/poll").json()["session"]
    up = {"raybroker-session": opened_one, "raybroker-number": "1", "content-encoding": "deflate"}
    assert http.post("/native/poll/up", content=zlib.compress(bytes(MIB)), headers=up).status_code == 415
    assert resident_bytes() - before < GROWTH_MAX
    made.serves("httpjms")


def test_a_web_socket_has_no_compression(tmp_path: Path, opened: ExitStack) -> None:
    made = doors(tmp_path, opened, "httpjms")
    with web_socket(f"ws://127.0.0.1:{made.ports['httpjms']}/native", compression="deflate") as offered:
        assert offered.protocol.extensions == []
    one = made.keep("httpjms")
    one.sendall(UPGRADE)
    assert b"permessage-deflate" not in one.recv(65_536)
    bomb = zlib.compressobj(9, zlib.DEFLATED, -15)
    data = bomb.compress(bytes(20 * MIB)) + bomb.flush(zlib.Z_SYNC_FLUSH)
    one.sendall(b"\xc2\xff" + len(data).to_bytes(8, "big") + bytes(4) + data)
    assert said_until_end(one)[:1] == b"\x88", "a frame that closes"
    until(lambda: any("reserved bits" in line for line in made.faults.refusals))
    made.serves("httpjms")


def _bomb(made: AllDoors, queue: str) -> None:
    """A message whose body inflates to 300 MiB."""
    made.admin.create_destination("queue", queue, maxBytesPerMsg=-1)
    client = made.raw().login()
    guest = made.raw()
    guest.send(client.located(queue))
    guest.ask("hello", started=True)
    guest.ask("open_producer", handle=1, name=queue, type="queue", producer=7)
    block = encode_block(
        [zlib.compress(bytes(300 * MIB))], producer=7, first_seq=1, timestamp_ms=0, persistent=True, kinds=DEFLATED
    )
    guest.send(*wire.send(1, 1, block))
    assert isinstance(guest.frame(), wire.SentFrame)


@pytest.mark.parametrize("way", ["handles", "REST", "STOMP"])
def test_a_body_that_would_fill_the_memory_is_not_inflated(tmp_path: Path, opened: ExitStack, way: str) -> None:
    made = doors(tmp_path, opened, "jms", "httpjms", "stomp")
    _bomb(made, "q")
    peak = _peak_of(lambda: _opened_by(made, way))
    assert peak < 250 * MIB, "at most a message of the largest size, and its copy"
    made.serves("httpjms")
    made.serves("stomp")


def _opened_by(made: AllDoors, way: str) -> None:
    if way == "handles":
        message = made.inside.session().receive("q", timeout=30)
        with pytest.raises(MessageFormatError, match=r"larger than the \d+ bytes allowed"):
            _ = message.body
    elif way == "REST":
        answer = made.http().post("/queues/q/receive", params={"wait_ms": 20_000})
        assert (answer.status_code, "a compressed body is larger than" in answer.text) == (400, True)
    else:
        client = made.stomp().login()
        client.send("SUBSCRIBE", {"destination": "/queue/q", "id": 1, "ack": "client"})
        dead = made.admin
        until(lambda: dead.query_destination("queue", "mq.sys.dmq")["messages"] == 1)


def _peak_of(work: Callable[[], None]) -> int:
    """How far the memory grows meanwhile: the system keeps the mark."""
    Path("/proc/self/clear_refs").write_text("5")
    before = _high_water()
    work()
    return _high_water() - before


def _high_water() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


# ---- the port mapper -------------------------------------------------------------------------------------------------


def test_the_map_comes_whole_to_a_client_that_says_what_version_it_wants(tmp_path: Path, opened: ExitStack) -> None:
    made = doors(tmp_path, opened)
    for said in (b"101\n", b"x" * 2000, b""):
        one = made.keep("portmapper")
        one.sendall(said)
        assert said_until_end(one).endswith(b".\n")


def test_one_address_cannot_take_all_answers_of_the_port_mapper(tmp_path: Path, opened: ExitStack) -> None:
    made = doors(tmp_path, opened, **{"raybroker.portmapper.address_connections_max": 4})
    many = [made.keep("portmapper") for _ in range(40)]
    made.serves("portmapper")
    told = [said_until_end(one) for one in many]
    assert any(not text for text in told), "those beyond the limit get nothing"
    until(lambda: any("the port mapper answers" in line for line in made.faults.refusals))


def test_every_limit_of_a_listener_is_a_setting_that_says_what_it_bounds() -> None:
    names = {setting.name: setting for setting in settings_of("broker")}
    for name in (
        "raybroker.service.arriving_max",
        "raybroker.service.address_arriving_max",
        "raybroker.service.unread_timeout",
        "raybroker.service.keepalive",
        "raybroker.http.headers_bytes_max",
        "raybroker.stomp.frames_bytes_max",
        "raybroker.metrics.address_connections_max",
        "raybroker.portmapper.address_connections_max",
    ):
        assert len(names[name].help) > 20
