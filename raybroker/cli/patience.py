"""The patience of a command: it waits -rtm seconds for the answer to a verb first, and then longer, -rtr times.

A request is sent once, whatever is waited: sent again it might happen twice.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

from raybroker.cli import output
from raybroker.model.errors import RequestTimeoutError

FIRST_S: Final = 10.0
RETRIES: Final = 5
"""MQ's defaults, of who gives one of the two options."""


class Patience(NamedTuple):
    """The waits are ``first_s``, twice that, three times that, and so on: one more than ``retries``."""

    first_s: float = FIRST_S
    retries: int = RETRIES

    def wait(self, call: Callable[[], Any]) -> Any:
        """What the call returns, or raises; RequestTimeoutError when it has not ended in time, and goes on then."""
        done: Future[Any] = Future()
        context = contextvars.copy_context()

        def run() -> None:
            try:
                done.set_result(context.run(call))
            except BaseException as error:  # noqa: BLE001 - raised by who waits
                done.set_exception(error)

        threading.Thread(target=run, name="raybroker-command", daemon=True).start()
        waited = 0.0
        for turn in range(1, self.retries + 2):
            try:
                return done.result(self.first_s * turn)
            except TimeoutError:
                if done.done():
                    raise
            waited += self.first_s * turn
            if turn <= self.retries:
                more = self.first_s * (turn + 1)
                output.error(f"no answer in {waited:g} s; waiting {more:g} s more ({turn} of {self.retries})")
        raise RequestTimeoutError(f"no answer in {waited:g} s; whether it has happened is not known")


patience: contextvars.ContextVar[Patience | None] = contextvars.ContextVar("raybroker_cli_patience", default=None)
"""Of the command that runs; None: as long as the broker's own limits allow."""
