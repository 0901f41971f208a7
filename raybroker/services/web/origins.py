"""Pages of other sites: a browser sends the credentials that it keeps with what any page asks for.

So nothing that changes anything is done for a page of another site: browsers say where a page is from (Origin,
Sec-Fetch-Site), and only this service's own address is taken, and the origins of raybroker.http.cors.origins. Pages of
these may read the answers too, which browsers ask for (CORS); they say who asks by the header Authorization.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from raybroker.model.errors import ConfigError
from raybroker.services.web.problems import RefusedError

PROPERTY: Final = "raybroker.http.cors.origins"
READING: Final = ("GET", "HEAD", "OPTIONS")
"""Methods that change nothing."""
OWN: Final = ("same-origin", "none")
"""What Sec-Fetch-Site says of a page of this service, and of what a person has typed."""
PREFLIGHT_S: Final = 600
"""How long a browser need not ask again what it may."""
_HEADERS: Final = "Authorization, Content-Type"


class Origins(NamedTuple):
    """``others``: origins of other sites whose pages may ask."""

    others: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, text: str) -> Origins:
        """Read the origins from a property; raises ConfigError."""
        found = [one.strip() for one in text.split(",") if one.strip()]
        for one in found:
            parts = urlsplit(one)
            if parts.scheme not in ("http", "https") or one != f"{parts.scheme}://{parts.netloc}" or not parts.netloc:
                raise ConfigError(
                    f"{PROPERTY}={one!r:.200}: an origin is https://host or https://host:port, as browsers send it;"
                    " separate several with commas"
                )
        return cls(frozenset(found))

    def require(self, method: str, headers: Mapping[str, str]) -> None:
        """Raises RefusedError, 403, for a page of another site that asks for a change."""
        if method in READING:
            return
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if origin in self.others:
            return
        if origin is not None and urlsplit(origin).netloc != headers.get("host"):
            raise RefusedError(f"a page of {origin!r:.200} may not ask for changes here ({PROPERTY})", 403)
        if site is not None and site not in OWN:
            raise RefusedError(f"a page of another site ({site!r:.40}) may not ask for changes here ({PROPERTY})", 403)

    def told(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Headers of an answer, for the browser of who asks."""
        if not self.others:
            return {}
        origin = headers.get("origin")
        return {"Vary": "Origin", **({"Access-Control-Allow-Origin": origin} if origin in self.others else {})}

    def preflight(self, headers: Mapping[str, str], methods: Iterable[str]) -> dict[str, str] | None:
        """Headers of the answer to a browser that asks what a page may do; None: it does not ask that, or the page is
        of a site that may do nothing."""
        if headers.get("origin") not in self.others or "access-control-request-method" not in headers:
            return None
        return {
            "Access-Control-Allow-Methods": ", ".join(methods),
            "Access-Control-Allow-Headers": _HEADERS,
            "Access-Control-Max-Age": str(PREFLIGHT_S),
        }
