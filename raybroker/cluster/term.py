"""Terms: who the master is as far as a broker knows, by the term's number, the master's name and the record's id.

A new term begins when a master hands over (+1) or a backup is restored (the next multiple of RESTORE_TERM_STEP, which
no series of hand-overs since the backup has reached).  Within one term there is one master: a hand-over is decided by
the old master alone, and durably before anybody hears of it.  So a higher term wins; two masters of one term mean that
an administrator has to decide, and they refuse each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

RESTORE_TERM_STEP: Final = 1000
FIRST_TERM: Final = 1
"""The term of a record that a configured master begins; 0 stands for no known term."""


@dataclass(frozen=True, slots=True)
class Leadership:
    """``master`` "": there is none.  ``record`` "": not known yet, the broker only has the configured name."""

    term: int = 0
    master: str = ""
    record: str = ""

    def beats(self, other: Leadership) -> bool:
        """True when ``other`` has to give way to this one."""
        return self.term > other.term

    def conflicts(self, other: Leadership) -> bool:
        """True when both are of one term and cannot both be true."""
        if self.term != other.term:
            return False
        return self.master != other.master or (bool(self.record and other.record) and self.record != other.record)


def restored_term(*known: int) -> int:
    """The term of a record that is restored, above all that are known here."""
    return (max(known) // RESTORE_TERM_STEP + 1) * RESTORE_TERM_STEP
