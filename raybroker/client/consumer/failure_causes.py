"""Causes of failures, as a consumer can tell them: from the exception with which a message has failed.

Exceptions of Ray are told by their names, so that Ray need not be there.
"""

from __future__ import annotations

import asyncio
from typing import Final

from raybroker.model.causes import CAUSES, ERROR, LOST, OOM, POISON, PREEMPTED, TIMEOUT
from raybroker.model.errors import MessageFormatError, UnreadableError

_OF_RAY: Final = {
    "OutOfMemoryError": OOM,
    "NodeDiedError": LOST,
    "NodePreemptedError": PREEMPTED,
    "ActorDiedError": LOST,
    "ActorUnavailableError": LOST,
    "RayActorError": LOST,
    "WorkerCrashedError": LOST,
    "LocalRayletDiedError": LOST,
    "OwnerDiedError": LOST,
    "ObjectLostError": LOST,
    "GetTimeoutError": TIMEOUT,
}
"""Name of an exception of ray.exceptions → cause; a subclass of one has its cause."""
_DEPTH_MAX: Final = 8
"""Exceptions that are looked into, each of which another one has caused."""


def cause_of(error: BaseException) -> str:
    """The cause of a failure: of ``model.causes``.

    What a task of Ray has raised is in the error of the task, as its ``cause``.
    """
    seen: BaseException | None = error
    for _ in range(_DEPTH_MAX):
        if seen is None:
            break
        found = _cause(seen)
        if found != ERROR:
            return found
        within = getattr(seen, "cause", None)
        seen = within if isinstance(within, BaseException) and within is not seen else None
    return ERROR


def _cause(error: BaseException) -> str:
    for kind in type(error).__mro__:
        if kind.__module__ == "ray.exceptions" and kind.__name__ in _OF_RAY:
            return PREEMPTED if getattr(error, "preempted", False) is True else _OF_RAY[kind.__name__]
    if isinstance(error, MemoryError):
        return OOM
    if isinstance(error, TimeoutError | asyncio.TimeoutError):
        return TIMEOUT
    if isinstance(error, UnreadableError) and error.damaged:
        return POISON
    return ERROR


def checked_cause(cause: object, reason: object) -> str:
    """The cause that an application says, or that its reason tells; raises MessageFormatError for an unknown one."""
    if cause is None:
        return cause_of(reason) if isinstance(reason, BaseException) else ERROR
    if not isinstance(cause, str) or cause not in CAUSES:
        raise MessageFormatError(f"cause={cause!r:.80}; it is one of {', '.join(CAUSES)}, or None")
    return cause
