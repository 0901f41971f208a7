"""Tasks and their results as messages: names of destinations, headers and bodies.  Pure.

queue NAME               the tasks: type is the name of the handler, correlation_id the id of the task
queues NAME.results.0 …  the results, spread by the id, so that one is found among few; the first one of a task
                         stays, since its deduplication id is the id of the task
topic NAME.cancelled     ids of tasks that are cancelled, for the replicas that hold them
"""

from __future__ import annotations

import zlib
from typing import Any, Final, NamedTuple

from raybroker.model.errors import ConfigError

PENDING: Final = "PENDING"
SUCCESS: Final = "SUCCESS"
FAILURE: Final = "FAILURE"
REVOKED: Final = "REVOKED"
STATUSES: Final = (PENDING, SUCCESS, FAILURE, REVOKED)
"""Of a task: PENDING while it waits, runs or is tried again, and also where nothing is known of it (any more)."""

RESULT_QUEUES: Final = 16
CANCELLED_MAX: Final = 10_000
RETRIES: Final = "retries"
"""Property of a task that failed: how often it has been tried again."""
TASK_ID_CHARS_MAX: Final = 128
OPTIONS: Final = ("task_id", "priority", "countdown", "expires", "unit_of_order")
"""What ``enqueue_task_sync`` takes beside the arguments of the task."""
SECONDS_MAX: Final = 366 * 86_400


class Task(NamedTuple):
    """One task as it was received. ``retries``: attempts that failed before."""

    id: str
    name: str
    args: list[Any]
    kwargs: dict[str, Any]
    retries: int

    @property
    def attempt(self) -> tuple[str, int]:
        """Names this attempt: the next one may have come before this one is known to be stored."""
        return self.id, self.retries


class TaskOutcome(NamedTuple):
    """How a task has ended."""

    status: str
    value: Any = None
    """What its handler returned; of a failure the type and text of the exception."""
    traceback: str = ""

    def body(self, attempts: int, finished_s: float) -> dict[str, Any]:
        """The body of its result."""
        found = {"status": self.status, "value": self.value, "attempts": attempts, "finished_s": finished_s}
        return {**found, "traceback": self.traceback} if self.traceback else found


def result_queue(queue: str, task_id: str) -> str:
    """The queue that has the result of a task."""
    return result_queues(queue)[zlib.crc32(task_id.encode()) % RESULT_QUEUES]


def result_queues(queue: str) -> list[str]:
    return [f"{queue}.results.{number}" for number in range(RESULT_QUEUES)]


def cancellations(queue: str) -> str:
    return f"{queue}.cancelled"


def selector_of(task_id: str) -> str:
    """What selects the messages of one task."""
    quoted = task_id.replace("'", "''")
    return f"JMSCorrelationID = '{quoted}'"


def body_of(args: Any, kwargs: Any) -> dict[str, Any]:
    """The body of a task; raises ConfigError for arguments that no handler could be called with."""
    args = [] if args is None else args
    kwargs = {} if kwargs is None else kwargs
    if not isinstance(args, list | tuple):
        raise ConfigError(f"args={args!r:.80}; it is a list or a tuple of arguments, or None")
    if not isinstance(kwargs, dict) or not all(isinstance(name, str) for name in kwargs):
        raise ConfigError(f"kwargs={kwargs!r:.80}; it is a dict of names and arguments, or None")
    return {"args": list(args), "kwargs": kwargs}


def task_of(task_id: str | None, name: str | None, body: Any, retries: object) -> Task | None:
    """The task of a message; None for a message that is none."""
    if not task_id or not name or not isinstance(body, dict) or body.keys() != {"args", "kwargs"}:
        return None
    args, kwargs = body["args"], body["kwargs"]
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        return None
    return Task(task_id, name, args, kwargs, retries if isinstance(retries, int) and retries > 0 else 0)


def send_options(given: dict[str, Any]) -> dict[str, Any]:
    """Options of ``enqueue_task_sync`` as options of a message; raises ConfigError for an unknown one."""
    if unknown := sorted(given.keys() - set(OPTIONS)):
        raise ConfigError(f"enqueue_task has no option {unknown[0]!r}; there are {', '.join(OPTIONS)}")
    found: dict[str, Any] = {name: given[name] for name in ("priority", "unit_of_order") if name in given}
    for name, meant in (("countdown", "delivery_delay_ms"), ("expires", "ttl_ms")):
        if given.get(name) is not None:
            found[meant] = _milliseconds(name, given[name])
    if given.get("task_id") is not None:
        found["correlation_id"] = found["dedup_id"] = _task_id(given["task_id"])
    return found


def _milliseconds(name: str, seconds: object) -> int:
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 <= seconds <= SECONDS_MAX:
        raise ConfigError(f"{name}={seconds!r:.80}; it is a number of seconds, 0 to {SECONDS_MAX}")
    return int(seconds * 1000)


def _task_id(value: object) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= TASK_ID_CHARS_MAX:
        raise ConfigError(f"task_id={value!r:.80}; it is a text of 1 to {TASK_ID_CHARS_MAX} characters")
    return value
