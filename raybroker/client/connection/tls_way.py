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

from raybroker.client.connection.service_address import ServiceAddress
from raybroker.client.connection.service_calls import Way, resolved
from raybroker.model.errors import BrokerError, ProtocolError, SecurityError
from raybroker.model.settings import ConfigView
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
        self._context = client_context(
            trust=Path(trust).expanduser() if trust else None, trusted=trusted, files=files
        )  # fmt: skip
        self._name: str = attributes[SERVER_NAME]
        self.hint = (
            "a broker does so that does not accept the client's certificate: its log says why"
            if files is not None
            else "a broker does so that asks for a certificate of the client: give certificate='FILE'"
        )

    def options(self, host: str) -> dict[str, Any]:
        """For ``create_connection`` to that host."""
        return {
            "ssl": self._context, "server_hostname": self._name or host,
            "ssl_handshake_timeout": HANDSHAKE_TIMEOUT_S, "ssl_shutdown_timeout": SHUTDOWN_TIMEOUT_S,
        }  # fmt: skip

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
    """Ways to services by the attributes of a connection; raises ConfigError for files that cannot be right."""

    def __init__(self, attributes: ConfigView) -> None:
        self._tls = ClientTls(attributes)

    async def reach(self, address: ServiceAddress) -> Way:
        host, port = await resolved(address)
        return Way(f"{host}:{port}", _TlsWay(address, host, port, self._tls).dial, self._tls.hint)


class _TlsWay:
    def __init__(self, address: ServiceAddress, host: str, port: int, tls: ClientTls) -> None:
        self._address = address
        self._host = host
        self._port = port
        self._tls = tls

    async def dial(self, key: str, factory: Callable[[], Link]) -> object:
        """Raises SecurityError when the broker's certificate is not accepted."""
        link = factory()
        try:
            await self._dial(key, link)
        except ssl.SSLCertVerificationError as error:
            raise self._tls.refusal(self._host, self._port, error) from None
        except (ssl.SSLError, ConnectionError) as error:
            if key or self._address.mapped or not await self._follow_map():
                raise ProtocolError(f"{self._host}:{self._port} does not speak TLS: {reason(error)}") from None
            await self._again(link)
        return link

    async def _again(self, link: Link) -> None:
        try:
            await self._dial("", link)
        except ssl.SSLCertVerificationError as error:
            raise self._tls.refusal(self._host, self._port, error) from None

    async def _follow_map(self) -> bool:
        """Whether the port was a port mapper's; from then on the one that it tells holds."""
        try:
            self._host, self._port = await resolved(self._address._replace(mapped=True))
        except (OSError, BrokerError):
            return False
        return True

    async def _dial(self, key: str, link: Link) -> None:
        loop = asyncio.get_running_loop()
        sock = await _connected(self._host, self._port)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if key:
                await loop.sock_sendall(sock, preamble(key))
            await loop.create_connection(lambda: link, sock=sock, **self._tls.options(self._host))
        except BaseException:
            sock.close()
            raise


async def _connected(host: str, port: int) -> socket.socket:
    """A socket that is connected to the first address of the host that answers; raises OSError."""
    loop = asyncio.get_running_loop()
    failure: OSError = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        try:
            await loop.sock_connect(sock, address)
            return sock
        except OSError as error:
            sock.close()
            failure = error
        except BaseException:
            sock.close()
            raise
    raise failure


def reason(error: BaseException) -> str:
    """What OpenSSL, or the system, says of a failure."""
    return str(getattr(error, "reason", None) or "") or str(error) or type(error).__name__
