"""What sharing costs consumers in full work: wake-ups, each of which takes the host's time."""

from __future__ import annotations

import pytest

from raybroker.core.delivery.sharing import SHARED_AFTER_MS
from raybroker.core.outcome import Deliver, Outcome, Recall
from tests.unit.core.driven_destination import NOW, DrivenDestination, of

BLOCKS, BLOCK = 1_000, 8


@pytest.mark.parametrize("selector", [None, "n > 1"])
def test_consumers_in_full_work_are_woken_only_when_something_can_be_due(selector: str | None) -> None:
    """Each is idle again and again, for a few milliseconds; with a selector one is idle all the time, and nobody has
    anything for it."""
    destination, wake_at, ticks = DrivenDestination(), None, 0
    producer = destination.producer()
    for wanted in (None, None, selector):
        destination.consumer(100, "prefetch", shares=True, selector=wanted)

    def heard(out: Outcome) -> Outcome:
        nonlocal wake_at
        wake_at = min((at for at in (wake_at, out.wake_at) if at is not None), default=None)
        assert not of(out, Recall), "nobody is idle for long while another one holds many"
        return out

    for _ in range(BLOCKS):
        destination.now_ms += 1
        if wake_at is not None and wake_at <= destination.now_ms:
            wake_at, ticks = None, ticks + 1
            heard(destination.tick())
        for item in of(heard(destination.send(producer, [1] * BLOCK, properties=[{"n": 0}] * BLOCK)), Deliver):
            destination.now_ms += 1
            heard(destination.ack(item.attachment, item.tag, item.tag + BLOCK - 1))
    assert 0 < ticks <= 2 * (destination.now_ms - NOW) // SHARED_AFTER_MS
