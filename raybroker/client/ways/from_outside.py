"""Connections through connection services: what all of them do, over whatever way their service is reached."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from raybroker.client.cluster.cluster_directory import ClusterDirectory
from raybroker.client.cluster.directory import Directory
from raybroker.client.cluster.service_calls import ServiceCalls
from raybroker.client.connection.body_room import BodyRoom
from raybroker.client.connection.connection import ConnectionCore
from raybroker.client.connection.identity import client_id_of
from raybroker.client.io.io_thread import IoThread
from raybroker.client.io.tasks import RETRY_FIRST_S
from raybroker.config import Config
from raybroker.model.errors import ConnectionLostError
from raybroker.transport.loops import sleep_waited_for

RETRY_LONGEST_S: Final = 1.0


async def connected(
    calls: ServiceCalls,
    attributes: Mapping[str, object],
    client_id: str | None,
    username: str | None,
    io: IoThread,
    *,
    reopen: Callable[[], ConnectionCore] | None = None,
    room: BodyRoom | None = None,
) -> ConnectionCore:
    """Log in and learn what the cluster gives its clients; on the IO loop. Raises as :meth:`ServiceCalls.log_in`."""
    home = await calls.log_in()
    return await connected_at(home, calls, attributes, client_id, username, io, reopen=reopen, room=room)


async def connected_at(
    home: str,
    calls: ServiceCalls,
    attributes: Mapping[str, object],
    client_id: str | None,
    username: str | None,
    io: IoThread,
    *,
    reopen: Callable[[], ConnectionCore] | None = None,
    room: BodyRoom | None = None,
    started: bool = False,
) -> ConnectionCore:
    """What :func:`connected` does once ``calls`` has logged in, at broker ``home``. Raises InvalidClientIDError for a
    client id that is another connection's; the calls are closed then, as after every error."""
    directory = ClusterDirectory(calls, home, pinned=False)
    try:
        own = Config.from_values(attributes)
        given = await settings_of_cluster(directory, own["raybroker.reconnect.timeout_ms"] / 1000)
        config = Config.from_values({**given, **attributes})
        chosen = client_id_of(config, client_id, username)
        core = ConnectionCore(directory, config, client_id=chosen, io=io, reopen=reopen, room=room)
        sockets = io.serve_directly() if config["raybroker.client.direct"] else None
        if sockets is not None:
            calls.serve_directly(sockets)
        try:
            await core.identify()  # The login has done so, but for an id that the cluster gives.
            if started:
                await core.start()
        except BaseException:
            await core.close()
            raise
        return core
    except BaseException:
        await directory.close()
        raise


async def settings_of_cluster(directory: Directory, timeout_s: float) -> dict[str, Any]:
    """What the cluster gives its clients; a broker that is restarting is asked again until the time is over."""
    loop = asyncio.get_running_loop()
    deadline, pause_s = loop.time() + timeout_s, RETRY_FIRST_S
    while True:
        try:
            return await directory.settings()
        except ConnectionLostError:
            if loop.time() + pause_s > deadline:
                raise
        await sleep_waited_for(pause_s)
        pause_s = min(pause_s * 2, RETRY_LONGEST_S)
