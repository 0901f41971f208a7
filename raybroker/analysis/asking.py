"""HTTP requests to metrics endpoints and to Prometheus servers, with the token and the certificates that they want.

A redirection is not followed: the token would go with it to wherever it leads.
"""

from __future__ import annotations

import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

UNTRUSTED_HINT: Final = "; name its certificate, or the authority's, with --trust FILE"
NAME_HINT: Final = "; name the one that the certificate has with --server-name NAME"
_NAME_WRONG: Final = frozenset({62, 63, 64})
"""Codes of OpenSSL (X509_V_ERR_…)."""


def _no_token() -> str:
    return ""


@dataclass(frozen=True)
class Asking:
    """How to ask. ``token()``: what is shown, "" for nothing; ``tls``: gives what https accepts, None: the authorities
    of the system; ``server_name``: what the certificate is for, "": the host of the address."""

    token: Callable[[], str] = _no_token
    tls: ssl.SSLContext | None = None
    server_name: str = ""

    def open(self, url: str, timeout_s: float, data: Mapping[str, str] | None = None) -> Any:
        """The answer, to be closed. Raises OSError, with a hint for a certificate that is not accepted."""
        token = self.token()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        body = urlencode(data).encode() if data else None
        opener = urllib.request.build_opener(_Https(self.tls, self.server_name), _NoRedirection)
        try:
            return opener.open(urllib.request.Request(url, body, headers), timeout=timeout_s)
        except urllib.error.URLError as error:
            if isinstance(error.reason, ssl.SSLCertVerificationError):
                hint = NAME_HINT if error.reason.verify_code in _NAME_WRONG else UNTRUSTED_HINT
                raise OSError(f"{error.reason.verify_message}{hint}") from None
            raise


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """None is made: the status is an error."""


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, tls: ssl.SSLContext | None, server_name: str) -> None:
        super().__init__()
        self._tls = tls or ssl.create_default_context()
        self._server_name = server_name

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        def made(host: str, /, *, timeout: float = 0, **_: Any) -> _NamedConnection:
            return _NamedConnection(host, timeout, self._tls, self._server_name)

        return self.do_open(made, req)


class _NamedConnection(http.client.HTTPSConnection):
    def __init__(self, host: str, timeout: float, tls: ssl.SSLContext, server_name: str) -> None:
        super().__init__(host, timeout=timeout, context=tls)
        self._tls = tls
        self._server_name = server_name

    def connect(self) -> None:
        """TCP, and through a proxy where the environment names one; then TLS with the name that is expected."""
        http.client.HTTPConnection.connect(self)
        name = self._server_name or self.host
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=name)
