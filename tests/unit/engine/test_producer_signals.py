"""Signals to the producers of a destination, without a host."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from raybroker.engine.path.producer_signals import ProducerSignals
from raybroker.engine.sessions.attachments import Attachments
from tests.unit.engine.rig import RecordingPeer


def test_producers_that_obey_are_told_and_counted() -> None:
    attachments, peer, destination = (
        Attachments(1),
        RecordingPeer(),
        SimpleNamespace(producers=SimpleNamespace(attached={})),
    )
    signals, anything = ProducerSignals(attachments, {}), Any
    for handle, obeys in ((1, True), (2, False), (3, True), (4, True)):
        attachment = attachments.attach(destination, peer, handle, None)  # type: ignore[arg-type]
        attachment.obeys = obeys
        destination.producers.attached[attachment.number] = anything
    del attachments.by_number[attachment.number], anything
    signals.tell(destination, armed=True)
    assert peer.take() == [("event", "armed", {"handle": handle, "armed": True}) for handle in (1, 3)]
    assert signals.count(destination) == 2
