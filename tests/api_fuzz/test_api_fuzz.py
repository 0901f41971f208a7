"""The oracle notices what it should, and no seed of the API's fuzzer has faults."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, Final

import pytest

from tests.api_fuzz.__main__ import run
from tests.api_fuzz.oracle import Note, judge
from tests.api_fuzz.watch import HUNG, SAYS


def notes(*rows: tuple[Any, ...]) -> list[Note]:
    return [Note(at, kind, list(ids), dict(details)) for at, (kind, ids, details) in enumerate(rows, 1)]


SENT = (("send", [1], {"persistent": True, "queue": "a"}), ("sent", [1], {"persistent": True}))
MOVES = ("moves", [], {"queue": "a", "to": "b"})
MOVED = ("moved", [], {"queue": "a"})
VOLATILE = ("send", [1], {"persistent": False})
GOT = ("got", [1], {"flags": [False], "began_ns": 100})
AGAIN = ("got", [1], {"flags": [True], "began_ns": 100})
ACKNOWLEDGED = (("settle", [1], {}), ("settled", [1], {}))
LEFT = ("left", [1], {"queue": "a"})

SOUND: dict[str, list[tuple[Any, ...]]] = {
    "left at the end": [*SENT, LEFT],
    "received and acknowledged": [*SENT, GOT, *ACKNOWLEDGED],
    "received, flagged when it comes again": [*SENT, GOT, AGAIN, *ACKNOWLEDGED],
    "an acknowledgement that nobody heard of": [*SENT, GOT, ("settle", [1], {})],
    "refused": [SENT[0], ("refused", [1], {})],
    "unknown, and there": [SENT[0], LEFT],
    "unknown, and gone": [SENT[0]],
    "purged": [*SENT, ("purge", [], {"queue": "a"})],
    "moved, and purged there": [*SENT, MOVES, MOVED, ("purge", [], {"queue": "b"})],
    "in what was destroyed": [("send", [1], {"persistent": True, "loose": True}), SENT[1]],
    "expired, and counted until the broker comes across it": [
        ("send", [1], {"persistent": True, "short": True}),
        SENT[1],
        ("count", [], {"queue": "a", "messages": 1}),
    ],
    "not persistent, and gone with its process": [
        ("send", [1], {"persistent": False}),
        ("sent", [1], {"persistent": False}),
        ("killed", [], {}),
    ],
    "two copies of a move that was cut short": [*SENT, MOVES, LEFT, LEFT],
    "two copies of a dead message that was on its way back": [
        *SENT,
        ("moves", [], {"queue": "mq.sys.dmq", "to": ""}),
        LEFT,
        LEFT,
    ],
    "in hand when a broker was killed, and come back for more": [
        *SENT,
        ("got", [1], {"flags": [False], "began_ns": 1}),
        ("killed", [], {}),
        ("settle", [1], {}),
        ("settled", [1], {"auto": True}),
        LEFT,
    ],
    "not persistent, delivered, and sent again with its id to a broker that has forgotten it": [
        VOLATILE,
        GOT,
        ("killed", [], {}),
        VOLATILE,
        GOT,
    ],
    "sent again to another broker": [
        SENT[0],
        ("killed", [], {"others": True}),
        SENT[1],
        GOT,
        *ACKNOWLEDGED,
        LEFT,
    ],
    "dead, and moved twice because a broker was killed meanwhile": [
        *SENT,
        ("killed", [], {}),
        ("left", [1, 1], {"queue": "mq.sys.dmq"}),
    ],
    "counted as it came": [*SENT, ("count", [], {"queue": "a", "messages": 1}), LEFT],
}

FAULTS: dict[str, tuple[list[tuple[Any, ...]], str]] = {
    "lost": ([*SENT], "1 was confirmed and is lost"),
    "lost though received": ([*SENT, GOT], "confirmed and is lost"),
    "lost with a process that was killed": ([*SENT, ("killed", [], {})], "confirmed and is lost"),
    "lost after an acknowledgement that was refused": (
        [*SENT, GOT, ("settle", [1], {}), ("unsettled", [1], {})],
        "confirmed and is lost",
    ),
    "there twice": ([*SENT, LEFT, LEFT], "there 2 times"),
    "confirmed, and sent again to another broker": (
        [*SENT, ("killed", [], {"others": True}), LEFT, LEFT],
        "there 2 times",
    ),
    "lost, and another queue was purged": ([*SENT, ("purge", [], {"queue": "b"})], "confirmed and is lost"),
    "two copies though the move ended": ([*SENT, MOVES, MOVED, LEFT, LEFT], "there 2 times"),
    "two copies, and a move from elsewhere was cut short": (
        [*SENT, ("moves", [], {"queue": "b", "to": "a"}), LEFT, LEFT],
        "there 2 times",
    ),
    "acknowledged, and there": ([*SENT, GOT, *ACKNOWLEDGED, LEFT], "acknowledged, and is there at the end"),
    "acknowledged, and received": ([*SENT, GOT, *ACKNOWLEDGED, AGAIN], "acknowledged, and came again"),
    "without a flag": ([*SENT, GOT, GOT, LEFT], "a second time without redelivered"),
    "not persistent, and sent again with its id to a broker that knows it": (
        [VOLATILE, GOT, VOLATILE, GOT],
        "a second time without redelivered",
    ),
    "not persistent, sent once, and not flagged after a kill": (
        [VOLATILE, GOT, ("killed", [], {}), GOT],
        "a second time without redelivered",
    ),
    "persistent, and sent again with its id after a kill": (
        [*SENT, GOT, ("killed", [], {}), *SENT, GOT, LEFT],
        "a second time without redelivered",
    ),
    "refused, and there": ([SENT[0], ("refused", [1], {}), LEFT], "refused, and is there"),
    "counted and not there": ([("count", [], {"queue": "a", "messages": 1})], "held 1 messages by its count, and 0"),
    "there and not counted": (
        [*SENT, ("count", [], {"queue": "a", "messages": 0}), LEFT],
        "held 0 messages by its count, and 1",
    ),
    "late": ([("late", [], {"text": "close() took 9 s"})], "late: close"),
    "raw": ([("raw", [], {"text": "TypeError"})], "raw: TypeError"),
}


@pytest.mark.parametrize("what", SOUND)
def test_a_sound_run_has_no_faults(what: str) -> None:
    assert judge(notes(*SOUND[what])).faults == []


@pytest.mark.parametrize("what", FAULTS)
def test_the_oracle_notices(what: str) -> None:
    rows, text = FAULTS[what]
    faults = judge(notes(*rows)).faults
    assert len(faults) == 1
    assert text in faults[0]


WAITS_FOR_EVER: Final = """
import asyncio, threading
from raybroker.client.io.io_thread import IoThread
from tests.api_fuzz.watch import Watch

async def never_answered():
    await asyncio.Event().wait()

Watch(0.5).start()
threading.Thread(target=lambda: IoThread.shared().run(never_answered()), name="a client").start()
"""


def test_a_process_that_hangs_leaves_where_its_threads_and_tasks_are() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", WAITS_FOR_EVER], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == HUNG
    assert SAYS in ended.stderr
    assert "in result" in ended.stderr, "the thread that waits"
    assert "in never_answered" in ended.stderr, "what it waits for"


@pytest.mark.sweep
@pytest.mark.parametrize(
    "store", ["memory", "file", "sql", pytest.param("postgresql", marks=pytest.mark.xdist_group("postgres"))]
)
def test_no_seed_has_faults(store: str, sweep_seconds: float) -> None:
    _, verdict = run(store, seconds=sweep_seconds)
    assert not verdict.faults, "\n".join(verdict.faults)
    assert verdict.received
    assert verdict.settled
