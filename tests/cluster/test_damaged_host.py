"""A host whose store is damaged: the broker starts without it, says why, and has it back once its files are mended."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import raybroker as rb
from raybroker.errors import ConnectionLostError
from raybroker.store.journal.format import BATCH_MAGIC
from tests.cluster.rays import small_store
from tests.contracts.handles import WAIT_S, until

LATE_S = 60
DEDICATED = {"hosting": "dedicated"}


def directory_of(stores: Path, host: str) -> Path:
    (found,) = (path.parent for path in stores.rglob("owner") if path.read_text() == f"one/{host}\n")
    return found


def damage(directory: Path) -> None:
    """The heads of all batches rot."""
    for segment in directory.glob("segment-*"):
        data = segment.read_bytes()
        segment.write_bytes(data.replace(BATCH_MAGIC, b"RBbatch!"))


def command(ray: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "raybroker", *arguments, "--cluster", "one"],
        capture_output=True,
        text=True,
        env={**os.environ, "RAY_ADDRESS": ray},
        timeout=LATE_S,
        check=False,
    )


def test_a_broker_starts_without_a_host_whose_store_is_damaged(own_ray: str, tmp_path: Path) -> None:
    config = small_store(tmp_path / "stores")
    with rb.start("one", config=config), rb.connect(cluster="one") as connection:
        admin = connection.admin()
        for name in ("there", "here", "gone"):
            admin.create_destination("queue", name, **DEDICATED)
            connection.session().producer(name).send(f"it waits {name}")
        where = {row["name"]: row["host"] for row in admin.list_destinations()}
    assert where["there"] != where["here"]
    backups = {}
    for name in ("there", "gone"):
        directory = directory_of(tmp_path, where[name])
        backups[name] = shutil.copytree(directory, tmp_path / f"backup-{name}"), directory
        damage(directory)
    with rb.start("one", config=config) as cluster, rb.connect(cluster="one") as connection:
        admin = connection.admin()
        message = connection.session().receive("here", timeout=WAIT_S)
        assert message is not None
        assert message.body == "it waits here"
        assert any(f"host {where['there']} does not start: " in text for text in cluster.hosts_away())
        rows = admin.list_destinations()
        (shown,) = [row for row in rows if row["name"] == "there"]
        assert shown["state"] == "UNKNOWN"
        assert "damaged" in shown["error"]
        assert where["there"] in rows.missing
        (told,) = [row for row in admin.check_broker() if row["of"] == where["there"]]
        assert (told["grade"], "damaged" in told["text"]) == ("critical", True)
        listed = command(own_ray, "list", "dst")
        assert (listed.returncode, "does not start: " in listed.stderr) == (3, True)
        assert "UNKNOWN" in listed.stdout
        assert command(own_ray, "check", "bkr").returncode == 2
        with pytest.raises(ConnectionLostError, match="damaged"):
            admin.query_destination("queue", "there")
        with pytest.raises(ConnectionLostError, match="damaged"):
            admin.create_destination("queue", "another")
        admin.update_destination("queue", "here", maxNumMsgs=7)
        assert admin.query_destination("queue", "here")["attributes"]["maxNumMsgs"] == 7
        admin.update_destination("queue", "there", maxNumMsgs=7)
        admin.destroy_destination("queue", "gone")
        for backup, directory in backups.values():
            shutil.copytree(backup, directory, dirs_exist_ok=True)
        until(lambda: all(row["grade"] == "ok" for row in admin.check_broker()), timeout_s=LATE_S)
        message = connection.session().receive("there", timeout=LATE_S)
        assert message is not None
        assert message.body == "it waits there"
        until(lambda: {row["name"] for row in admin.list_destinations()} == {"mq.sys.dmq", "here", "there"})
        until(lambda: admin.query_destination("queue", "there")["attributes"]["maxNumMsgs"] == 7)
        admin.create_destination("queue", "another")
        assert cluster.hosts_away() == []


def rot(directory: Path, text: bytes) -> None:
    """One bit of the head of the batch with the text."""
    (segment,) = (path for path in directory.glob("segment-*") if text in path.read_bytes())
    data = bytearray(segment.read_bytes())
    data[data.rindex(BATCH_MAGIC, 0, data.index(text)) + 60] ^= 1
    segment.write_bytes(data)


def test_salvage_brings_a_host_back_while_its_broker_runs(own_ray: str, tmp_path: Path) -> None:
    config = small_store(tmp_path / "stores")
    with rb.start("one", config=config), rb.connect(cluster="one") as connection:
        connection.admin().create_destination("queue", "there", **DEDICATED)
        for number in range(5):
            connection.session().producer("there").send(f"<it waits {number}>")
        (where,) = {row["host"] for row in connection.admin().list_destinations() if row["name"] == "there"}
    directory = directory_of(tmp_path, where)
    rot(directory, b"<it waits 2>")
    with rb.start("one", config=config) as cluster, rb.connect(cluster="one") as connection:
        admin = connection.admin()
        (away,) = cluster.hosts_away()
        assert f"raybroker salvage {directory}" in away
        (told,) = [row for row in admin.check_broker() if row["of"] == where]
        assert f"raybroker salvage {directory}" in told["text"]
        done = subprocess.run(
            [sys.executable, "-m", "raybroker", "salvage", str(directory), "-f"],
            capture_output=True,
            text=True,
            timeout=LATE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        session = connection.session()
        bodies = [message.body for _ in range(4) if (message := session.receive("there", timeout=LATE_S)) is not None]
        assert bodies == [f"<it waits {number}>" for number in (0, 1, 3, 4)]
        until(lambda: all(row["grade"] == "ok" for row in admin.check_broker()), timeout_s=LATE_S)
