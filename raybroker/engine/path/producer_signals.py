"""Signals to producers: those that obey flow control are told when their destination comes to be over a threshold
(*armed*), and when it is no longer; one that attaches later is told in the answer to its opening.

How fast a producer sends then is its own business (``client/producer/pacing/flow_rate.py``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

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

    def __init__(self, attachments: Attachments) -> None:
        self._live = attachments.by_number

    def tell(self, destination: Signalled, *, armed: bool) -> None:
        """A destination is over a threshold, or is not."""
        for attachment in self._obeying(destination):
            attachment.peer.event("armed", {"handle": attachment.handle, "armed": armed})

    def count(self, destination: Signalled) -> int:
        """Producers of a destination that hear of it."""
        return len(self._obeying(destination))

    def _obeying(self, destination: Signalled) -> list[Attachment]:
        found = (self._live.get(number) for number in destination.producers.attached)
        return [attachment for attachment in found if attachment is not None and attachment.obeys]
