"""Connections through an HTTP proxy that has to be named: it is asked by CONNECT, and passes on what comes after.

    rb.connect("mqs://broker.example:7676", proxy="http://proxy.example:3128", …)
    rb.connect(…, proxy="environment")          # HTTPS_PROXY, HTTP_PROXY and NO_PROXY say which

TLS is between the client and the broker: the proxy sees names and ports, and its own user and password, no more. A
proxy that is asked over TLS itself is not built.
"""

from __future__ import annotations

import asyncio
import base64
import socket
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from raybroker.client.ways.sockets import Connect, direct
from raybroker.config.layers import proxy_of_environment
from raybroker.model.errors import ConfigError, SecurityError
from raybroker.model.settings.settings import ConfigView
from raybroker.security.passfile import CLIENT_PROXY, read_passfile

ADDRESS: Final = "raybroker.client.proxy.address"
USER: Final = "raybroker.client.proxy.user"
PASSFILE: Final = "raybroker.client.proxy.passfile"
ENVIRONMENT: Final = "environment"
PORT: Final = 80
"""Of an address without one."""
ANSWER_BYTES_MAX: Final = 16 << 10
ANSWER_TIMEOUT_S: Final = 10.0
_END: Final = b"\r\n\r\n"


class Proxy(NamedTuple):
    """``credentials``: what is behind ``Proxy-Authorization: Basic``, "" for nothing; it is not shown."""

    host: str
    port: int
    credentials: str = ""

    def __repr__(self) -> str:
        return f"Proxy({self})"

    def __str__(self) -> str:
        return f"http://{_bracketed(self.host)}:{self.port}"

    async def connect(self, host: str, port: int) -> socket.socket:
        """A socket to that host behind the proxy. Raises OSError when the proxy does not answer or cannot connect, and
        SecurityError when it asks for another user."""
        try:
            sock = await direct(self.host, self.port)
        except OSError as error:
            raise ConnectionError(f"the proxy {self} does not answer: {error}") from None
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                await self._request_tunnel(sock, f"{_bracketed(host)}:{port}")
        except TimeoutError:
            sock.close()
            raise ConnectionError(f"the proxy {self} has not connected to {host}:{port} in time") from None
        except BaseException:
            sock.close()
            raise
        return sock

    async def _request_tunnel(self, sock: socket.socket, target: str) -> None:
        loop = asyncio.get_running_loop()
        lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
        if self.credentials:
            lines.append(f"Proxy-Authorization: Basic {self.credentials}")
        await loop.sock_sendall(sock, "\r\n".join([*lines, "", ""]).encode("ascii"))
        # Byte by byte: what follows the answer belongs to the service, which may speak first.
        answer = bytearray()
        while not answer.endswith(_END):
            more = await loop.sock_recv(sock, 1)
            if not more:
                raise ConnectionError(f"the proxy {self} ended the connection")
            answer += more
            if len(answer) > ANSWER_BYTES_MAX:
                raise ConnectionError(f"the proxy {self} answers with more than {ANSWER_BYTES_MAX} bytes")
        self._require_connected(answer.split(b"\r\n", 1)[0].decode("latin-1"), target)

    def _require_connected(self, status_line: str, target: str) -> None:
        version, _, rest = status_line.partition(" ")
        code = rest[:3]
        if not version.startswith("HTTP/") or not code.isdecimal():
            raise ConnectionError(f"{self} is no HTTP proxy: it answers {status_line!r:.80}")
        if code == "407":
            known = "does not accept the user and password" if self.credentials else "asks for a user and a password"
            raise SecurityError(f"the proxy {self} {known}: {USER}, and {CLIENT_PROXY} in {PASSFILE}")
        if not code.startswith("2"):
            raise ConnectionError(f"the proxy {self} does not connect to {target}: status {rest:.80}")


def connecting(attributes: ConfigView, *, web: bool = False) -> Connect:
    """How sockets are connected by the attributes of a connection; ``web``: to http:// addresses. Raises ConfigError;
    blocks for the passfile."""
    address: str = attributes[ADDRESS].strip()
    if not address:
        if attributes[USER] or attributes[PASSFILE]:
            raise ConfigError(f"{USER} and {PASSFILE} are for a proxy, and {ADDRESS} names none")
        return direct
    if address.lower() == ENVIRONMENT:
        return _ByEnvironment("http" if web else "https").connect
    return proxy_at(address, ADDRESS, attributes[USER], _password(attributes)).connect


def proxy_at(address: str, source: str, user: str = "", password: str | None = None) -> Proxy:
    """The proxy at ``http://host:port``; raises ConfigError, which shows no password, naming ``source``."""
    scheme, found, rest = address.partition("://")
    parts = urlsplit(f"//{rest if found else address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if (found and scheme.lower() != "http") or not host or not host.isascii() or parts.path not in ("", "/"):
        raise ConfigError(f"{source}: a proxy is http://host:port, which is asked in clear")
    if parts.username is not None:
        if source == ADDRESS:
            raise ConfigError(f"{source}: user and password are given by {USER} and {PASSFILE}")
        user, password = unquote(parts.username), unquote(parts.password or "")
    if not user:
        return Proxy(host, port or PORT)
    if ":" in user:
        raise ConfigError(f"{source}: the user of a proxy has no colon in its name")
    return Proxy(host, port or PORT, base64.b64encode(f"{user}:{password or ''}".encode()).decode())


def _password(attributes: ConfigView) -> str | None:
    user, passfile = attributes[USER], attributes[PASSFILE]
    if not passfile:
        return None
    if not user:
        raise ConfigError(f"{PASSFILE} has the password of a user; name {USER}")
    found = read_passfile(Path(passfile).expanduser()).get(CLIENT_PROXY)
    if found is None:
        raise ConfigError(f"{PASSFILE}: {CLIENT_PROXY} is not in {passfile}")
    return found


class _ByEnvironment:
    def __init__(self, scheme: str) -> None:
        self._scheme = scheme

    async def connect(self, host: str, port: int) -> socket.socket:
        named = proxy_of_environment(self._scheme, host, port)
        if named is None:
            return await direct(host, port)
        variable, address = named
        return await proxy_at(address, f"environment variable {variable}").connect(host, port)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
