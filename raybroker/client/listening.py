"""The thread of a blocking session with listeners (R-06), and what ends each of their calls."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from raybroker.client.batching import Batching
from raybroker.model.errors import BrokerError

if TYPE_CHECKING:
    from raybroker.client.blocking import Session
    from raybroker.client.handles import Consumer


class Listening:
    """Calls listeners serially, one message at a time, for all consumers of a session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._core = session._core
        self._batching: Batching | None = None
        if self._core.work is not None:
            self._batching = Batching(self._core.connection.attributes["maxMessagesInTransaction"])
        self._wake = threading.Event()
        self._core.wake_listeners = self._wake.set
        self._thread = threading.Thread(target=self._serve, name="raybroker-session", daemon=True)
        self._thread.start()

    def work(self) -> None:
        """Something may have come."""
        self._wake.set()

    def stop(self) -> None:
        """End after the call that runs; the session says that it is closed."""
        self._wake.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _serve(self) -> None:
        session = self._session
        while not session.closed:
            self._wake.wait()
            self._wake.clear()
            busy = True
            while busy and not session.closed:
                busy = False
                for consumer in list(session._consumers):
                    busy = self._serve_one(consumer) or busy
            self._commit()

    def _serve_one(self, consumer: Consumer) -> bool:
        """Hand one message to the listener; False when there is none."""
        core = consumer._core
        listener = core.listener
        if listener is None or core.closed:
            return False
        try:
            message = core.take_one()
        except BrokerError:
            return False
        if message is None:
            core.wait(0)
            return False
        self._core.in_hand = message
        try:
            listener(message)
        except Exception:  # noqa: BLE001 - a listener's failure is its message's failure
            self._failed(in_call=True)
        else:
            self._returned()
        finally:
            self._core.in_hand = None
        return True

    def _returned(self) -> None:
        if self._batching is None:
            self._session._come_back()
        elif self._batching.called():
            self._commit()

    def _commit(self) -> None:
        """The batch is full, or nothing more is at hand (W-42)."""
        if self._batching is None or not self._batching.calls:
            return
        try:
            self._session.commit()
        except BrokerError:
            self._batching.failed(in_call=False)
        else:
            self._batching.committed()

    def _failed(self, *, in_call: bool) -> None:
        with contextlib.suppress(BrokerError):
            if self._batching is None:
                self._session.recover()
            else:
                self._batching.failed(in_call=in_call)
                self._session.rollback()
