"""The way to a service over HTTP, ``http://`` and with TLS ``https://``: inside of a WebSocket, or where none passes,
by plain requests (``long_poll.py``).

raybroker.client.http.carrier says which; with auto plain requests are tried when the WebSocket is refused, ended or not
answered before it has begun. What has worked once is what is used from then on.

With TLS the certificate is checked as that of ssljms is, before anything is sent, and the client shows its own where it
has one. The server looks at it and tells the broker whose it is.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final

from raybroker.client.cluster.service_calls import ServiceWay
from raybroker.client.ways import long_poll, web_socket
from raybroker.client.ways.service_address import ServiceAddress
from raybroker.client.ways.sockets import Connect, direct
from raybroker.client.ways.target import Target
from raybroker.client.ways.tls_way import ClientTls, reason
from raybroker.model.errors import ConnectionLostError, NoClusterError, ProtocolError
from raybroker.model.settings.settings import ConfigView
from raybroker.transport.link import Link

CARRIER: Final = "raybroker.client.http.carrier"
AUTO: Final = "auto"
WEB_SOCKET: Final = "websocket"
POLL: Final = "poll"
AUTO_UPGRADE_S: Final = 4.0
"""For a WebSocket to begin, where another way follows: shorter than a connection may take to open."""
_DIALS: Final = {WEB_SOCKET: web_socket.dial, POLL: long_poll.dial}

log = logging.getLogger("raybroker.client")


class WebWays:
    """Ways to services by the attributes of a connection; ``secure``: they have TLS, ``connect``: how sockets are
    connected. Raises ConfigError for files that cannot be right."""

    def __init__(self, attributes: ConfigView, *, secure: bool, connect: Connect = direct) -> None:
        self._connect = connect
        self._tls = ClientTls(attributes) if secure else None
        self._carrier = str(attributes[CARRIER])

    async def reach(self, address: ServiceAddress) -> ServiceWay:
        target = await Target.resolve(address, self._connect)
        hint = self._tls.hint if self._tls is not None else "does that port have TLS? then it is https://"
        return ServiceWay(str(target), _WebWay(target, self._tls, self._carrier).dial, hint)


class _WebWay:
    def __init__(self, target: Target, tls: ClientTls | None, carrier: str) -> None:
        self._target = target
        self._tls = tls
        self._carrier = carrier

    async def dial(self, key: str, factory: Callable[[], Link]) -> object:
        """Raises SecurityError when the server's certificate is not accepted."""
        tls = self._tls
        if tls is None:
            return await self._dial(key, factory, {})
        try:
            return await self._dial(key, factory, tls.options(self._target.host))
        except ssl.SSLCertVerificationError as error:
            raise tls.refusal(self._target.host, self._target.port, error) from None
        except (ssl.SSLError, ConnectionResetError) as error:
            raise ProtocolError(f"{self._target} does not speak TLS: {reason(error)}") from None

    async def _dial(self, key: str, factory: Callable[[], Link], tls: Mapping[str, Any]) -> object:
        if self._carrier != AUTO:
            return await _DIALS[self._carrier](self._target, key, factory, tls)
        try:
            found = await web_socket.dial(self._target, key, factory, tls, AUTO_UPGRADE_S)
            self._carrier = WEB_SOCKET
        except (NoClusterError, ConnectionLostError, TimeoutError) as error:
            refusal = str(error) or "no answer to the WebSocket in time"
            try:
                found = await long_poll.dial(self._target, key, factory, tls)
            except (OSError, NoClusterError, ConnectionLostError) as second:
                kind = ConnectionLostError if isinstance(error, ConnectionLostError) else NoClusterError
                raise kind(f"{refusal}; nor does polling work: {str(second) or 'no answer in time'}") from None
            self._carrier = POLL
            log.info("%s lets no WebSocket pass (%s): plain requests are used", self._target, refusal)
        return found
