"""Demand of nodes: Ray's autoscaler is told what scaled pools are about to need.

Ray has one such request for the whole cluster, and the last one counts.  So each pool notes its own where all can see
it, and whoever changes his asks for the sum of all that were noted lately; a pool that has ended without a word is
forgotten after ``KEPT_S``.  A program that calls ``request_resources`` itself and pools that do overrule each other.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from raybroker.actors import runtime
from raybroker.model.errors import ConfigError
from raybroker.system.clock import SystemClock

RENEW_S: Final = 20.0
"""How often a pool says again what it needs."""
KEPT_S: Final = 90.0
"""How long that counts."""
BUNDLES_MAX: Final = 1000
"""Instances that are asked for, of all pools together."""

Bundle = dict[str, float]
log = logging.getLogger("raybroker.listener")


def bundle_of(actor_options: Mapping[str, Any]) -> Bundle:
    """What one instance takes of a node; raises ConfigError for one that takes nothing."""
    named = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
    found = {name: float(actor_options[option]) for name, option in named.items() if actor_options.get(option)}
    found |= {name: float(amount) for name, amount in (actor_options.get("resources") or {}).items() if amount}
    if not found:
        raise ConfigError(
            "request_nodes=True needs instances that take something of a node: actor_options={'num_cpus': 1}, num_gpus,"
            " memory or resources"
        )
    return found


def total(noted: Mapping[str, Any], now_s: float) -> list[Bundle]:
    """What all pools need together. ``noted``: pool → its bundle, how many of those, and when it said so."""
    found: list[Bundle] = []
    for _, row in sorted(noted.items()):
        if now_s - row["at_s"] < KEPT_S:
            found += [row["bundle"]] * row["instances"]
    return found[:BUNDLES_MAX]


class NodeDemand:
    """The demand of one pool, ``key``; ``request`` tells Ray's autoscaler what there has to be room for."""

    def __init__(
        self, key: str, actor_options: Mapping[str, Any], request: Callable[[list[Bundle]], None] | None = None
    ) -> None:
        self._key = runtime.demand_name(key)
        self._bundle = bundle_of(actor_options)
        self._request = request or runtime.request_bundles
        self._told = 0
        self._at_s = 0.0

    def need(self, instances: int) -> None:
        """Have it known that so many instances are needed from now on; 0: none is."""
        now_s = SystemClock().now_ms() / 1000
        if instances == self._told and (not instances or now_s - self._at_s < RENEW_S):
            return
        row = {"bundle": self._bundle, "instances": instances, "at_s": now_s}
        if instances:
            runtime.remember(self._key, json.dumps(row))
        else:
            runtime.forget(self._key)
        keys = runtime.remembered_under(runtime.demand_name(""))
        noted = {key: json.loads(text) for key in keys if (text := runtime.remembered(key))}
        self._request(total(noted, now_s))
        if instances != self._told:
            log.info("Ray's autoscaler is asked for room for %d instances of %s", instances, self._bundle)
        self._told, self._at_s = instances, now_s
