"""The broker's own limits, divided among host processes."""

from __future__ import annotations

from typing import Any

import pytest

import raybroker as rb
from raybroker.errors import QuotaExceededError

pytestmark = pytest.mark.cluster
MOST = 6


def test_hosts_hold_as_much_as_the_broker_may_together_and_no_more(cluster: Any) -> None:
    with rb.connect() as connection:
        admin = connection.admin()
        for name in ("one", "other"):
            admin.create_destination("queue", name, hosting="dedicated")
        admin.update_broker({"imq.system.max_count": MOST})
        session = connection.session(ack="client")
        one, other = session.producer("one"), session.producer("other")
        for number in range(MOST // 2):
            one.send(number)
            other.send(number)
        for producer in (one, other):
            with pytest.raises(QuotaExceededError, match=r"imq\.system\.max_count=6"):
                producer.send("too many")
        for _ in range(MOST // 2):
            message = session.receive("one", timeout=10)
            assert message is not None
            message.acknowledge()
        for number in range(MOST // 2):  # What the host of the one does not use is the other's.
            other.send(number)
        with pytest.raises(QuotaExceededError):
            one.send("too many")
        held = sum(admin.query_destination("queue", name)["messages"] for name in ("one", "other"))
        assert held == MOST
        admin.update_broker({"imq.system.max_count": -1})
        one.send("again")
