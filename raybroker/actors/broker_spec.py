"""The specification of a broker: everything with which it, and its hosts, start again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from raybroker.actors.hosts.host_spec import HostSpec
from raybroker.config import Config
from raybroker.config.brokers import BrokerPlan
from raybroker.store.sql.opening import holder_of_tenure


@dataclass(frozen=True)
class BrokerSpec:
    """What a broker needs to start again."""

    cluster: str
    broker: str
    directory: str
    config: Config
    plan: BrokerPlan
    tenure: int = 0
    """Which tenure of its messages this is, where another broker may take them over; 0: none may."""
    after: int = 0
    """The incarnation of its predecessor that was heard last."""
    moved: bool = False
    """It was taken over, and runs beside another broker, which has the ports of the configuration."""

    @property
    def holder(self) -> str:
        """Who has its tables; "" where its token says so."""
        return holder_of_tenure(self.tenure) if self.tenure else ""

    def of_host(self, host: str, hosting: str, token: bytes) -> HostSpec:
        """What one of its hosts needs."""
        directory = str(Path(self.directory) / "hosts" / host)
        return HostSpec(self.cluster, self.broker, host, hosting, directory, token, self.config, self.tenure)
