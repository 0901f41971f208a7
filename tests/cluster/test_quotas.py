"""A quota that is divided among host processes, and outlives them."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

import raybroker as rb
from raybroker.errors import QuotaExceededError
from tests.cluster.divided import MOST, hold_together

pytestmark = pytest.mark.cluster


def test_hosts_hold_as_much_as_a_quota_has_together_and_no_more(cluster: Any) -> None:
    with rb.connect() as connection:
        admin = connection.admin()
        admin.create_quota("small", MessagesMaximum=MOST)
        for name in ("one", "other"):
            admin.create_destination("queue", name, hosting="dedicated", quota="small")
        one, other = hold_together(connection.session(ack="client"), "MessagesMaximum=6")
        row = admin.query_quota("small")
        assert (row["messages"], row["users"]) == (MOST, ["queue one", "queue other"])
        admin.update_quota("small", MessagesMaximum=MOST + 1)
        one.send("again")
        with pytest.raises(QuotaExceededError):
            other.send("too many")


def test_a_quota_outlives_the_processes_that_hold_destinations_against_it(cluster: Any) -> None:
    with rb.connect() as connection:
        admin = connection.admin()
        admin.create_quota("tiny", MessagesMaximum=2)
        admin.create_destination("queue", "kept", hosting="dedicated", quota="tiny")
        producer = connection.session().producer("kept")
        producer.send("a"), producer.send("b")
        (host,) = {row["host"] for row in admin.list_destinations("queue") if row["name"] == "kept"}
        pids = cluster.pids()
        os.kill(pids[host.rpartition("/")[2]], signal.SIGKILL)
        os.kill(pids["broker"], signal.SIGKILL)
        with pytest.raises(QuotaExceededError, match="quota 'tiny'"):
            producer.send("too many")
        assert [row["name"] for row in admin.list_quotas()] == ["small", "tiny"]
        row = admin.query_quota("tiny")
        assert (row["messages"], row["attributes"]["MessagesMaximum"]) == (2, 2)
