"""Listing over all hosts of a broker, asked at once; a host that does not answer lacks its own rows only."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from raybroker.broker.destinations.destination_registry import Registry
from raybroker.hosting.host_port import HostPort
from raybroker.model.errors import ConnectionLostError, RequestTimeoutError
from raybroker.model.listing import Listing, Row

LIST_TIMEOUT_S: Final = 5.0
"""How long one host may take for one question of a list verb."""


async def asked(question: Awaitable[list[Row]]) -> list[Row]:
    """Raises what the host raises, ConnectionLostError when it takes longer than ``LIST_TIMEOUT_S``."""
    try:
        return await asyncio.wait_for(question, LIST_TIMEOUT_S)
    except TimeoutError:
        raise ConnectionLostError(f"no answer within {LIST_TIMEOUT_S:g} s") from None


async def each_host(
    registry: Registry, question: Callable[[HostPort], Awaitable[list[Row]]]
) -> tuple[list[tuple[HostPort, Row]], dict[str, str]]:
    """(host and row, for all rows; what is missing → why)."""
    hosts = list(registry.hosts)
    answers = await asyncio.gather(*(_answer(question(host)) for host in hosts))
    missing = unasked(registry)
    found: list[tuple[HostPort, Row]] = []
    for host, answer in zip(hosts, answers, strict=True):
        if isinstance(answer, str):
            missing[host.key] = answer
        else:
            found += [(host, row) for row in answer]
    return found, missing


async def _answer(question: Awaitable[list[Row]]) -> list[Row] | str:
    """The rows, or why there are none."""
    try:
        return await asked(question)
    except (ConnectionLostError, RequestTimeoutError) as error:
        return str(error)


def unasked(registry: Registry) -> dict[str, str]:
    """Hosts of which it is not known yet what they serve → why."""
    return registry.away.reasons(registry.unasked)


def require_whole(rows: list[Row], what: str) -> None:
    """Raises ConnectionLostError when something is missing in rows that a decision depends on."""
    missing = rows.missing if isinstance(rows, Listing) else {}
    if missing:
        raise ConnectionLostError(f"{what} is not known: {', '.join(sorted(missing))} cannot be asked now; try again")


def require_asked(registry: Registry, rows: Listing, what: str) -> None:
    """Do what :meth:`require_whole` does, for whom it is enough to know what the hosts have that serve."""
    away = unasked(registry)
    require_whole(Listing((), {key: why for key, why in rows.missing.items() if key not in away}), what)


async def found_among(
    registry: Registry, what: str, question: Callable[[HostPort], Awaitable[list[Row]]], wanted: Callable[[Row], bool]
) -> list[tuple[HostPort, Row]]:
    """The rows that are wanted; raises ConnectionLostError when there are none and a host cannot be asked."""
    rows, missing = await each_host(registry, question)
    found = [(host, row) for host, row in rows if wanted(row)]
    if not found:
        require_whole(Listing((), missing), what)
    return found
