"""Nodes that are drained: the consumers that are there get nothing more, and their clients are told until when.

A consumer says with its labels on which Ray node it is.  What it has not begun is asked back (core.delivery.sharing);
what its application has in hand it may settle, or keep a checkpoint of.
"""

from __future__ import annotations

from collections.abc import Mapping

from raybroker.core import command as cmd
from raybroker.engine.path.executor import Executor
from raybroker.engine.ports import Clock
from raybroker.engine.sessions.attachments import Attachment, Attachments

DRAINING = "draining"
"""The event that tells a consumer's client."""


class NodeDrains:
    """``until_ms``: node → when it is taken away, milliseconds since 1970; 0: nobody has said."""

    def __init__(self, attachments: Attachments, executor: Executor, clock: Clock) -> None:
        self.until_ms: dict[str, int] = {}
        self._attachments = attachments
        self._executor = executor
        self._now_ms = clock.now_ms

    def define(self, until_ms: Mapping[str, int]) -> None:
        """These nodes are drained, and no others."""
        if self.until_ms != until_ms:
            self.until_ms = dict(until_ms)
            for attachment in list(self._attachments.by_number.values()):
                self.look_at(attachment)

    def look_at(self, attachment: Attachment) -> None:
        """Have a consumer leave, or stay, as is true of its node."""
        consumer = attachment.state()
        if consumer is None:
            return
        drained = [self.until_ms[label] for label in consumer.asked.labels if label in self.until_ms]
        if not drained and not consumer.leaving:
            return
        attachment.peer.event(DRAINING, {"handle": attachment.handle, **self._told(drained)})
        self._executor.perform(attachment.destination, cmd.LeaveNode(attachment.number, leaving=bool(drained)))

    def _told(self, drained: list[int]) -> dict[str, object]:
        """``left_ms`` is None where there is no deadline: a client has another clock than we."""
        ends = [until_ms for until_ms in drained if until_ms]
        return {"leaving": bool(drained), "left_ms": max(min(ends) - self._now_ms(), 0) if ends else None}
