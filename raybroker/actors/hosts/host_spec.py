"""The specification of a host: everything with which it starts again."""

from __future__ import annotations

from dataclasses import dataclass

from raybroker.config import Config


@dataclass(frozen=True)
class HostSpec:
    """Everything a host needs to start again from nothing but its store."""

    cluster: str
    broker: str
    host: str
    hosting: str
    directory: str
    token: bytes
    config: Config
    tenure: int = 0
    """As of BrokerSpec."""
    log: str = ""
    """Names the log that this host has a copy of, at whichever broker; "": it has a log of its own."""

    @property
    def key(self) -> str:
        return self.log or f"{self.broker}/{self.host}"
