"""Placement of brokers on nodes: where the configuration says, where its stores are, or where there is room.

A broker is pinned to its node: its stores are there, and it would be another broker anywhere else.
"""

from __future__ import annotations

from pathlib import Path

from raybroker.actors import runtime
from raybroker.config import Config, store_directory
from raybroker.config.brokers import LIST, BrokerPlan
from raybroker.model.errors import ConfigError


def place(plan: BrokerPlan, config: Config, cluster: str, running: dict[str, str]) -> dict[str, str]:
    """Broker → node id for those of the plan that do not run; ``running``: broker → node of those that do.

    A broker goes to the node that its entry in the list names; else to one that has its stores; else to any. Of several
    it is one with the resource "broker", if there are such, and the fewest brokers. Raises ConfigError for an unknown
    node.
    """
    nodes = runtime.nodes()
    load = {node.id: 0 for node in nodes}
    for node in running.values():
        load[node] = load.get(node, 0) + 1
    wanted = [name for name in plan.names if name not in running]
    stores = _stores(nodes, config, cluster, wanted) if len(nodes) > 1 else {}
    offered = [node for node in nodes if node.brokers > 0] or nodes
    found: dict[str, str] = {}
    for name in wanted:
        asked = plan.brokers[name]
        if asked:
            choice = [node.id for node in nodes if asked in (node.ip, node.name, node.id)]
            if not choice:
                known = ", ".join(sorted(node.ip for node in nodes))
                raise ConfigError(f"{LIST}: broker {name} is to run on {asked!r}, and the Ray cluster has {known}")
        else:
            having = stores.get(name, [])
            choice = [node.id for node in offered if node.id in having] or having or [node.id for node in offered]
        found[name] = min(choice, key=lambda node: load[node])
        load[found[name]] += 1
    return found


def _stores(nodes: list[runtime.Node], config: Config, cluster: str, brokers: list[str]) -> dict[str, list[str]]:
    """Broker → nodes that have a directory of its stores; a node that does not answer has none."""
    paths = {name: str(store_directory(config, cluster, name)) for name in brokers}
    found: dict[str, list[str]] = {}
    for node, exist in runtime.on_nodes([node.id for node in nodes], _exist, list(paths.values())).items():
        for name, there in zip(brokers, exist, strict=True):
            if there:
                found.setdefault(name, []).append(node)
    return found


def _exist(paths: list[str]) -> list[bool]:
    return [Path(path).is_dir() for path in paths]
