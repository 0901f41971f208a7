"""The plan of a cluster: its brokers, the node of each, and the master, from the cluster properties.

The list may name nodes: ``imq.cluster.brokerlist = "b1@10.0.0.1,b2@10.0.0.2,b3"``.  A broker without a node goes to one
that has none yet, and stays with the node that has its stores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from raybroker.config.config import Config
from raybroker.model.errors import ConfigError
from raybroker.model.naming.names import check_broker_name

LIST: Final = "imq.cluster.brokerlist"
MASTER: Final = "imq.cluster.masterbroker"
NO_MASTER: Final = "imq.cluster.nomasterbroker"
TABLE: Final = "imq.cluster.sharecc.persist.jdbc.url"


@dataclass(frozen=True, slots=True)
class BrokerPlan:
    """``brokers``: name → its node, "" for any; ``master``: None in no-master mode.

    ``table``: the address of the database whose table has the record, "" without one.
    """

    brokers: dict[str, str]
    master: str | None
    table: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.brokers)


def plan_of(config: Config, count: int | None = None) -> BrokerPlan:
    """The brokers of a configuration; ``count``: the number that the caller asks for, None for any.

    Without a list they are b1, b2, …  Raises ConfigError for properties that contradict each other, naming both places.
    """
    listed = _listed(config[LIST])
    if listed and count is not None and count != len(listed):
        raise ConfigError(
            f"{count} brokers are asked for, and {LIST} ({config.origin(LIST)}) names {len(listed)}:"
            f" {', '.join(listed)}; change one of the two"
        )
    most: int = config["raybroker.cluster.brokers_max"]
    wanted = max(len(listed), count or 1)
    if wanted > most:
        raise ConfigError(f"{wanted} brokers; at most {most} are allowed by raybroker.cluster.brokers_max")
    brokers = listed or {f"b{number}": "" for number in range(1, (count or 1) + 1)}
    return BrokerPlan(brokers, _master(config, brokers), _table(config))


def _master(config: Config, brokers: dict[str, str]) -> str | None:
    master: str = config[MASTER].strip()
    if config[NO_MASTER]:
        if master:
            raise ConfigError(
                f"{MASTER} = {master!r} ({config.origin(MASTER)}) and {NO_MASTER} = true ({config.origin(NO_MASTER)})"
                " contradict each other; leave one out"
            )
        return None
    if not master:
        return next(iter(brokers))
    if master not in brokers:
        raise ConfigError(
            f"{MASTER} = {master!r} ({config.origin(MASTER)}) is none of the brokers {', '.join(brokers)}"
        )
    return master


def _table(config: Config) -> str:
    url: str = config[TABLE].strip()
    if url and not config[NO_MASTER]:
        raise ConfigError(
            f"{TABLE} is set ({config.origin(TABLE)}) and {NO_MASTER} is false: the record is with a master or in a"
            f" table; set {NO_MASTER} = true, or leave {TABLE} out"
        )
    return url


def _listed(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, node = item.partition("@")
        try:
            check_broker_name(name.strip())
        except ConfigError as error:
            raise ConfigError(f"{LIST}: {error}") from None
        if name.strip() in found:
            raise ConfigError(f"{LIST} names broker {name.strip()!r} twice")
        found[name.strip()] = node.strip()
    return found
