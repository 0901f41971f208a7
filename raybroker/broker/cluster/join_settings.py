"""Settings of the member machine with which a broker joins its cluster, out of the configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from raybroker.broker.cluster.shared_table import SharedTable
from raybroker.cluster.compatibility import EQUAL, properties
from raybroker.cluster.member import MemberSettings
from raybroker.config.brokers import BrokerPlan
from raybroker.model.settings.settings import ConfigView


def settings_of(config: ConfigView, cluster: str, plan: BrokerPlan, table: SharedTable | None = None) -> MemberSettings:
    """What the machine needs of the configuration; ``table``: what brokers share instead of having a master."""
    return MemberSettings(
        cluster=config["imq.cluster.clusterid"] or cluster,
        brokers=plan.names,
        master=plan.master or "",
        table=table.shown if table is not None else "",
        table_poll_ms=config["raybroker.cluster.table_poll_ms"],
        dynamic_change_master=config["imq.cluster.dynamicChangeMasterBrokerEnabled"],
        properties=_Shown(config),
        heartbeat_ms=config["raybroker.cluster.heartbeat_ms"],
        suspect_ms=config["raybroker.cluster.suspect_ms"],
        down_ms=config["raybroker.cluster.down_ms"],
        retry_ms=config["raybroker.cluster.master_retry_ms"],
    )


class _Shown(Mapping[str, object]):
    """What other brokers compare, as the configuration has it now."""

    def __init__(self, config: ConfigView) -> None:
        self._config = config

    def _now(self) -> dict[str, object]:
        return properties({name: self._config[name] for name in EQUAL})

    def __getitem__(self, name: str) -> object:
        return self._now()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._now())

    def __len__(self) -> int:
        return len(self._now())
