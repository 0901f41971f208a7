"""A function that is called with messages, and what becomes of a message when the function raises.

The failure is logged with its traceback, given to ``on_exception`` of the connection, and given to the broker, which
writes it onto the message when that is dead.  The message comes again after a pause that doubles with each attempt, or
is rejected: it is dead at once.  While it waits, others go on; those who need their order use a unit of order, or
``backoff=0``, with which the session gives back everything and starts with that message again.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import inspect
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import raybroker.client
from raybroker.client.consumer.failure_causes import cause_of
from raybroker.client.consumer.message import Message
from raybroker.client.session.session import SessionCore
from raybroker.model.argument import shown
from raybroker.model.causes import ERROR, outcome_of
from raybroker.model.errors import ConfigError, ListenerError
from raybroker.model.failure import describe, summary_of

log = logging.getLogger("raybroker.listener")

BACKOFF_FIRST_S: Final = 0.25
"""The pause after the first failure of a message, where a listener does not say another one."""
BACKOFF_LONGEST_S: Final = 30.0
"""The pause grows up to this, unless the first one is longer."""
BACKOFF_S_MAX: Final = 86_400.0
_MACHINERY: Final = tuple(
    f"{Path(module.__file__ or '').parent}{os.sep}" for module in (asyncio, concurrent.futures, raybroker.client)
)
"""Where the calls of a traceback come from that stand above those of the application."""

Types = tuple[type[BaseException], ...]
Backoff = float | tuple[float, float] | None


class Retries(NamedTuple):
    """What a failed call means for its message.

    retry_on   only these exceptions are worth another attempt; empty: all are
    reject_on  these never are, also when ``retry_on`` names them
    backoff    seconds before the second attempt, doubled for each further one up to BACKOFF_LONGEST_S, or the pair of
               both; 0: at once and in order. None: the session's redelivery delay, or without one BACKOFF_FIRST_S
    """

    retry_on: Types = ()
    reject_on: Types = ()
    backoff: Backoff = None

    @classmethod
    def checked(cls, retry_on: object, reject_on: object, backoff: object) -> Retries:
        """Raises ConfigError for what these cannot be."""
        return cls(_types("retry_on", retry_on), _types("reject_on", reject_on), _backoff(backoff))

    def rejects(self, error: BaseException) -> bool:
        if isinstance(error, self.reject_on):
            return True
        return bool(self.retry_on) and isinstance(error, Exception) and not isinstance(error, self.retry_on)

    def delay_ms(self, attempt: int, session_ms: int) -> int:
        """The pause after attempt 1, 2, …; ``session_ms`` is the session's redelivery delay, 0 for none."""
        if self.backoff is None and session_ms:
            return session_ms
        first, longest = self.backoff if isinstance(self.backoff, tuple) else (self.backoff, BACKOFF_LONGEST_S)
        first = BACKOFF_FIRST_S if first is None else first
        return doubled_ms(first, max(first, longest), max(attempt, 1) - 1)


def doubled_ms(first_s: float, longest_s: float, times: int) -> int:
    """A pause that has been doubled so many times, up to a longest one."""
    return int(min(first_s * 2.0 ** min(times, 64), longest_s) * 1000)


def _types(name: str, value: object) -> Types:
    found = (value,) if isinstance(value, type) else tuple(value) if isinstance(value, tuple | list) else (value,)
    if not all(isinstance(one, type) and issubclass(one, BaseException) for one in found):
        raise ConfigError(f"{name}={value!r}; it is a type of exception, or a tuple of them")
    return found


def _backoff(value: object) -> Backoff:
    parts = value if isinstance(value, tuple | list) else (value,)
    numbers = [one for one in parts if isinstance(one, int | float) and not isinstance(one, bool)]
    right = len(numbers) == len(parts) <= 2 and all(0 <= one <= BACKOFF_S_MAX for one in numbers)
    if value is None or (right and len(parts) == 1):
        return None if value is None else float(numbers[0])
    if right and len(parts) == 2 and numbers[0] <= numbers[1]:
        return float(numbers[0]), float(numbers[1])
    raise ConfigError(
        f"backoff={value!r}; it is seconds before the second attempt, 0 to {BACKOFF_S_MAX:g}, or a pair of those and"
        " the longest pause"
    )


def check_function(function: object) -> Callable[[Any], object]:
    """The function; raises ConfigError for what cannot be called with a message, or would do nothing when it is."""
    if not callable(function) or isinstance(function, type):
        what = f"the class {function.__qualname__}" if isinstance(function, type) else shown(function)
        raise ConfigError(f"listener={what}; it is a function that is called with a message")
    plain: Any = inspect.unwrap(function)
    while isinstance(plain, functools.partial):
        plain = plain.func
    code = plain if inspect.isroutine(plain) else type(plain).__call__
    if inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
        raise ConfigError(
            f"the listener {name_of(function)} has a yield: calling it would run none of it; use a plain function or"
            " 'async def' without yield"
        )
    try:
        inspect.signature(function).bind(None)
    except TypeError as error:
        raise ConfigError(f"the listener {name_of(function)} cannot be called with a message alone: {error}") from None
    except ValueError:  # A builtin function without a signature.
        pass
    return function


def name_of(function: object) -> str:
    return getattr(function, "__qualname__", None) or type(function).__qualname__


def require_result(function: object, result: object) -> None:
    """Raises ConfigError for a result that shows that the function was not run."""
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise ConfigError(f"the listener {name_of(function)} returned a generator, which nobody runs")


class Handler:
    """What a consumer calls: the application's function and its rules for failures."""

    def __init__(self, function: object, retries: Retries) -> None:
        self.function = check_function(function)
        self.retries = retries

    def __call__(self, message: Message) -> object:
        return self.function(message)


def reason_of(error: BaseException) -> str:
    """What a dead message says of an exception: without the calls that led to the application's function."""
    skip, frames = 0, error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_MACHINERY):
        skip, frames = skip + 1, frames.tb_next
    return describe(error, skip=skip)


class Verdict(NamedTuple):
    """What becomes of messages whose call failed: dead at once, or tried again after ``delay_ms`` milliseconds."""

    rejects: bool
    delay_ms: int
    reason: str
    """For the dead message; see ``model.failure``."""
    cause: str = ERROR
    """Of ``model.causes``."""

    @property
    def text(self) -> str:
        if self.rejects:
            return "it is rejected, and dead"
        pause = f"after {self.delay_ms / 1000:g} s" if self.delay_ms else "at once"
        return f"it comes again {pause}, or is dead if that was its last attempt"


def judge(core: SessionCore, retries: Retries, function: object, message: Message, error: BaseException) -> Verdict:
    """Decide about a message whose call raised ``error``, log it and call ``on_exception``."""
    verdict = Verdict(
        retries.rejects(error),
        retries.delay_ms(message.delivery_count, core.redelivery_delay_ms),
        reason_of(error),
        cause_of(error),
    )
    what = "it is lost: the session does not acknowledge" if core.mode == "none" else verdict.text
    which = f"message {message.id} of {message.destination}, attempt {message.delivery_count}"
    report(core, function, which, what, error)
    return verdict


def report(core: SessionCore, function: object, which: str, what: str, error: BaseException) -> None:
    """Log that a listener failed, with the traceback, and call ``on_exception``."""
    text = f"the listener {name_of(function)} failed with {which}: {summary_of(error)}; {what}"
    log.error("%s", text, exc_info=error)
    failure = ListenerError(text)
    failure.__cause__ = error
    core.connection.events.post_failure(failure)


async def give_up(core: SessionCore, message: Message, verdict: Verdict, *, batched: bool = False) -> None:
    """End a failed message as was decided; on the IO loop. Nothing is to be done where the message has an end already.

    ``batched``: the transaction holds other calls too, so that all of them are tried again at once, one to a
    transaction. Raises what the broker answers; without a connection the message comes again by that.
    """
    if core.mode == "none":
        return
    if verdict.rejects:
        await _conclude(core, message, "reject", verdict)
        if core.transactions is not None:
            await core.transactions.rollback(0, verdict.reason)
    elif core.transactions is not None:
        await core.transactions.rollback(0 if batched else verdict.delay_ms, verdict.reason)
    elif verdict.delay_ms or verdict.cause != ERROR:
        await _conclude(core, message, outcome_of(verdict.cause), verdict)
    else:
        await core.recover(0, verdict.reason)


async def _conclude(core: SessionCore, message: Message, outcome: str, verdict: Verdict) -> None:
    confirmed = core.conclude(message, outcome, verdict.delay_ms, verdict.reason)
    if confirmed is not None:
        await asyncio.wait([asyncio.wrap_future(confirmed)])
        fault = confirmed.verdict()
        if fault is not None:
            raise fault
