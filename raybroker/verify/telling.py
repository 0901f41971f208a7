"""The way in which a client tells the recorder what it does."""

from __future__ import annotations

from typing import Any, Final

from raybroker.actors import runtime
from raybroker.model.errors import ConnectionLostError
from raybroker.system.clock import SystemClock
from raybroker.verify.notes import Note

TELL_S: Final = 10.0
"""How long one call of the recorder may take; it is asked again."""
TELLS_MAX: Final = 12
"""How often it is asked before a client gives up."""
PAUSE_S: Final = 0.2


class RecorderLine:
    """A client's way to the recorder: it goes on when its notes are taken."""

    def __init__(self, recorder: Any, who: str) -> None:
        self.who = who
        self._recorder = recorder
        self._number = 0
        self._clock = SystemClock()

    def __call__(self, *notes: Note) -> None:
        """Have notes taken; raises ConnectionLostError when the recorder cannot be reached."""
        if not notes:
            return
        self._number += 1
        for attempt in range(TELLS_MAX):
            try:
                runtime.call_blocking(self._recorder.note, self.who, self._number, notes, timeout_s=TELL_S)
            except ConnectionLostError:
                if attempt == TELLS_MAX - 1:
                    raise
                self._clock.sleep(PAUSE_S)
            else:
                return
