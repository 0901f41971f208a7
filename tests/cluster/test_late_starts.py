"""A broker or a host that cannot start says why, wherever one looks, and starts as soon as it can."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import raybroker as rb
from tests.cluster.rays import small_store
from tests.contracts.handles import WAIT_S, until

LATE_S = 60


def blocked(directory: Path, name: str) -> Path:
    """A file of that name cannot be written, as on a full disk."""
    path = directory / name
    path.mkdir()
    return path


def test_a_broker_whose_record_cannot_be_opened_says_so_and_comes_back(own_ray: str, tmp_path: Path) -> None:
    with rb.start("late", 2, config=small_store(tmp_path)) as cluster:
        (directory,) = (path.parent for path in tmp_path.rglob("owner") if path.read_text() == "late/b2\n")
        with rb.connect(cluster="late", broker="b2") as there:
            there.session().producer("orders").send("it waits")
        obstacle = blocked(directory, "record.new")
        os.kill(cluster.pids("b2")["broker"], signal.SIGKILL)
        with rb.connect(cluster="late", broker="b1") as connection:
            admin = connection.admin()
            until(lambda: "record cannot be opened" in admin.list_brokers()[1]["reason"], timeout_s=LATE_S)
            (told,) = [row for row in admin.check_cluster() if row["of"] == "b2"]
            assert (told["grade"], "does not start" in told["text"]) == ("critical", True)
            assert cluster.state("b2")["state"] == "FAILED"
            assert "record cannot be opened" in cluster.troubles()["b2"]
            assert "record cannot be opened" in next(directory.rglob("log.txt")).read_text()
            obstacle.rmdir()
            until(lambda: admin.list_brokers()[1]["state"] == "UP", timeout_s=LATE_S)
        with rb.connect(cluster="late", broker="b2") as there:
            message = there.session().receive("orders", timeout=WAIT_S)
            assert message is not None
            assert message.body == "it waits"


def test_a_host_whose_store_cannot_be_opened_says_so_and_serves_when_it_can(own_ray: str, tmp_path: Path) -> None:
    with rb.start("late", config=small_store(tmp_path)) as cluster, rb.connect(cluster="late") as connection:
        connection.session().producer("orders").send("it waits")
        admin = connection.admin()
        pids = cluster.pids()
        (host,) = [name for name in pids if name != "broker"]
        (directory,) = (path.parent for path in tmp_path.rglob("owner") if path.read_text() == f"late/b1/{host}\n")
        mark = directory / "commit.mark"
        mark.rename(directory / "aside")
        os.kill(pids[host], signal.SIGKILL)
        until(lambda: any("commit.mark is missing" in row["text"] for row in admin.check_broker()), timeout_s=LATE_S)
        (directory / "aside").rename(mark)
        until(lambda: all(row["grade"] == "ok" for row in admin.check_broker()), timeout_s=LATE_S)
        message = connection.session().receive("orders", timeout=LATE_S)
        assert message is not None
        assert message.body == "it waits"
