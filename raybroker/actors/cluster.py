"""Starting and stopping a cluster of brokers (``rb.start``)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from raybroker.actors import runtime
from raybroker.actors.broker import BrokerActor, BrokerSpec
from raybroker.config import Config, store_directory
from raybroker.model.errors import BrokerError, ConfigError, NotSupportedError
from raybroker.model.names import check_cluster_name

FIRST_BROKER = "b1"


class Cluster:
    """A running cluster. ``brokers``: names; ``address``: of the Ray cluster; ``metrics_urls``: none yet."""

    def __init__(self, name: str, brokers: list[str]) -> None:
        self.name = name
        self.brokers = brokers
        self.address = runtime.address()
        self.metrics_urls: list[str] = []

    def pids(self) -> dict[str, int]:
        """Process ids of the first broker ("broker") and its hosts."""
        found: dict[str, int] = runtime.call_blocking(self._broker(self.brokers[0]).pids)
        return found

    def stop(self) -> None:
        """Stop all brokers cleanly; everything acknowledged stays in their stores."""
        for broker in self.brokers:
            actor = runtime.find_actor(runtime.broker_name(self.name, broker))
            if actor is None:
                continue
            try:
                runtime.call_blocking(actor.stop)
            finally:
                runtime.kill(actor)

    def _broker(self, broker: str) -> Any:
        actor = runtime.find_actor(runtime.broker_name(self.name, broker))
        if actor is None:
            raise BrokerError(f"broker {broker} of cluster {self.name} is not running")
        return actor

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<Cluster {self.name!r} of brokers {', '.join(self.brokers)} in Ray at {self.address}>"


def start(
    name: str = "default", brokers: int = 1, config: Config | Mapping[str, object] | str | Path | None = None
) -> Cluster:
    """Start a cluster, or find the one of that name.

    Uses the Ray this process is connected to; without one, connects to a running Ray or starts one for this process.
    config  a file (TOML), a mapping of properties, or a Config; raises ConfigError for what is unknown in it
    """
    check_cluster_name(name)
    if brokers != 1:
        raise NotSupportedError(f"brokers={brokers}: clusters of several brokers are not built yet; use 1")
    chosen = _config(config)
    runtime.start_local_ray()
    directory = store_directory(chosen, name, FIRST_BROKER)
    spec = BrokerSpec(name, FIRST_BROKER, str(directory), chosen)
    actor = runtime.create_actor(BrokerActor, spec, name=runtime.broker_name(name, FIRST_BROKER))
    runtime.call_blocking(actor.ready)
    return Cluster(name, [FIRST_BROKER])


def find(name: str = "default") -> Cluster | None:
    """The running cluster of that name in this process's Ray, or None."""
    prefix = runtime.broker_name(name, "")
    brokers = [actor.removeprefix(prefix) for actor in runtime.list_actors(prefix)]
    return Cluster(name, brokers) if brokers else None


def _config(config: Config | Mapping[str, object] | str | Path | None) -> Config:
    if isinstance(config, Config):
        return config
    if config is None:
        return Config.load()
    if isinstance(config, str | Path):
        return Config.load(cluster_file=config)
    if isinstance(config, Mapping):
        return Config.load().with_values(config, origin="rb.start")
    raise ConfigError(f"config is a {type(config).__name__}; it is a file name, a mapping or a Config")
