"""A host is pinged in datagrams, called when no answer comes, and ended when it answers neither."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.actors import runtime
from raybroker.actors.hosts import heartbeat_replies, host_watch
from raybroker.actors.hosts.heartbeat_replies import PING, PONG, HeartbeatReplies
from raybroker.actors.hosts.host_watch import ASK_EVERY_S, HostWatch
from raybroker.actors.hosts.remote import RemoteHost
from raybroker.model.errors import ConnectionLostError
from raybroker.transport.datagrams import Address, Datagrams, Number

TOKEN = b"t" * 32
WHERE = ("127.0.0.1", 7)
PID = 4321
HUNG_MS = 3000


class Scene:
    """A broker and one host; the clock goes on by ASK_EVERY_S with each look."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, address: Address | None = WHERE, hung_ms: int = HUNG_MS
    ) -> None:
        self.now_ns = 10**12
        self.calls = 0
        self.reached = self.heard = True
        self.ended: list[int] = []
        self.under_way: list[bytes] = []
        self.pid = PID
        self.address = address
        monkeypatch.setattr(host_watch, "SystemClock", lambda: self)
        monkeypatch.setattr(heartbeat_replies, "SystemClock", lambda: self)
        monkeypatch.setattr(runtime, "call", self.call)
        monkeypatch.setattr(host_watch, "_is_host", lambda pid: True)
        monkeypatch.setattr(os, "kill", lambda pid, sign: self.ended.append(pid) if sign == signal.SIGKILL else None)
        spec: Any = SimpleNamespace(key="b1/h1", token=TOKEN, host="h1", hosting="shared")
        self.host = RemoteHost(SimpleNamespace(alive=None), spec)
        self.broker = Datagrams("b1", TOKEN, 1, self.take)
        self.broker._transport = SimpleNamespace(is_closing=lambda: False, sendto=self.to_host)
        self.start()
        self.watch = HostWatch(lambda: [self.host], hung_ms, self.broker, lambda host: Path("/logs") / host / "log.txt")

    def start(self) -> None:
        """A new process of the host."""
        self.pongs = HeartbeatReplies("b1/h1", TOKEN, self.pid)
        self.pongs._datagrams._transport = SimpleNamespace(is_closing=lambda: False, sendto=self.to_broker)

    def now_ms(self) -> int:
        return self.now_ns // 1_000_000

    def monotonic_ns(self) -> int:
        return self.now_ns

    def to_host(self, data: bytes, to: Address) -> None:
        assert to == WHERE
        if self.heard:
            self.under_way.append(data)

    def to_broker(self, data: bytes, to: Address) -> None:
        self.broker.datagram_received(data, WHERE)

    def take(self, sender: str, number: Number, source: Address, payload: bytes) -> None:
        assert payload.startswith(PONG)
        self.watch.pong(sender, payload[1:])

    async def call(self, method: Any, *args: Any, timeout_s: float) -> tuple[int, Address | None]:
        self.calls += 1
        if not self.reached:
            raise ConnectionLostError("no answer")
        return self.pid, self.address

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            asyncio.run(self.watch._check_host(self.host))
            while self.under_way:
                self.pongs._datagrams.datagram_received(self.under_way.pop(), ("127.0.0.1", 1))
            self.now_ns += int(ASK_EVERY_S * 1e9)


def test_a_host_that_answers_pings_is_called_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.look(50)
    assert (scene.calls, scene.ended) == (1, [])


def test_a_host_that_cannot_be_pinged_is_called_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, address=None)
    scene.look(50)
    assert (scene.calls, scene.ended) == (50, [])


def test_one_whose_pings_are_lost_is_called_and_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.look(3)
    scene.heard = False
    scene.look(50)
    assert scene.calls > 20
    assert scene.ended == []


def test_one_that_answers_neither_is_ended_after_its_time_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.look(3)
    scene.heard = scene.reached = False
    scene.look(int(HUNG_MS / 1000 / ASK_EVERY_S) - 1)
    assert scene.ended == []
    scene.look(3)
    assert scene.ended == [PID]


def test_one_that_is_slow_to_answer_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine each answer comes after the next ping, and a call takes too long."""
    scene = Scene(monkeypatch)
    scene.look(3)
    scene.reached = False
    late: list[bytes] = []
    for _ in range(50):
        asyncio.run(scene.watch._check_host(scene.host))
        late.append(scene.under_way.pop())
        if len(late) > 3:
            scene.pongs._datagrams.datagram_received(late.pop(0), ("127.0.0.1", 1))
        scene.now_ns += int(ASK_EVERY_S * 1e9)
    assert scene.ended == []
    scene.heard = False
    for _ in range(int(HUNG_MS / 1000 / ASK_EVERY_S) + 1):
        asyncio.run(scene.watch._check_host(scene.host))
        scene.now_ns += int(ASK_EVERY_S * 1e9)
    assert scene.ended == [PID], "and is ended when it does hang"


def test_time_in_which_the_broker_stood_still_is_not_held_against_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.look(3)
    scene.reached = False

    here, sleep = threading.get_ident(), asyncio.sleep

    async def late(seconds: float) -> None:
        if threading.get_ident() != here:
            await sleep(seconds)  # a broker of another test
            return
        scene.now_ns += int((seconds + 2 * HUNG_MS / 1000) * 1e9)
        if scene.now_ns > 10**12 + 10 * HUNG_MS * 1_000_000:
            raise asyncio.CancelledError

    monkeypatch.setattr(host_watch.asyncio, "sleep", late)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(scene.watch.run())
    assert scene.ended == []


def test_the_pong_of_another_process_or_of_another_ping_is_no_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.look(2)
    known = scene.watch._heard["b1/h1"]
    known.pinged[number := 99] = sent_ns = scene.now_ns
    before, scene.now_ns = known.at_ns, scene.now_ns + 1
    for payload in (b"", b"x", b"%d %d" % (number - 1, PID), b"%d %d" % (number, PID + 1)):
        scene.watch.pong("b1/h1", payload)
    scene.watch.pong("b1/h2", b"%d %d" % (number, PID))
    assert known.at_ns == before
    scene.watch.pong("b1/h1", b"%d %d" % (number, PID))
    assert known.at_ns == sent_ns
    known.at_ns = before
    scene.watch.pong("b1/h1", b"%d %d" % (number, PID))
    assert known.at_ns == before, "an answer counts once"
    scene.pid += 1
    scene.start()
    scene.look(3)
    assert (scene.watch._heard["b1/h1"].pid, scene.calls) == (PID + 1, 2)


def test_a_host_answers_pings_alone() -> None:
    made = HeartbeatReplies("b1/h1", TOKEN, PID)
    sent: list[bytes] = []
    made._datagrams._transport = SimpleNamespace(is_closing=lambda: False, sendto=lambda data, to: sent.append(data))
    for payload, answers in ((b"", 0), (b"b{}", 0), (PING, 1), (PING + b"x", 1)):
        made._receive_ping("b1", Number(1, 1), WHERE, payload)
        assert len(sent) == answers


def codes(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage()[1:6] for record in caplog.records]


@pytest.mark.parametrize("hung_ms", [HUNG_MS, 0])
def test_a_host_that_was_killed_and_restarted_is_told_and_counted(
    hung_ms: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="raybroker.broker"):
        scene = Scene(monkeypatch, hung_ms=hung_ms)
        scene.look(5)
        assert "process 4321; its log is /logs/h1/log.txt" in caplog.messages[0]
        scene.heard = scene.reached = False
        scene.look(4)
        scene.pid, scene.heard, scene.reached = PID + 1, True, True
        scene.start()
        scene.look(5)
    assert codes(caplog) == ["B1170", "B2172", "B2171"]
    assert "process 4321 has ended and process 4322 serves now" in caplog.messages[2]
    assert "its log is /logs/h1/log.txt" in caplog.messages[2]
    assert scene.watch.restarts == 1
    assert scene.ended == []


def test_a_restart_within_a_second_is_told_and_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="raybroker.broker"):
        scene = Scene(monkeypatch)
        scene.look(5)
        scene.pid = PID + 1
        scene.start()
        scene.look(5)
    assert codes(caplog) == ["B1170", "B2171"]
    assert scene.watch.restarts == 1


def test_a_host_that_was_silent_for_a_while_answers_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="raybroker.broker"):
        scene = Scene(monkeypatch)
        scene.look(3)
        scene.heard = scene.reached = False
        scene.look(4)
        scene.heard = scene.reached = True
        scene.look(3)
    assert codes(caplog) == ["B1170", "B2172", "B1172"]
    assert scene.watch.restarts == 0


def test_one_that_is_ended_is_told_once_and_its_successor_is_a_restart(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="raybroker.broker"):
        scene = Scene(monkeypatch)
        scene.look(3)
        scene.heard = scene.reached = False
        scene.look(20)
        scene.pid, scene.heard, scene.reached = PID + 1, True, True
        scene.start()
        scene.look(3)
    assert codes(caplog) == ["B1170", "B2172", "B3173", "B2171"]
    assert scene.ended == [PID]
    assert scene.watch.restarts == 1


def test_a_host_that_is_killed_before_it_was_looked_at_has_restarted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="raybroker.broker"):
        scene = Scene(monkeypatch)
        scene.watch.made(scene.host, PID)
        scene.pid = PID + 1
        scene.start()
        scene.look(3)
    assert codes(caplog) == ["B1170", "B2171"]
    assert scene.watch.restarts == 1
