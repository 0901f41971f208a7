"""Clients of connection services as administrators list them: a row each, and which are wanted."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, Protocol

from raybroker.model.errors import ConfigError
from raybroker.model.names import check_destination_type
from raybroker.security.access_rules import User
from raybroker.services.native import TRAFFIC

Row = dict[str, Any]


class Client(Protocol):
    """A client that has logged in. ``peer``: "address:port"; ``client``: what it says of itself."""

    id: str
    user: User | None
    peer: str
    client: dict[str, Any]


class Wanted(NamedTuple):
    """Which clients are wanted: those that all fit of what is given. ``address``: one, or a network; ``type``: of the
    destination; ``consumer``: an id as consumers are listed with."""

    service: str | None = None
    user: str | None = None
    address: str | None = None
    client_id: str | None = None
    destination: str | None = None
    type: str | None = None
    consumer: int | str | None = None

    @classmethod
    def of(cls, **given: Any) -> Wanted:
        """Raises ConfigError for what can fit no client."""
        found = cls(**given)
        if found.type is not None:
            found = found._replace(type=check_destination_type(found.type))
        found._network()
        return found

    @property
    def nobody_in_particular(self) -> bool:
        return not any(value is not None for value in self._replace(type=None))

    def _network(self) -> Any:
        try:
            return None if self.address is None else ipaddress.ip_network(self.address, strict=False)
        except ValueError:
            raise ConfigError(
                f"address={self.address!r:.80}: it is an address, or a network such as 10.0.0.0/8"
            ) from None

    def fits(self, row: Row) -> bool:
        plain = (("service", self.service), ("user", self.user), ("client_id", self.client_id))
        return (
            all(value is None or row[key] == value for key, value in plain)
            and self._fits_address(str(row["host"]))
            and self._fits_destination(row["destinations"])
            and (self.consumer is None or str(self.consumer) in map(str, row["consumer_ids"]))
        )

    def _fits_address(self, host: str) -> bool:
        network = self._network()
        if network is None:
            return True
        try:
            return ipaddress.ip_address(host.rpartition(":")[0].strip("[]")) in network
        except ValueError:
            return False  # It is in this process, or its address is gone.

    def _fits_destination(self, destinations: Iterable[str]) -> bool:
        if self.destination is None:
            return self.type is None or any(shown.startswith(f"{self.type} ") for shown in destinations)
        kinds = ("queue", "topic") if self.type is None else (self.type,)
        return any(f"{kind} {self.destination}" in destinations for kind in kinds)


ALL: Final = Wanted()


def client_row(service: str, client: Client, guests: Iterable[Row]) -> Row:
    """``guests``: rows of its connections to hosts."""
    rows = list(guests)
    count: Counter[str] = Counter()
    for row in rows:
        count.update({key: row[key] for key in ("producers", "consumers", *TRAFFIC)})
    return {
        "id": client.id, "user": client.user.name if client.user else "", "service": service, "host": client.peer,
        "producers": count["producers"], "consumers": count["consumers"],
        "client_id": client.client.get("client_id", ""), "platform": client.client.get("platform", ""),
        "destinations": sorted({shown for row in rows for shown in row["destinations"]}),
        "consumer_ids": sorted({number for row in rows for number in row["consumer_ids"]}),
        **{key: count[key] for key in TRAFFIC},
    }  # fmt: skip
