"""What copies promise while processes, nodes and disks fail under load: nothing confirmed is lost, nothing comes twice
without saying so, and all copies are equal in the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import raybroker as rb
from raybroker.cluster.replicas.copy_takeover import APART_MS
from raybroker.errors import BrokerError, InvalidDestinationError
from tests.cluster import rays
from tests.cluster.copied import CLUSTER, PATIENT, RECOVERED_S, CopiedRun, running_copied, stopped
from tests.cluster.load import QUEUE, until
from tests.contracts.handles import take

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
APART_S = APART_MS / 1000
FILLED_S = 120.0
GOES_ON_S = APART_S + RECOVERED_S
"""The leader may have changed just before."""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[CopiedRun]:
    with running_copied(tmp_path) as found:
        yield found


def others(run: CopiedRun, leader: str) -> list[str]:
    return [name for name in run.names if name != leader]


def test_processes_of_copies_and_brokers_are_killed(run: CopiedRun) -> None:
    for whom in ("copy that leads", "copy that follows", "broker that leads", "broker that follows", "both"):
        leader = run.leader()
        broker = leader if whom in ("copy that leads", "broker that leads", "both") else others(run, leader)[0]
        pids = run.cluster.pids(broker)
        killed = {"copy": [run.copy_process(broker)], "broker": [pids["broker"]]}.get(whom.split()[0], pids.values())
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        print(f"{whom}: all go on after {run.goes_on(GOES_ON_S):.1f} s", flush=True)
        until(lambda broker=broker, killed=killed: run.row(broker).get("pid", 0) not in (0, *killed), "it is back")
        run.settle()
    run.finish()


@pytest.mark.parametrize("part", ["leader", "follower"])
def test_a_node_stands_still_for_a_while(run: CopiedRun, part: str) -> None:
    for seconds in (1.0, 5.0, 20.0):
        leader = run.leader()
        node = run.node(leader if part == "leader" else others(run, leader)[0])
        began = time.monotonic()
        with stopped(run.nodes.processes(node)):
            if seconds >= 5.0:
                print(f"{part} for {seconds} s: all go on after {run.goes_on(GOES_ON_S):.1f} s", flush=True)
            time.sleep(max(0.0, began + seconds - time.monotonic()))
        print(f"{part} for {seconds} s: all go on {run.goes_on(GOES_ON_S):.1f} s after it", flush=True)
        run.settle()
        if run.leader() != leader:
            time.sleep(APART_S)
    run.finish()


def test_a_leader_whose_node_stood_still_until_it_was_given_up_adds_nothing(run: CopiedRun) -> None:
    """After a minute and a half it has a successor, and Ray has another opinion of its node."""
    broker = run.leader()
    node = run.node(broker)
    processes = run.nodes.processes(node)
    began = time.monotonic()
    with stopped(processes):
        print(f"all go on after {run.goes_on(GOES_ON_S):.1f} s", flush=True)
        time.sleep(max(0.0, began + 90.0 - time.monotonic()))
    print(f"all go on {run.goes_on():.1f} s after it", flush=True)
    with suppress(StopIteration):
        run.nodes.kill(node)
    run.nodes.add()
    run.bring_back()
    run.settle()
    run.finish()


def test_two_of_three_nodes_are_lost_and_come_back(run: CopiedRun) -> None:
    leader = run.leader()
    for broker in (leader, others(run, leader)[0]):
        run.nodes.kill(run.node(broker))
    time.sleep(10.0)
    before = run.confirmed()
    time.sleep(5.0)
    assert run.confirmed() == before, "one copy of three has confirmed sends"
    for _ in range(2):
        run.nodes.add()
    run.bring_back()
    print(f"all go on {run.goes_on(GOES_ON_S):.1f} s after the brokers are back", flush=True)
    run.settle()
    run.finish()


def test_a_majority_of_disks_is_lost_for_good(run: CopiedRun) -> None:
    """What the manual says of it: `check cls` names the queue, which can be destroyed, and made again."""
    leader = run.leader()
    lost = [leader, others(run, leader)[0]]
    (left,) = set(run.names) - set(lost)
    run.lose(*lost)
    run.bring_back()
    before = run.confirmed()
    time.sleep(10.0)
    assert run.confirmed() == before, "one disk of three has confirmed sends"
    run.load.abandon()
    with rb.connect(cluster=CLUSTER, broker=left, **PATIENT) as connection:
        admin = connection.admin()
        (grade,) = {row["grade"] for row in admin.check_cluster() if row["check"] == "copies"}
        assert grade == "critical"

        def destroyed() -> bool:
            """It may be carried out later: without a majority its leader does not answer."""
            try:
                admin.destroy_destination("queue", QUEUE)
            except InvalidDestinationError:
                return True
            except BrokerError:
                return False
            return True

        until(destroyed, "the queue is destroyed", RECOVERED_S)
        run.create()
        connection.session().producer(QUEUE).send_many(range(100))
        consumer = connection.session().consumer(QUEUE)
        assert [message.body for message in take(consumer, 100)] == list(range(100))


def test_brokers_are_restarted_one_after_the_other(run: CopiedRun) -> None:
    for broker in run.names:
        began = time.monotonic()
        run.cluster.stop_broker(broker)
        run.bring_back()
        print(f"{broker}: back after {time.monotonic() - began:.1f} s", flush=True)
        run.goes_on(GOES_ON_S)
        run.settle()
    run.finish()


# ---- disks -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disks(tmp_path: Path) -> Iterator[Path]:
    """Each broker's store is a file system of its own."""
    mounted = [tmp_path / "store" / CLUSTER / name for name in ("b1", "b2", "b3")]
    try:
        for folder in mounted:
            folder.mkdir(parents=True)
            command = ["mount", "-t", "tmpfs", "-o", "size=64m,mode=0700", "tmpfs", str(folder)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                assert not (os.environ.get("CI") and os.geteuid() == 0), f"in CI root can mount: {done.stderr}"
                pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr}")
        yield tmp_path
    finally:
        for folder in mounted:
            subprocess.run(["umount", "-l", str(folder)], check=False, capture_output=True)


def take_what_is_left(path: Path) -> None:
    """As other programs do."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


def test_a_copy_whose_disk_is_full_stands_still_and_is_named(small_disks: Path) -> None:
    with running_copied(small_disks) as run, rb.connect(cluster=CLUSTER, **PATIENT) as connection:
        admin = connection.admin()
        broker = others(run, run.leader())[0]
        rest = run.folder(broker) / "rest"
        take_what_is_left(rest)
        admin.pause_destination("queue", QUEUE, "consumers")  # What nobody takes needs room.
        until(lambda: "no room" in run.row(broker).get("trouble", ""), "the disk is full", FILLED_S)
        print(f"all go on after {run.goes_on(GOES_ON_S):.1f} s", flush=True)

        def named() -> bool:
            told = [row["text"] for row in admin.check_cluster() if row["check"] == "copies"]
            return any("no room" in text and f"broker {broker}" in text for text in told)

        until(named, "check cls says it")
        admin.resume_destination("queue", QUEUE, "consumers")
        rest.unlink()
        run.settle()
        run.finish()


def test_a_leader_whose_disk_is_full_refuses_sends_until_there_is_room(small_disks: Path) -> None:
    with running_copied(small_disks) as run, rb.connect(cluster=CLUSTER, **PATIENT) as connection:
        admin = connection.admin()
        rest = run.folder(run.leader()) / "rest"
        take_what_is_left(rest)
        admin.pause_destination("queue", QUEUE, "consumers")
        until(lambda: all(refused(path) for _, path in run.load.workers["producer"]), "sends are refused", FILLED_S)
        admin.resume_destination("queue", QUEUE, "consumers")
        rest.unlink()
        print(f"all go on {run.goes_on(GOES_ON_S):.1f} s after there is room", flush=True)
        run.settle()
        run.finish()


def refused(notes: Path) -> bool:
    """A producer was told that the disk is full."""
    return "StoreFullError" in notes.read_text()


# ---- Ray -------------------------------------------------------------------------------------------------------------


def test_without_rays_control_store_all_goes_on_and_what_was_confirmed_outlives_that_ray(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.cluster.copied_without_gcs", str(tmp_path)]
    done = subprocess.run(command, cwd=rays.ROOT, capture_output=True, text=True, timeout=300, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    with running_copied(tmp_path, workers=0) as run:
        run.load.spawn("consumer")
        run.finish()


# ---- five ------------------------------------------------------------------------------------------------------------


def test_five_copies_go_on_without_two(tmp_path: Path) -> None:
    with running_copied(tmp_path, brokers=5) as run:
        leader = run.leader()
        lost = [leader, others(run, leader)[0]]
        run.lose(*lost)
        print(f"all go on {run.goes_on(GOES_ON_S):.1f} s after two of five were lost", flush=True)
        run.bring_back()
        run.settle()
        run.finish()
