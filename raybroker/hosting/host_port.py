"""One host as its broker sees it: a remote actor in a cluster, an object of the process in the loopback.

A host is a small value with a role for each thing that a broker asks about.  A destination is its type and its name;
rows are dicts of plain values.  All methods raise the errors of ``raybroker.errors``; ConnectionLostError means that
the host cannot be asked now, and that a change may have been made.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, TypeAlias, get_type_hints

from raybroker.hosting.ports.destinations import DestinationsPort, SchedulesPort, SubscriptionsPort
from raybroker.hosting.ports.figures import FiguresPort
from raybroker.hosting.ports.messages import DamagedPort, MessagesPort
from raybroker.hosting.ports.pools import PoolsPort
from raybroker.hosting.ports.process import ProcessPort
from raybroker.hosting.ports.store import StorePort
from raybroker.hosting.ports.transactions import HandoverPort, TransactionsPort
from raybroker.hosting.ports.why import WhyPort
from raybroker.model import listing
from raybroker.services.clients.clients_inside import HostClientsInside
from raybroker.services.native.guests import Guests

Row: TypeAlias = listing.Row


class HostPort:
    """``key``: unique in the cluster; ``hosting``: one of model.settings.setting_table.HOSTINGS."""

    key: str
    hosting: str
    destinations: DestinationsPort
    subscriptions: SubscriptionsPort
    schedules: SchedulesPort
    messages: MessagesPort
    damaged: DamagedPort
    transactions: TransactionsPort
    handover: HandoverPort
    pools: PoolsPort
    store: StorePort
    figures: FiguresPort
    why: WhyPort
    process: ProcessPort
    guests: Guests
    clients: HostClientsInside


MakeHost = Callable[[str], Awaitable[HostPort]]
DropHost = Callable[[HostPort], Awaitable[None]]
Spares = Callable[[], list[HostPort]]


def _asked(role: type) -> frozenset[str]:
    """The methods of a role that may be called from another process: the asynchronous ones."""
    methods = inspect.getmembers(role, inspect.iscoroutinefunction)
    return frozenset(name for name, _ in methods if not name.startswith("_"))


ROLES: Final[Mapping[str, frozenset[str]]] = {
    role: _asked(kind) for role, kind in get_type_hints(HostPort).items() if kind is not str
}
"""Role → its methods: what a host may be asked by name from another process."""


def method_of(host: Any, role: str, method: str) -> Callable[..., Coroutine[Any, Any, Any]]:
    """A method of a host by its names; raises AttributeError for one that may not be asked."""
    if method not in ROLES.get(role, ()):
        raise AttributeError(f"a host has no method {role}.{method}")
    found: Callable[..., Coroutine[Any, Any, Any]] = getattr(getattr(host, role), method)
    return found
