"""Lines about dead messages: for each when it is asked for, and what an expiry policy writes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.core.outcome import DeadLetter
from raybroker.engine.counted_lines import CountedLines
from raybroker.engine.dead_letters.dead_letter_log import DeadLetterLog
from raybroker.model.settings.settings import destination_attributes


class Log:
    """``wishes``: what each message says; ``lives``: reasons that the log of lives heard."""

    def __init__(self, *wishes: bool | None, always: bool = False, lives: bool = False, **attributes: Any) -> None:
        self.lines: list[str] = []
        self.lives: list[str] = []
        codec: Any = SimpleNamespace(
            wish=lambda block, index: (None, wishes[index], None),
            content=lambda block: SimpleNamespace(header=lambda index, name: f"ID:{index}" if index else None),
            expiry_record=lambda block, index, policy, name: f"expired {index} {policy} {name}",
        )
        life: Any = SimpleNamespace(
            wanted=lambda destination: lives, died=lambda destination, effect, block: self.lives.append(effect.reason)
        )
        config: Any = {"imq.destination.logDeadMsgs": always}
        self.count = len(wishes)
        self.destination: Any = SimpleNamespace(
            kind="queue", name="q", attributes=destination_attributes(attributes, type="queue")
        )
        self.now_ms = 1000
        self.counted = CountedLines(lambda: self.now_ms, self.lines.append)
        self.log = DeadLetterLog(codec, config, life, self.lines.append, self.counted)

    def died(self, reason: str, comment: str = "") -> list[str]:
        block: Any = None
        self.log.died(self.destination, DeadLetter(0, 7, (1 << self.count) - 1, 1, reason, comment), block)
        return self.lines


@pytest.mark.parametrize(
    ("wish", "always", "told"), [(None, True, 1), (None, False, 0), (True, False, 1), (False, True, 0)]
)
def test_a_message_may_say_whether_its_death_is_told(wish: bool | None, always: bool, told: int) -> None:
    assert len(Log(wish, always=always).died("ERROR")) == told


def test_a_line_names_the_message_and_the_reason() -> None:
    assert Log(True, True).died("ERROR", "no such order") == [
        "[B2148] message without an id, 0 of block 7, of queue q is dead: ERROR no such order",
        "[B2148] message ID:1 of queue q is dead: ERROR no such order",
    ]


def test_the_log_policy_writes_of_the_expired_alone() -> None:
    policy = {"expirationPolicy": "Log", "expirationLoggingPolicy": "x"}
    assert Log(None, None, **policy).died("EXPIRED") == ["expired 0 x q", "expired 1 x q"]
    assert Log(None, **policy).died("ERROR") == []


def test_the_log_of_lives_hears_when_it_wants_to() -> None:
    for wanted in (True, False):
        log = Log(None, lives=wanted)
        log.died("EXPIRED")
        assert log.lives == (["EXPIRED"] if wanted else [])


def test_messages_that_stay_are_told_with_the_cause_and_their_number() -> None:
    log = Log()
    for _ in range(10_000):
        log.log.count_refused(log.destination, 2, "queue e does not exist", kept=True)
    log.log.count_refused(log.destination, 1, "queue e does not exist", kept=False)
    log.counted.tell_due()
    assert log.lines == [
        "[B2175] 20000 dead messages of queue q cannot be moved: queue e does not exist; kept, and offered again",
        "[B2175] 1 dead message of queue q cannot be moved: queue e does not exist; dropped",
    ]
