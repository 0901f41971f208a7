"""The way to a host inside the Ray cluster: its data socket, over TLS where the broker says which certificate it shows.

The answer of the broker came through Ray, which has let both sides in. So the one certificate in it is as good as an
authority, and better than a name: addresses of nodes stand in no certificate.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from raybroker.client.cluster.directory import Dial
from raybroker.model.errors import SecurityError
from raybroker.security.tls import pinned_context
from raybroker.transport.link import Link

HANDSHAKE_TIMEOUT_S: Final = 10.0
SHUTDOWN_TIMEOUT_S: Final = 5.0
_EXPIRED: Final = 10
"""X509_V_ERR_CERT_HAS_EXPIRED of OpenSSL."""


def way_to_host(ip: str, port: int, certificate: bytes) -> Dial:
    """``certificate``: what the host shows (DER); b"": there is no TLS."""
    return partial(_dial_secure, ip, port, certificate) if certificate else partial(_dial, ip, port)


async def _dial(ip: str, port: int, factory: Callable[[], Link]) -> object:
    return await asyncio.get_running_loop().create_connection(factory, ip, port)


async def _dial_secure(ip: str, port: int, certificate: bytes, factory: Callable[[], Link]) -> object:
    """Raises SecurityError for a certificate whose time is over, and OSError for another one than was told of: the
    broker tells the next time which one holds now."""
    options: dict[str, Any] = {
        "ssl": pinned_context(certificate),
        "ssl_handshake_timeout": HANDSHAKE_TIMEOUT_S,
        "ssl_shutdown_timeout": SHUTDOWN_TIMEOUT_S,
    }
    try:
        return await asyncio.get_running_loop().create_connection(factory, ip, port, **options)
    except ssl.SSLCertVerificationError as error:
        if error.verify_code == _EXPIRED:
            raise SecurityError(
                f"the certificate of the host at {ip}:{port} has expired: renew the keystore there (raybroker keytool"
                " make --replace)"
            ) from None
        raise ConnectionError(f"{ip}:{port} shows another certificate than its broker says") from None
