"""A pool that asks for nodes, and Ray's own autoscaler, which makes them and ends them when nobody needs them."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from tests.cluster import rays
from tests.cluster.load import until
from tests.cluster.process_nodes import HEAD, start_command

pytestmark = [pytest.mark.timeout(400), pytest.mark.long]
CLUSTER = "scaled"
NODES_MAX = 2
JOBS = 30
WAIT_S = 120.0
COMMANDS = (
    "initialization_commands",
    "setup_commands",
    "head_setup_commands",
    "worker_setup_commands",
    "head_start_ray_commands",
    "worker_start_ray_commands",
    "cluster_synced_files",
    "rsync_exclude",
    "rsync_filter",
)
"""What Ray's monitor wants a configuration to have, empty or not."""


def configuration(address: str) -> dict[str, Any]:
    worker = {"resources": {"CPU": 1}, "node_config": {}, "min_workers": 0, "max_workers": NODES_MAX}
    return {
        "cluster_name": CLUSTER,
        "max_workers": NODES_MAX,
        "idle_timeout_minutes": 0.1,
        "provider": {
            "type": "external",
            "module": "tests.cluster.process_nodes.ProcessNodes",
            "address": address,
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
            "foreground_node_launch": True,
        },
        **{key: [] for key in COMMANDS},
        "auth": {},
        "docker": {},
        "file_mounts": {},
        "file_mounts_sync_continuously": False,
        "upscaling_speed": 1.0,
        "head_node_type": HEAD,
        "available_node_types": {HEAD: {"resources": {}, "node_config": {}, "max_workers": 0}, "worker": worker},
    }


@contextmanager
def autoscaled_ray() -> Iterator[None]:
    """A Ray of a head without CPUs, whose autoscaler makes nodes of one CPU."""
    made = rays.folder()
    import ray

    with socket.socket() as free:
        free.bind(("0.0.0.0", 0))
        port = free.getsockname()[1]
    address = f"{ray.util.get_node_ip_address()}:{port}"
    file = made / "autoscaler.json"
    file.write_text(json.dumps(configuration(address)))
    arguments = [f"--autoscaling-config={file}", f"--port={port}", "--num-cpus=0", "--include-dashboard=false"]
    environment = {
        **os.environ,
        "RAY_enable_autoscaler_v2": "1",
        "RAY_CLOUD_INSTANCE_ID": HEAD,
        "RAY_NODE_TYPE_NAME": HEAD,
        "AUTOSCALER_UPDATE_INTERVAL_S": "1",
    }
    command = start_command("--head", f"--temp-dir={made / 'ray'}", *arguments)
    head = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: _listens(port), "the control store listens", WAIT_S)
        start: Callable[..., Any] = getattr(ray, "init_of_ray", ray.init)
        start(address=address, namespace="tests", log_to_driver=False, logging_level=logging.ERROR)
        yield
    finally:
        ray.shutdown()
        head.terminate()
        head.wait(60)
        rays.end_all(made)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def nodes() -> int:
    """How many nodes there are that can run instances."""
    import ray

    return sum(node["Alive"] and "CPU" in node["Resources"] for node in ray.nodes())


def test_nodes_come_for_a_pool_and_go_when_it_needs_none(tmp_path: Path) -> None:
    notes = tmp_path / "handled"

    @rb.listener(queue="jobs", prefetch=1)
    def work(message: rb.Message) -> None:
        time.sleep(0.5)
        with open(notes, "a") as file:
            file.write(f"{message.body}\n")

    def handled() -> set[int]:
        return set(map(int, notes.read_text().split())) if notes.exists() else set()

    with autoscaled_ray():
        started = rb.start(CLUSTER, brokers=1, config=rays.small_store(tmp_path / "store"))
        with rb.connect(cluster=CLUSTER) as connection:
            connection.admin().create_destination("queue", "jobs")
            assert nodes() == 0
            options: dict[str, Any] = {"actor_options": {"num_cpus": 1}, "max": NODES_MAX, "promise_s": 5}
            with rb.deploy(work, cluster=CLUSTER, request_nodes=True, **options):
                connection.session().producer("jobs").send_many(range(JOBS))
                until(lambda: nodes() == NODES_MAX, "there is a node for each instance", WAIT_S)
                until(lambda: handled() == set(range(JOBS)), "all is done", WAIT_S)
                until(lambda: nodes() == 0, "nodes that nobody needs go", WAIT_S)
        started.stop()
