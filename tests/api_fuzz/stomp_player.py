"""A thread that speaks STOMP with the broker, beside those with connections of their own."""

from __future__ import annotations

import json
import random
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from raybroker.security.user_file import UserEntry, UserFile
from raybroker.wire.scram import Verifier
from raybroker.wire.stomp.frame import StompFrame
from tests.api_fuzz.plan import CALLS, QUEUES, TARGET
from tests.api_fuzz.player import SLACK_S, Notes
from tests.contracts.stomp_rig import Bare

USER: Final = "ann"
ANSWER_S: Final = 10.0
"""The longest that a receipt may take: a send waits there as long as a native one."""
LOOK_S: Final = 0.1
JSON: Final = "application/json"


class EndedError(Exception):
    """The connection has ended: with an ERROR, or without."""


def properties(folder: Path) -> dict[str, Any]:
    """Those of a broker that serves STOMP, for a user of its own."""
    folder.mkdir(exist_ok=True)
    if not (folder / "passwd").exists():
        UserFile(folder / "passwd").add(USER, UserEntry(str(Verifier.from_password("secret", b"s" * 16, 64)), "user"))
    return {
        "imq.service.activelist": "stomp",
        "imq.hostname": "127.0.0.1",
        "imq.portmapper.port": 0,
        "raybroker.security.dir": str(folder),
    }


class StompPlayer:
    """``port``: where STOMP is served; ``number``: of the thread."""

    def __init__(self, seed: int, number: int, notes: Notes, port: int, lag_s: Callable[[], float]) -> None:
        self._draw = random.Random(f"{seed}/stomp/{number}")
        self._next = number * 1_000_000 + seed % 1000 * 1_000
        self._notes = notes
        self._port = port
        self._lag_s = lag_s
        self._client: Bare
        self._came: deque[tuple[StompFrame, int]] = deque()
        """Messages that came while a receipt was waited for, and since when they were."""
        self._hand: dict[int, str] = {}
        """Number → the id of its acknowledgement."""
        self._ack = ""
        self._receipts = 0

    def play(self) -> None:
        calls = CALLS
        while calls > 0:
            try:
                self._notes.write("session", mode="stomp")
                self._client = Bare(self._port).login(USER)
            except (OSError, AssertionError):
                calls -= 1
                continue
            try:
                calls -= self._with_client(self._draw.randrange(5, 30))
            except (EndedError, OSError):
                calls -= 1
            finally:
                self._client.close()
                self._hand.clear()
                self._came.clear()

    def _with_client(self, calls: int) -> int:
        self._ack = self._draw.choice(("client-individual", "client"))  # With auto what is on its way may be lost.
        self._done(
            "SUBSCRIBE",
            {
                "destination": f"/queue/{self._draw.choice((*QUEUES, TARGET))}",
                "id": 1,
                "ack": self._ack,
            },
        )
        for _ in range(calls):
            self._draw.choice((self._send, self._send, self._transaction, self._receive, self._receive, self._settle))()
        if self._draw.random() < 0.5:
            self._done("DISCONNECT", {})
        return calls

    # ---- frames ------------------------------------------------------------------------------------------------------

    def _next_frame(self, wait_s: float) -> StompFrame | None:
        """None: nothing came for so long."""
        self._client.socket.settimeout(wait_s)
        try:
            frame = self._client.receive()
        except TimeoutError:
            return None
        if frame is None or frame.command == "ERROR":
            self._notes.write("error", text=f"stomp: {frame}"[:300])
            raise EndedError
        return frame

    def _done(self, command: str, headers: dict[str, Any], body: bytes = b"") -> None:
        self._receipts += 1
        receipt, began, lag_s = f"r{self._receipts}", time.monotonic(), self._lag_s()
        self._client.send(command, {**headers, "receipt": receipt}, body)
        while True:
            frame = self._next_frame(ANSWER_S + SLACK_S + 4 * max(lag_s, self._lag_s()))
            if frame is None:
                self._notes.write("late", text=f"{command} had no receipt for {time.monotonic() - began:.1f} s")
                raise EndedError
            if frame.command == "RECEIPT" and frame.headers["receipt-id"] == receipt:
                return
            assert frame.command == "MESSAGE", frame
            self._came.append((frame, time.monotonic_ns()))

    # ---- calls -------------------------------------------------------------------------------------------------------

    def _new(self) -> tuple[int, str, dict[str, Any], bytes]:
        """A number that is noted as asked for, its queue, and the headers and the body of its SEND."""
        self._next += 1
        queue, persistent = self._draw.choice(QUEUES), self._draw.random() < 0.8
        headers: dict[str, Any] = {"destination": f"/queue/{queue}", "content-type": JSON}
        headers["persistent"] = "true" if persistent else "false"
        if self._draw.random() < 0.2:
            headers["priority"] = self._draw.randrange(10)
        self._notes.write("send", [self._next], persistent=persistent, queue=queue)
        return self._next, queue, headers, json.dumps({"n": self._next}).encode()

    def _send(self) -> None:
        number, _, headers, body = self._new()
        self._done("SEND", headers, body)
        if headers["persistent"] == "true":
            self._notes.write("sent", [number], persistent=True)

    def _transaction(self) -> None:
        """Sends and acknowledgements, together or not at all."""
        name, sent, persistent = f"t{self._receipts}", list[int](), True
        self._done("BEGIN", {"transaction": name})
        for _ in range(self._draw.randrange(4)):
            number, _, headers, body = self._new()
            self._done("SEND", {**headers, "transaction": name}, body)
            sent.append(number)
            persistent &= headers["persistent"] == "true"
        commit, taken = self._draw.random() < 0.7, list[int]()
        if commit and self._ack == "client-individual" and self._hand:
            taken = [self._draw.choice(list(self._hand))]
            self._notes.write("settle", taken)
            self._done("ACK", {"id": self._hand.pop(taken[0]), "transaction": name})
        self._done("COMMIT" if commit else "ABORT", {"transaction": name})
        if commit:
            self._notes.write("settled", taken)
        if commit and persistent:
            self._notes.write("sent", sent, persistent=True)
        if not commit:
            self._notes.write("refused", sent)

    def _receive(self) -> None:
        frame, began_ns = self._came.popleft() if self._came else (None, time.monotonic_ns())
        frame = frame or self._next_frame(LOOK_S)
        if frame is None:
            return
        assert frame.command == "MESSAGE", frame
        number = json.loads(frame.body)["n"]
        self._notes.write("got", [number], flags=[frame.headers.get("redelivered") == "true"], began_ns=began_ns)
        self._hand[number] = frame.headers["ack"]

    def _settle(self) -> None:
        if not self._hand:
            return
        number = self._draw.choice(list(self._hand))
        if self._ack == "client-individual" and self._draw.random() < 0.2:
            self._notes.write("nack", [number])
            self._done("NACK", {"id": self._hand.pop(number)})
            return
        covered = [number]
        if self._ack == "client":  # All that came before it, whether it was looked at or not.
            numbers = list(self._hand)
            covered = numbers[: numbers.index(number) + 1]
        self._notes.write("settle", covered)
        self._done("ACK", {"id": self._hand[number]})
        for one in covered:
            del self._hand[one]
        self._notes.write("settled", covered)
