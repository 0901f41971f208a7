"""A wait for one message on the IO loop itself, as gateways do.

No task is made, and no future that other threads could wait for: whoever waits is called as soon as the confirmation is
read.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError

from raybroker.client.io.io_thread import log_failure

Told = Callable[[str, BaseException | None], object]
"""Gets the id of a message that is stored, or why it is not."""


class HandleWaiter(Future[str]):
    """Waits for one message on the IO loop: ``told`` is called once, there and then. It cannot be waited for."""

    def __init__(self, told: Told) -> None:
        self._told: Told | None = told

    def done(self) -> bool:
        return self._told is None

    def cancelled(self) -> bool:
        return False

    def cancel(self) -> bool:
        return False

    def set_result(self, result: str) -> None:
        self._tell(result, None)

    def set_exception(self, exception: BaseException | None) -> None:
        self._tell("", exception)

    def _tell(self, result: str, error: BaseException | None) -> None:
        told, self._told = self._told, None
        if told is None:
            raise InvalidStateError
        try:
            told(result, error)
        except Exception as fault:  # noqa: BLE001 - the others are told all the same
            log_failure("a confirmation could not be passed on", fault)
