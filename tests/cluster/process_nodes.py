"""Nodes that Ray's autoscaler makes and ends: each is what ``ray start --block`` runs, as processes of this machine.

Ray's monitor imports this, because the head's configuration names it as the provider of its nodes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import Any

from ray.autoscaler.node_provider import NodeProvider
from ray.autoscaler.tags import (
    NODE_KIND_HEAD,
    NODE_KIND_WORKER,
    STATUS_UP_TO_DATE,
    TAG_RAY_NODE_KIND,
    TAG_RAY_NODE_NAME,
    TAG_RAY_NODE_STATUS,
    TAG_RAY_USER_NODE_TYPE,
)

HEAD = "head"
OBJECT_STORE_BYTES = 80_000_000


def start_command(*arguments: str) -> list[str]:
    """``ray start``, which ends with its nodes' processes when it is told to end."""
    program = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"]
    return [*program, f"--object-store-memory={OBJECT_STORE_BYTES}", *arguments]


class ProcessNodes(NodeProvider):  # type: ignore[misc]  # Ray has no types
    """See the module.  ``address`` of the configuration: where Ray's control store is."""

    def __init__(self, provider_config: dict[str, Any], cluster_name: str) -> None:
        super().__init__(provider_config, cluster_name)
        self._lock = threading.RLock()
        self._made = 0
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._tags = {HEAD: _tags(HEAD, NODE_KIND_HEAD, HEAD)}

    def non_terminated_nodes(self, tag_filters: dict[str, str]) -> list[str]:
        with self._lock:
            return [node for node, tags in self._tags.items() if tag_filters.items() <= tags.items()]

    def is_running(self, node_id: str) -> bool:
        return node_id in self._tags

    def is_terminated(self, node_id: str) -> bool:
        return node_id not in self._tags

    def node_tags(self, node_id: str) -> dict[str, str]:
        return self._tags[node_id]

    def internal_ip(self, node_id: str) -> str:
        return node_id

    def external_ip(self, node_id: str) -> str:
        return node_id

    def set_node_tags(self, node_id: str, tags: dict[str, str]) -> None:
        self._tags[node_id].update(tags)

    def create_node(self, node_config: dict[str, Any], tags: dict[str, str], count: int) -> None:
        self.create_node_with_resources_and_labels(node_config, tags, count, {"CPU": 1}, {})

    def create_node_with_resources_and_labels(
        self, node_config: Any, tags: dict[str, str], count: int, resources: dict[str, float], labels: Any
    ) -> None:
        for _ in range(count):
            with self._lock:
                self._made += 1
                node, kind = f"node{self._made}", tags[TAG_RAY_USER_NODE_TYPE]
                command = start_command(
                    f"--address={self.provider_config['address']}", f"--num-cpus={resources['CPU']}"
                )
                environment = {**os.environ, "RAY_CLOUD_INSTANCE_ID": node, "RAY_NODE_TYPE_NAME": kind}
                self._processes[node] = subprocess.Popen(
                    command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
                self._tags[node] = {**tags, **_tags(node, NODE_KIND_WORKER, kind)}

    def terminate_node(self, node_id: str) -> None:
        with self._lock:
            del self._tags[node_id]
            self._processes.pop(node_id).send_signal(signal.SIGTERM)

    @staticmethod
    def bootstrap_config(cluster_config: dict[str, Any]) -> dict[str, Any]:
        return cluster_config


def _tags(node: str, kind: str, type: str) -> dict[str, str]:
    return {
        TAG_RAY_NODE_KIND: kind,
        TAG_RAY_NODE_NAME: node,
        TAG_RAY_NODE_STATUS: STATUS_UP_TO_DATE,
        TAG_RAY_USER_NODE_TYPE: type,
    }
