"""The broker's own limits, divided among host processes."""

from __future__ import annotations

from typing import Any

import pytest

import raybroker as rb
from tests.cluster.divided import MOST, hold_together

pytestmark = pytest.mark.cluster


def test_hosts_hold_as_much_as_the_broker_may_together_and_no_more(cluster: Any) -> None:
    with rb.connect() as connection:
        admin = connection.admin()
        for name in ("one", "other"):
            admin.create_destination("queue", name, hosting="dedicated")
        admin.update_broker({"imq.system.max_count": MOST})
        one, _ = hold_together(connection.session(ack="client"), r"imq\.system\.max_count=6")
        held = sum(admin.query_destination("queue", name)["messages"] for name in ("one", "other"))
        assert held == MOST
        admin.update_broker({"imq.system.max_count": -1})
        one.send("again")
