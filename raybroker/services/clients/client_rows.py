"""Clients of connection services as administrators list them: a row each, and which are wanted."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from raybroker.model.errors import ConfigError, ConnectionLostError, InvalidDestinationError
from raybroker.model.naming.names import check_destination_type
from raybroker.model.settings.setting_services import INSIDE, SERVICE_KINDS
from raybroker.services.native.guest import TRAFFIC

if TYPE_CHECKING:
    from raybroker.security.access_rules import User

Row = dict[str, Any]
UNREACHED_SHOWN_MAX: Final = 10
"""Hosts and brokers that an error names."""


class ServiceClient(Protocol):
    """A client that has logged in. ``peer``: "address:port"; ``client``: what it says of itself."""

    @property
    def id(self) -> str: ...

    @property
    def user(self) -> User | None: ...

    @property
    def peer(self) -> str: ...

    @property
    def client(self) -> dict[str, Any]: ...


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
    def parse(cls, **given: Any) -> Wanted:
        """Raises ConfigError for what can fit no client."""
        found = cls(**given)
        if found.type is not None:
            found = found._replace(type=check_destination_type(found.type))
        found._network()
        return found

    @classmethod
    def in_particular(cls, **given: Any) -> Wanted:
        """Make one that says whose connections to end; raises ConfigError also when nothing says which."""
        found = cls.parse(**given)
        if all(value is None for value in found._replace(type=None)):
            raise ConfigError(
                "destroy_connections: say whose, by service, user, address, client_id, destination or consumer; all"
                " clients of a service are those with its name as service, all inside the cluster those of inside"
            )
        return found

    @property
    def of_each(self) -> Row:
        """The arguments that say the same of each connection of a client; the others go by all of them."""
        return {"service": self.service, "user": self.user, "client_id": self.client_id}

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


class ClientInside(NamedTuple):
    """A client that came in through no service."""

    id: str
    peer: str
    client: dict[str, Any]
    user: User | None = None


def inside_rows(found: Iterable[tuple[str, Row]], broker: str) -> list[Row]:
    """Clients inside, one row each. ``found``: (host, row of one connection to it), see
    services.clients.clients_inside; ``broker``: whose hosts these are.

    Rows of the same client from several brokers become one with :func:`merged`.
    """
    clients: dict[str, list[tuple[str, Row]]] = {}
    for host, row in found:
        clients.setdefault(row["id"], []).append((host, row))
    return [_inside_row(client, clients[client], broker) for client in sorted(clients)]


def _inside_row(id: str, found: list[tuple[str, Row]], broker: str) -> Row:
    rows = [row for _, row in found]
    client = ClientInside(id, min(row["address"] for row in rows), rows[0])
    keys = sorted({key for row in rows for key in row["consumer_keys"]})
    return {
        **client_row(INSIDE, client, ({**row, **dict.fromkeys(TRAFFIC, 0)} for row in rows)),
        **dict.fromkeys(TRAFFIC),
        "consumers": len(keys),
        "consumer_keys": keys,
        "pid": rows[0].get("pid", ""),
        "hosts": sorted({host for host, _ in found}),
        "broker": broker,
    }


def merged(rows: Iterable[Row]) -> list[Row]:
    """Rows of all brokers: a client inside has one, whichever brokers it has connections to."""
    found: dict[tuple[str, str], Row] = {}
    for row in rows:
        key = (row["broker"] if row["service"] != INSIDE else "", row["id"])
        known = found.get(key)
        found[key] = row if known is None else _together(known, row)
    return list(found.values())


def _together(one: Row, other: Row) -> Row:
    lists = {
        key: sorted({*one[key], *other[key]}) for key in ("destinations", "consumer_ids", "consumer_keys", "hosts")
    }
    return {
        **one,
        **lists,
        "broker": min(one["broker"], other["broker"]),
        "consumers": len(lists["consumer_keys"]),
        "producers": one["producers"] + other["producers"],
    }


def shown(rows: Iterable[Row]) -> list[Row]:
    """Rows without what they are merged by."""
    return [{key: value for key, value in row.items() if key != "consumer_keys"} for row in rows]


def client_row(service: str, client: ServiceClient, guests: Iterable[Row]) -> Row:
    """``guests``: rows of its connections to hosts."""
    rows = list(guests)
    count: Counter[str] = Counter()
    for row in rows:
        count.update({key: row[key] for key in ("producers", "consumers", *TRAFFIC)})
    return {
        "id": client.id,
        "user": client.user.name if client.user else "",
        "service": service,
        "host": client.peer,
        "producers": count["producers"],
        "consumers": count["consumers"],
        "client_id": client.client.get("client_id", ""),
        "platform": client.client.get("platform", ""),
        "destinations": sorted({shown for row in rows for shown in row["destinations"]}),
        "consumer_ids": sorted({number for row in rows for number in row["consumer_ids"]}),
        **{key: count[key] for key in TRAFFIC},
    }


# ---- ending them


def ended_because(reason: str | None) -> str:
    """What a client is told whom an administrator ends."""
    return f"an administrator has closed the connection{f': {reason}' if reason else ''}"


def ids_to_end(rows: Iterable[Row]) -> list[str]:
    """Those of clients of services for administration stay: they are ended by their ids alone."""
    return [row["id"] for row in rows if SERVICE_KINDS.get(row["service"]) != "ADMIN"]


def is_inside(id: str) -> bool:
    """Whether an id may be that of a client inside; those of services have the names of broker and service in them."""
    return "/" not in id


def require_ended(id: str, ended: Iterable[str], missing: Mapping[str, str]) -> None:
    """Raises InvalidDestinationError when there was no such client, and ConnectionLostError when it may go on
    somewhere."""
    if id not in ended and not missing:
        raise InvalidDestinationError(f"there is no connection {id!r:.80}; list them with: raybroker list cxn")
    if missing and (is_inside(id) or id not in ended):
        done = f"connection {id} was ended elsewhere" if id in ended else f"nobody else has a connection {id!r:.80}"
        raise ConnectionLostError(f"{done}; {_unreached(missing)}")


def counted(ended: Iterable[str], missing: Mapping[str, str]) -> int:
    """How many; raises ConnectionLostError when some that were wanted may go on somewhere."""
    count = len(set(ended))
    if missing:
        raise ConnectionLostError(f"the connections of {count} clients were ended; {_unreached(missing)}")
    return count


def _unreached(missing: Mapping[str, str]) -> str:
    shown = "; ".join(f"{name} ({why:.200})" for name, why in sorted(missing.items())[:UNREACHED_SHOWN_MAX])
    more = len(missing) - UNREACHED_SHOWN_MAX
    rest = f" and {more} more" if more > 0 else ""
    return f"these could not be asked, and clients may go on there: {shown}{rest}. Repeat it when they are back"
