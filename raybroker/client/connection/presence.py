"""The client id of a connection, which is its own from the moment that it connects.

A client outside is known to a broker by its control connection.  One inside the Ray cluster has none: it keeps a link
to the host of mq.sys.dmq of its home broker, from its start on, and so is gone there as soon as its process is.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from raybroker.client.cluster.directory import Directory
from raybroker.client.connection.channels import Channels
from raybroker.client.destinations import Queue
from raybroker.model.errors import (
    BrokerError,
    ConnectionEndedError,
    ConnectionLostError,
    InvalidClientIDError,
    NotOpenError,
)
from raybroker.model.naming.names import DEAD_MESSAGE_QUEUE
from raybroker.transport.loops import sleep_waited_for

WHERE: Final = Queue(DEAD_MESSAGE_QUEUE)
"""Every broker has it, whatever else it has."""
TIMEOUT_S: Final = 30.0
"""How long brokers and their hosts may take to start; what is not known by then is found when the client id is used."""
AGAIN_S: Final = 0.2
LOOK_S: Final = 1.0
WAIT_S: Final = 0.4
"""How long another connection with the client id may take to end at a host: this one may have come again at once."""
TRY_S: Final = 0.04

log: Final = logging.getLogger("raybroker.client")


class Presence:
    """The presence of a connection, on the IO loop. ``client_id`` is that of the connection which calls itself
    ``instance``."""

    def __init__(self, directory: Directory, channels: Channels, client_id: str, instance: str) -> None:
        self._directory = directory
        self._channels = channels
        self._client_id = client_id
        self._instance = instance
        self._host = self._home = ""

    async def claim_client_id(self) -> None:
        """Raises InvalidClientIDError while another connection has the client id."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await self._appear_at_last()
        except (InvalidClientIDError, ConnectionEndedError):
            self._channels.unlink(self._host)  # A connection that is not closed now would keep others from having it.
            raise
        except (BrokerError, TimeoutError) as error:
            log.info("whether client id %r is free is not known yet: %s", self._client_id, str(error) or "too slow")

    async def _appear_at_last(self) -> None:
        while True:
            try:
                return await self._appear()
            except (ConnectionLostError, NotOpenError) as error:
                log.debug("client id %r: %s", self._client_id, error)
            await sleep_waited_for(AGAIN_S)

    async def _appear(self) -> None:
        self._home = self._directory.home
        if not self._directory.outside:
            self._host = await self._linked()
        await self._directory.identify(self._client_id, self._instance)

    async def _linked(self) -> str:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + WAIT_S
        while True:
            try:
                return await self._channels.link(WHERE)
            except InvalidClientIDError:
                if loop.time() > until_s:
                    raise
            await sleep_waited_for(TRY_S)

    async def keep(self) -> None:
        """Keep the presence until the connection ends: the link comes back when it is lost, and moves with the home
        broker."""
        told = ""
        while not self._directory.outside:
            await asyncio.sleep(LOOK_S)
            if self._channels.is_linked(self._host) and self._home == self._directory.home:
                continue
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    await self._appear()
                told = ""
            except ConnectionEndedError:
                return
            except InvalidClientIDError as error:
                if str(error) != told:
                    told = str(error)
                    log.warning("another connection took the client id while this one had no link: %s", error)
            except Exception as error:  # noqa: BLE001 - also what Ray raises once it is shut down
                log.debug("client id %r has no link: %s", self._client_id, error)
