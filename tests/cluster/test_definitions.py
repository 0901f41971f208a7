"""Policies and definitions in a cluster of processes: in the record, at the hosts, and after both were killed."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

import raybroker as rb
from raybroker.errors import ResourceAllocationError
from tests.cluster.test_cli import new_shell
from tests.contracts.handles import until

pytestmark = pytest.mark.cluster
WANTED: dict[str, Any] = {
    "raybroker": {"definitions": 1},
    "queues": {"orders": {"hosting": "dedicated"}, "bills": {"hosting": "shared"}},
    "policies": {"small": {"pattern": "orders>", "attributes": {"maxNumMsgs": 2}}},
}


def test_what_was_imported_outlives_the_processes_that_hold_it(cluster: Any) -> None:
    with rb.connect() as connection:
        admin = connection.admin()
        report = admin.import_definitions(WANTED)
        assert [(row["action"], row["name"], row["state"]) for row in report["steps"]] == [
            ("create", "small", "done"),
            ("create", "orders", "done"),
            ("create", "bills", "done"),
        ]
        producer = connection.session().producer("orders")
        producer.send("a"), producer.send("b")
        with pytest.raises(ResourceAllocationError, match="maxNumMsgs=2"):
            producer.send("too many")
        (host,) = {row["host"] for row in admin.list_destinations("queue") if row["name"] == "orders"}
        pids = cluster.pids()
        os.kill(pids[host.rpartition("/")[2]], signal.SIGKILL)
        os.kill(pids["broker"], signal.SIGKILL)
        with pytest.raises(ResourceAllocationError, match="maxNumMsgs=2"):
            producer.send("too many")
        assert until(lambda: [row["name"] for row in admin.list_policies()]) == ["small"]
        row = admin.query_destination("queue", "orders")
        assert (row["effective"]["maxNumMsgs"], row["policy"]) == (2, "small")
        assert until(admin.export_definitions)["policies"] == WANTED["policies"]
        assert admin.import_definitions(WANTED)["steps"] == []


@pytest.mark.long
def test_a_cluster_is_started_with_definitions() -> None:
    with new_shell() as shell:
        (shell.folder / "some.toml").write_text("[raybroker]\ndefinitions = 1\n[queues.orders]\nmaxNumMsgs = 5\n")
        assert "created queue orders: maxNumMsgs=5" in shell.output("up", "--definitions", "some.toml")
        assert "nothing to do: 1 object as the file says" in shell.output("up", "--definitions", "some.toml")
        shell.output("update", "dst", "-n", "orders", "-o", "maxNumMsgs=6")
        assert shell.run("import", "definitions", "some.toml", "--dry-run").returncode == 4
        shell.output("down")
