"""A Ray of several nodes on this machine, one of them a head without brokers; its nodes can be killed and replaced.

The driver, which is the process that asks for it, is on the head.  Ray's own verdict about a node takes 12 to 65 s, as
it does where nobody has changed Ray's settings.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.cluster import rays

OBJECT_STORE_BYTES = 80_000_000


class Nodes:
    """``address``: of the Ray; ``cpus``: of each node but the head, for tasks."""

    def __init__(self, count: int, cpus: int = 0) -> None:
        from ray.cluster_utils import Cluster

        common = {"num_cpus": 0, "object_store_memory": OBJECT_STORE_BYTES, "include_dashboard": False}
        self._common = {**common, "num_cpus": cpus}
        self._cluster = Cluster(initialize_head=True, head_node_args=common)
        self._nodes: list[Any] = []
        for _ in range(count):
            self.add(wait=False)
        self._cluster.wait_for_nodes()
        self.address: str = self._cluster.address

    def add(self, *, wait: bool = True) -> str:
        """Another node for a broker; its id."""
        node = self._cluster.add_node(resources={"broker": 1}, wait=wait, **self._common)
        self._nodes.append(node)
        return str(node.node_id)

    @property
    def ids(self) -> list[str]:
        """The nodes but the head."""
        return [str(node.node_id) for node in self._nodes]

    def raylet(self, node: str) -> int:
        """The process id of a node's raylet."""
        processes = self._find(node).all_processes["raylet"]
        return int(processes[0].process.pid)

    def processes(self, node: str) -> list[int]:
        """The raylet of a node and all below it: agents, brokers and hosts."""
        top = self.raylet(node)
        return [top, *_below(top)]

    def kill(self, node: str) -> None:
        """End all that runs on a node at once, as a machine that loses its power."""
        below = _below(self.raylet(node))
        self._remove(node)
        for pid in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def kill_raylet(self, node: str) -> None:
        """End the raylet alone: what it started notices that by itself, after a while."""
        self._remove(node)

    def kill_gcs(self) -> None:
        """End Ray's global control store, which has no memory here: nodes that miss it end by themselves."""
        (process,) = self._cluster.head_node.all_processes["gcs_server"]
        process.process.kill()

    def _remove(self, node: str) -> None:
        found = self._find(node)
        self._nodes.remove(found)
        self._cluster.remove_node(found, allow_graceful=False)

    def _find(self, node: str) -> Any:
        return next(found for found in self._nodes if found.node_id == node)

    def close(self) -> None:
        self._nodes.clear()
        self._cluster.shutdown()


def _below(top: int) -> list[int]:
    """All descendants of a process."""
    found = []
    for task in Path(f"/proc/{top}/task").iterdir():
        with contextlib.suppress(OSError):
            for child in map(int, task.joinpath("children").read_text().split()):
                found += [child, *_below(child)]
    return found


@contextlib.contextmanager
def running_nodes(count: int, cpus: int = 0) -> Iterator[Nodes]:
    """A Ray of a head and ``count`` nodes with so many CPUs while the block runs; this process is its driver."""
    made = rays.folder()
    import ray

    start: Callable[..., Any] = getattr(ray, "init_of_ray", ray.init)
    nodes = Nodes(count, cpus)
    try:
        start(address=nodes.address, namespace="tests", log_to_driver=False, logging_level=logging.ERROR)
        yield nodes
    finally:
        ray.shutdown()
        nodes.close()
        rays.end_all(made)
