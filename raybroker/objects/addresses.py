"""Addresses of object stores: which one a user means, and what each of them can do.

A store is named by its address, or by the attributes that MQ's tools know, of which java.naming.provider.url is the
address:

    /etc/raybroker/objects, file:///etc/raybroker/objects     a folder of files
    ldap://host:port/ou=objects,dc=example,dc=org              entries of a directory server; ldaps:// with TLS, and
                                                               ldap:// with raybroker.objects.tls.start=true
    sqlite:////var/lib/objects.db, postgresql://user@host/db   a table of a database

Stores keep texts by names, and know of them whether they are an object's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import unquote, urlsplit

from raybroker.config.layers import OBJECTS, variable
from raybroker.model.errors import ConfigError
from raybroker.model.naming.nearest import nearest
from raybroker.security.passfile import OBJECT_STORE, read_passfile

URL: Final = "java.naming.provider.url"
INITIAL: Final = "java.naming.factory.initial"
PRINCIPAL: Final = "java.naming.security.principal"
CREDENTIALS: Final = "java.naming.security.credentials"
AUTHENTICATION: Final = "java.naming.security.authentication"
PASSFILE: Final = "raybroker.objects.passfile"
TRUST: Final = "raybroker.objects.tls.trust"
START_TLS: Final = "raybroker.objects.tls.start"
ATTRIBUTES: Final = (URL, INITIAL, PRINCIPAL, CREDENTIALS, AUTHENTICATION, PASSFILE, TRUST, START_TLS)
CONTEXTS: Final = {
    "com.sun.jndi.fscontext.RefFSContextFactory": ("file",),
    "com.sun.jndi.ldap.LdapCtxFactory": ("ldap", "ldaps"),
}
"""What MQ's users name for a folder and for a directory → schemes of such addresses."""
PASSWORD_IN_URL: Final = (
    f"{URL} has a password in it; leave it out: {CREDENTIALS}, or a passfile ({PASSFILE}) with {OBJECT_STORE}=…"
)
OBJECTS_MAX: Final = 10_000
"""Objects that a store is read for at a time."""


class ObjectStore(AbstractContextManager["ObjectStore"], Protocol):
    """Texts by lookup name. Raises ConfigError for what the store cannot do now, and ForeignObjectError."""

    shown: str
    """Its address, for people."""

    def canonical(self, name: str) -> str:
        """The name as the store has it."""
        ...

    def get(self, name: str) -> str | None:
        """The text under a name; None: there is nothing. Raises ForeignObjectError for what is no text of ours."""
        ...

    def all(self) -> Iterator[tuple[str, str]]:
        """Names and texts of all objects, without what is foreign; at most OBJECTS_MAX, and ConfigError for more."""
        ...

    def exchange(self, name: str, old: str | None, new: str | None) -> bool:
        """Put a text in the place of another one, None being nothing, once it is durable; False, and nothing is
        changed, where there is another text than ``old`` now."""
        ...


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """``scheme``: of the address, "file" for a folder; ``password``: of ``principal``; ``trust``: file of the
    certificates that a server with TLS is trusted by; ``start_tls``: whether TLS begins on a connection in clear."""

    scheme: str
    url: str
    principal: str = ""
    password: str = field(default="", repr=False)
    trust: str = ""
    start_tls: bool = False


def store_address(store: str | Path | Mapping[str, object] | None) -> StoreAddress:
    """The store that is meant; None: that of the variable RAYBROKER_OBJECTS. Raises ConfigError; blocks for a
    passfile."""
    given = store if store is not None else variable(OBJECTS)
    if given is None:
        raise ConfigError(f"no object store is named: a folder, ldap://… or a database's address, or {OBJECTS} has it")
    attributes = given if isinstance(given, Mapping) else {URL: given}
    values = {name: str(value) for name, value in attributes.items()}
    for name in values:
        if name not in ATTRIBUTES:
            raise ConfigError(
                f"{name!r:.80} is no attribute of an object store; did you mean {nearest(name, ATTRIBUTES, least=0.0)}?"
            )
    url = values.get(URL, "").strip()
    if not url or "\0" in url:
        raise ConfigError(f"{URL} is missing: it says where the object store is, such as file:///etc/raybroker/objects")
    scheme = url.partition("://")[0].lower() if "://" in url else "file"
    if url.startswith("file:") and scheme == "file":
        url = _folder_of(url)
    user, query = url.partition("://")[2].partition("/")[0].rpartition("@")[0], url.partition("?")[2]
    if ":" in user or (scheme != "file" and "password=" in query):
        raise ConfigError(PASSWORD_IN_URL)
    initial = values.get(INITIAL, "")
    if initial:
        if initial not in CONTEXTS:
            raise ConfigError(f"{INITIAL}={initial!r:.80}: there are {' and '.join(CONTEXTS)}; it may be left out")
        if scheme not in CONTEXTS[initial]:
            raise ConfigError(f"{INITIAL}={initial} is not for {URL}={url}: leave it out, or change the address")
    password, start_tls = _password(values), _starts_tls(values, scheme)
    return StoreAddress(scheme, url, values.get(PRINCIPAL, ""), password, values.get(TRUST, ""), start_tls)


def _starts_tls(values: Mapping[str, str], scheme: str) -> bool:
    """Raises ConfigError, also for attributes of TLS that would have no effect."""
    said = values.get(START_TLS, "false").strip().lower()
    if said not in ("true", "false"):
        raise ConfigError(f"{START_TLS}={said!r:.40}: it is true or false")
    if said == "true" and scheme != "ldap":
        raise ConfigError(f"{START_TLS}=true is for ldap:// alone; with ldaps:// there is TLS from the beginning")
    if values.get(TRUST) and scheme != "ldaps" and said != "true":
        raise ConfigError(f"{TRUST} is for TLS: write ldaps:// in {URL}, or {START_TLS}=true")
    return said == "true"


def _folder_of(url: str) -> str:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or parts.query or parts.fragment or not parts.path.startswith("/"):
        raise ConfigError(f"{URL}={url!r:.200}: a folder of this machine is file:///path")
    return unquote(parts.path)


def _password(values: Mapping[str, str]) -> str:
    """Return the password of the principal, as it is given or in a passfile."""
    principal, password, passfile = (values.get(name, "") for name in (PRINCIPAL, CREDENTIALS, PASSFILE))
    how = values.get(AUTHENTICATION, "").strip().lower()
    if how not in ("", "none", "simple"):
        raise ConfigError(
            f"{AUTHENTICATION}={how!r:.40}: it is none or simple; with ldaps://, or {START_TLS}=true, a password is not"
            " in clear"
        )
    if how == "none":
        if principal or password or passfile:
            raise ConfigError(f"{AUTHENTICATION}=none: leave out {PRINCIPAL}, {CREDENTIALS} and {PASSFILE}")
        return ""
    if password and passfile:
        raise ConfigError(f"{CREDENTIALS} and {PASSFILE} are both there; leave one out")
    if passfile:
        password = read_passfile(Path(passfile).expanduser()).get(OBJECT_STORE) or ""
        if not password:
            raise ConfigError(f"passfile {passfile} has no {OBJECT_STORE}")
    if how == "simple" and not principal:
        raise ConfigError(f"{AUTHENTICATION}=simple needs {PRINCIPAL}")
    return password


def without_password(url: str) -> str:
    scheme, found, rest = url.partition("://")
    return f"{scheme}{found}{rest.rpartition('@')[2]}"
