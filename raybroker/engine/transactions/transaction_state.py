"""States of a transaction at its host, and what leads from one to another.

    STARTED, COMPLETE, FAILED             joined                   STARTED
    STARTED, COMPLETE, FAILED             ended                    COMPLETE
    STARTED, COMPLETE, FAILED             ended as failed          FAILED
    STARTED, COMPLETE                     committed in one phase   COMMITTED
    STARTED, COMPLETE                     prepared                 PREPARED
    PREPARED                              committed                COMMITTED
    STARTED, COMPLETE, FAILED, PREPARED   rolled back              ROLLEDBACK

STARTED: something may still join it, and it ends with its session. COMPLETE: an XA branch that its session has ended;
FAILED: one that was said to have failed. PREPARED: written down, it waits for its decision, across restarts. What is
COMMITTED or ROLLEDBACK is remembered by its key for those who have not heard.

An administrator may end a prepared XA branch in place of its transaction manager. That is a heuristic decision: the
branch is HEURISTICALLY_COMMITTED or HEURISTICALLY_ROLLED_BACK in what administrators see, until its manager forgets it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from raybroker.model.machine import Machine


class TransactionState(StrEnum):
    STARTED = "STARTED"
    COMPLETE = "COMPLETE"
    FAILED = "FAILED"
    PREPARED = "PREPARED"
    COMMITTED = "COMMITTED"
    ROLLEDBACK = "ROLLEDBACK"


class TransactionEvent(StrEnum):
    JOIN = "joined"
    END = "ended"
    FAIL = "ended as failed"
    COMMIT_ONE_PHASE = "committed in one phase"
    PREPARE = "prepared"
    COMMIT = "committed"
    ROLL_BACK = "rolled back"


_S, _E = TransactionState, TransactionEvent
OPEN: Final = (_S.STARTED, _S.COMPLETE, _S.FAILED)
"""It is not decided, and its session or branch goes on, or may be gone on with."""
TRANSACTION: Final = Machine(
    "the transaction",
    [
        (OPEN, _E.JOIN, _S.STARTED),
        (OPEN, _E.END, _S.COMPLETE),
        (OPEN, _E.FAIL, _S.FAILED),
        ((_S.STARTED, _S.COMPLETE), _E.COMMIT_ONE_PHASE, _S.COMMITTED),
        ((_S.STARTED, _S.COMPLETE), _E.PREPARE, _S.PREPARED),
        ((_S.PREPARED,), _E.COMMIT, _S.COMMITTED),
        ((*OPEN, _S.PREPARED), _E.ROLL_BACK, _S.ROLLEDBACK),
    ],
)
