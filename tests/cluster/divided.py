"""A limit that the hosts of two queues, one each, have together."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.errors import QuotaExceededError

MOST = 6
"""Messages that both queues may hold together."""


def hold_together(session: Any, told: str) -> tuple[Any, Any]:
    """Fill the queues ``one`` and ``other`` to the limit, half each, and then ``other`` with all of it; the producers.

    ``told``: pattern of the refusal. ``session``: of mode "client".
    """
    one, other = session.producer("one"), session.producer("other")
    for number in range(MOST // 2):
        one.send(number)
        other.send(number)
    for producer in (one, other):
        with pytest.raises(QuotaExceededError, match=told):
            producer.send("too many")
    for _ in range(MOST // 2):
        message = session.receive("one", timeout=10)
        assert message is not None
        message.acknowledge()
    for number in range(MOST // 2):  # What the host of the one does not use is the other's.
        other.send(number)
    with pytest.raises(QuotaExceededError):
        one.send("too many")
    return one, other
