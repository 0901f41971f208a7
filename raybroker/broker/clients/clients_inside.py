"""The clients inside the Ray cluster that are connected to hosts of one broker: listed, and ended for good.

A client inside has no connection to a broker: it has one to each host that serves what it uses, and each knows of its
own.  A client that has no client id and has not used any destination yet is connected to nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from raybroker.hosting.host_port import HostPort, Row
from raybroker.model.errors import BrokerError
from raybroker.model.naming.names import DEAD_MESSAGE_QUEUE
from raybroker.services.clients.client_rows import inside_rows

log: Final = logging.getLogger("raybroker.services")

Missing = dict[str, str]
"""Host or broker that cannot be asked now → why."""
Unasked = Callable[[], Iterable[str]]


class ClientsInside:
    """``hosts``: of the broker; ``unasked``: keys of hosts that it has not reached since it was started;
    ``host_of``: the host of a destination, None when that is not known."""

    def __init__(
        self,
        hosts: Callable[[], Iterable[HostPort]],
        unasked: Unasked,
        host_of: Callable[[str, str], HostPort | None],
        *,
        broker: str,
    ) -> None:
        self._hosts = hosts
        self._host_of = host_of
        self._unasked = unasked
        self._broker = broker

    async def client_rows(self) -> tuple[list[Row], Missing]:
        """One row a client, with ``consumer_keys`` for merging; and the hosts that cannot be asked."""
        answers, missing = await self._asked(lambda host: host.clients.client_rows())
        found = [(key, row) for key, rows in answers for row in rows]
        return inside_rows(found, self._broker), missing

    async def end_clients(self, ids: list[str], why: str) -> tuple[list[str], Missing]:
        """End clients at all hosts, which take them no more; those that had a connection, and the hosts that cannot be
        asked."""
        answers, missing = await self._asked(lambda host: host.clients.end_clients(ids, why))
        ended = sorted({client for _, some in answers for client in some})
        for client in ended:
            log.info("[B1069] connection %s, inside the cluster: %s", client, why)
        return ended, missing

    async def held(self, client_id: str) -> set[str]:
        """The clients whose home broker is this one that have a client id for themselves; they are at the host of
        mq.sys.dmq. Where that host cannot be asked, hosts refuse the second of them when it uses one."""
        host = self._host_of("queue", DEAD_MESSAGE_QUEUE)
        try:
            rows = await host.clients.client_rows() if host is not None else []
        except BrokerError as error:
            log.info("broker %s cannot ask who has client id %r: %s", self._broker, client_id, error)
            return set()
        return {row["id"] for row in rows if row["client_id"] == client_id and not row.get("unrestricted")}

    async def _asked(self, ask: Callable[[HostPort], Awaitable[Any]]) -> tuple[list[tuple[str, Any]], Missing]:
        hosts = list(self._hosts())
        answers = await asyncio.gather(*(ask(host) for host in hosts), return_exceptions=True)
        found: list[tuple[str, Any]] = []
        missing = dict.fromkeys(self._unasked(), "it has not been reached since the broker was started")
        for host, answer in zip(hosts, answers, strict=True):
            if isinstance(answer, BrokerError):
                missing[host.key] = str(answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found.append((host.key, answer))
        return found, missing
