"""Signals to producers: those that obey flow control are told when their destination comes to be over a threshold
(*armed*), and when it is no longer; one that attaches later is told in the answer to its opening.  All are told to wait
while their host is short of memory, or about to end.

How fast a producer sends then is its own business (``client/producer/pacing/flow_rate.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from raybroker.core.destination import Destination
from raybroker.engine.sessions.attachments import Attachment, Attachments


class Producers(Protocol):
    """The producers of a destination; ``attached``: by the number of the attachment."""

    @property
    def attached(self) -> Iterable[int]: ...


class Signalled(Protocol):
    """A destination."""

    @property
    def producers(self) -> Producers: ...


class ProducerSignals:
    """The signals to producers of one host."""

    def __init__(self, attachments: Attachments, destinations: Mapping[tuple[str, str], Destination]) -> None:
        self._live = attachments.by_number
        self._destinations = destinations

    def tell(self, destination: Signalled, *, armed: bool) -> None:
        """A destination is over a threshold, or is not."""
        for attachment in self._obeying(destination):
            attachment.peer.event("armed", {"handle": attachment.handle, "armed": armed})

    def count(self, destination: Signalled) -> int:
        """Producers of a destination that hear of it."""
        return len(self._obeying(destination))

    def everyone(self) -> list[int]:
        """Return all producers of the host, by the numbers of their attachments."""
        return [number for one in self._destinations.values() for number in one.producers.attached]

    def have_wait(self, number: int, why: str) -> bool:
        """Tell a producer that its host wants it to wait, unless its destination does already; False when it is
        gone."""
        attachment = self._live.get(number)
        if attachment is None:
            return False
        if attachment.destination.admission.gate_state()[0] == "open":
            attachment.peer.gate(attachment.handle, why, 0)
        return True

    def let_go_on(self, number: int) -> None:
        """Tell a producer that its host had wait what its destination says."""
        attachment = self._live.get(number)
        if attachment is not None:
            attachment.peer.gate(attachment.handle, *attachment.destination.admission.gate_state())

    def _obeying(self, destination: Signalled) -> list[Attachment]:
        found = (self._live.get(number) for number in destination.producers.attached)
        return [attachment for attachment in found if attachment is not None and attachment.obeys]
