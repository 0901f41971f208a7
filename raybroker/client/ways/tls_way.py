"""The way to a service with TLS, and what a client tells its user when the two ends do not accept each other.

A control connection begins with TLS. One to a host says in clear which host it is for, since the broker hands the
socket on, and then the host's process does the handshake.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from raybroker.client.cluster.service_calls import ServiceWay
from raybroker.client.ways.service_address import ServiceAddress
from raybroker.client.ways.sockets import Connect, direct
from raybroker.client.ways.target import Target
from raybroker.model.errors import ProtocolError, SecurityError
from raybroker.model.settings.settings import ConfigView
from raybroker.security.passfile import CLIENT_KEY, read_passfile
from raybroker.security.tls import KeyFiles, client_context
from raybroker.transport.link import Link
from raybroker.wire.native.preamble import preamble

TRUST: Final = "raybroker.client.tls.trust"
CERTIFICATE: Final = "raybroker.client.tls.certificate"
PASSFILE: Final = "raybroker.client.tls.passfile"
SERVER_NAME: Final = "raybroker.client.tls.server_name"
HANDSHAKE_TIMEOUT_S: Final = 10.0
SHUTDOWN_TIMEOUT_S: Final = 5.0
_NAME_WRONG: Final = frozenset({62, 63, 64})
_EXPIRED: Final = 10
_NOT_YET: Final = 9
"""Codes of OpenSSL (X509_V_ERR_…)."""


class ClientTls:
    """What a client wants of the other end, and shows of itself; raises ConfigError for files that cannot be right.

    hint  why a broker may end a connection in its half of the handshake, from which no reason comes through
    """

    def __init__(self, attributes: ConfigView) -> None:
        trust, certificate, passfile = attributes[TRUST], attributes[CERTIFICATE], attributes[PASSFILE]
        trusted = bool(attributes["imqSSLIsHostTrusted"])
        files = None
        if certificate:
            password = read_passfile(Path(passfile).expanduser()).get(CLIENT_KEY) if passfile else None
            missing = f"{CLIENT_KEY} is not in {passfile}" if passfile else f"{PASSFILE} has no file of its password"
            files = KeyFiles(Path(certificate).expanduser(), None, password, missing)
        self._context = client_context(trust=Path(trust).expanduser() if trust else None, trusted=trusted, files=files)
        self._name: str = attributes[SERVER_NAME]
        self.hint = (
            "a broker does so that does not accept the client's certificate: its log says why"
            if files is not None
            else "a broker does so that asks for a certificate of the client: give certificate='FILE'"
        )

    def options(self, host: str) -> dict[str, Any]:
        """Return the options of ``create_connection`` to that host."""
        return {
            "ssl": self._context,
            "server_hostname": self._name or host,
            "ssl_handshake_timeout": HANDSHAKE_TIMEOUT_S,
            "ssl_shutdown_timeout": SHUTDOWN_TIMEOUT_S,
        }

    def refusal(self, host: str, port: int, error: ssl.SSLCertVerificationError) -> SecurityError:
        """What the user is told about a certificate that is not accepted."""
        where, name, code = f"{host}:{port}", self._name or host, error.verify_code
        if code in _NAME_WRONG:
            return SecurityError(
                f"the certificate of {where} is not for {name}: connect by a name that it has, or say which one"
                f" it has ({SERVER_NAME}), or have it made with this one (raybroker keytool make -n {name})"
            )
        if code == _EXPIRED:
            return SecurityError(
                f"the certificate of {where} has expired: renew it there (raybroker keytool make --replace)"
            )
        if code == _NOT_YET:
            return SecurityError(f"the certificate of {where} is not valid yet: is the clock right, here and there?")
        return SecurityError(
            f"the certificate of {where} is from an authority that is not trusted here ({error.verify_message}): give"
            " trust='FILE', which raybroker keytool export writes at the broker"
        )


class TlsWays:
    """Ways to services by the attributes of a connection; ``connect``: how sockets are connected. Raises ConfigError
    for files that cannot be right."""

    def __init__(self, attributes: ConfigView, connect: Connect = direct) -> None:
        self._tls = ClientTls(attributes)
        self._connect = connect

    async def reach(self, address: ServiceAddress) -> ServiceWay:
        target = await Target.resolve(address, self._connect)
        return ServiceWay(str(target), _TlsWay(target, self._tls).dial, self._tls.hint)


class _TlsWay:
    def __init__(self, target: Target, tls: ClientTls) -> None:
        self._target = target
        self._tls = tls

    async def dial(self, key: str, factory: Callable[[], Link]) -> object:
        """Raises SecurityError when the broker's certificate is not accepted."""
        link, target = factory(), self._target
        sock = await target.socket()
        try:
            await self._secured(sock, key, link)
        except ssl.SSLCertVerificationError as error:
            raise self._refusal(error) from None
        except (ssl.SSLError, ConnectionError) as error:
            # Perhaps the port is a port mapper's; then the one that it tells holds.
            if key or target.address.mapped or not await target.moved(target.address._replace(mapped=True)):
                raise ProtocolError(f"{target} does not speak TLS: {reason(error)}") from None
            await self._again(link)
        return link

    async def _again(self, link: Link) -> None:
        try:
            await self._secured(await self._target.socket(), "", link)
        except ssl.SSLCertVerificationError as error:
            raise self._refusal(error) from None

    def _refusal(self, error: ssl.SSLCertVerificationError) -> SecurityError:
        return self._tls.refusal(self._target.host, self._target.port, error)

    async def _secured(self, sock: socket.socket, key: str, link: Link) -> None:
        loop = asyncio.get_running_loop()
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if key:
                await loop.sock_sendall(sock, preamble(key))
            await loop.create_connection(lambda: link, sock=sock, **self._tls.options(self._target.host))
        except BaseException:
            sock.close()
            raise


def reason(error: BaseException) -> str:
    """What OpenSSL, or the system, says of a failure."""
    return str(getattr(error, "reason", None) or "") or str(error) or type(error).__name__
