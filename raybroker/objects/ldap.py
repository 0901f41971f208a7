"""A directory server as an object store: an entry ``cn=NAME`` below the entry of the address for each object.

Entries are those that RFC 2713 has for objects of a naming service (javaContainer with javaNamingReference), whose
schema directory servers bring along: in OpenLDAP java.schema. The object's text is its one javaReferenceAddress, which
a change takes away and puts in one operation, so that of two changes at once the second one fails and is made again.

``cn=orders`` and ``orders`` are the same lookup name here. Names are escaped as values of a name of an entry; no filter
is made of them. A directory takes names that differ in capitals or in the number of spaces for the same: the second one
is refused.
"""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from raybroker.model.errors import ConfigError, ForeignObjectError
from raybroker.objects.addresses import OBJECTS_MAX, TRUST, URL, StoreAddress
from raybroker.objects.administered import AdministeredObject, name_in

CONNECT_TIMEOUT_S: Final = 5.0
ANSWER_TIMEOUT_S: Final = 30
PAGE_ENTRIES: Final = 500
PREFIX: Final = "cn="
CN_BYTES_MAX: Final = 200
"""Servers keep no entries with much longer names: those have the SHA-256 in the place of the name."""
CLASS: Final = "raybroker.AdministeredObject"
_CLASSES: Final = ["top", "javaContainer", "javaObject", "javaNamingReference"]
_BEFORE: Final = "#0#raybroker#"
"""What stands before the text, as RFC 2713 writes the address at position 0 of the type raybroker."""
_GONE: Final = ("noSuchObject", "noSuchAttribute", "entryAlreadyExists", "attributeOrValueExists")
"""Results of a change that somebody else was faster than."""


class LdapStore:
    """See :class:`raybroker.objects.addresses.ObjectStore`."""

    def __init__(self, address: StoreAddress) -> None:
        try:
            import ldap3
        except ImportError:
            raise ConfigError(
                "an object store in LDAP needs the package ldap3: pip install 'raybroker[ldap]'"
            ) from None
        self._ldap3 = ldap3
        self._address = address
        parts = urlsplit(address.url)
        try:
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        self._base = unquote(parts.path.lstrip("/"))
        if not host or parts.username is not None or parts.query or parts.fragment or not self._base:
            raise ConfigError(
                f"{URL}={address.scheme}://…: it is {address.scheme}://host:port/BASE, where BASE is the entry that the"
                " objects are below, such as ou=objects,dc=example,dc=org; the user is java.naming.security.principal"
            )
        secure = address.scheme == "ldaps"
        if address.principal and not address.password:
            raise ConfigError(
                f"object store {address.url}: {address.principal} has no password: java.naming.security.credentials, or"
                " a passfile (raybroker.objects.passfile) with raybroker.objects.password=…"
            )
        tls = self._tls(host) if secure or address.start_tls else None
        self.shown = f"{address.scheme}://{host}{f':{port}' if port else ''}/{self._base}"
        self._server = ldap3.Server(
            host,
            port=port or (636 if secure else 389),
            use_ssl=secure,
            tls=tls,
            get_info=ldap3.NONE,
            connect_timeout=CONNECT_TIMEOUT_S,
        )
        self._connection: Any = None

    def _tls(self, host: str) -> Any:
        """TLS with a server whose certificate is trusted and names the host."""
        trust = self._address.trust
        if trust and not Path(trust).is_file():
            raise ConfigError(f"{TRUST}={trust}: there is no such file")
        return self._ldap3.Tls(validate=ssl.CERT_REQUIRED, ca_certs_file=trust or None, sni=host)

    def __enter__(self) -> LdapStore:
        from ldap3.core.exceptions import LDAPException

        try:
            connection = self._ldap3.Connection(
                self._server,
                user=self._address.principal or None,
                password=self._address.password or None,
                receive_timeout=ANSWER_TIMEOUT_S,
                raise_exceptions=False,
                auto_referrals=False,
                check_names=False,
            )
            if self._address.start_tls:
                connection.open(read_server_info=False)
                connection.start_tls(read_server_info=False)  # It raises where the server does not.
            if not connection.bind():
                why = connection.result["description"]
                connection.unbind()
                raise ConfigError(
                    f"object store {self.shown}: {self._address.principal or 'anybody'} is not let in: {why}"
                )
        except LDAPException as error:
            raise self._unreachable(error) from None
        self._connection = connection
        return self

    def __exit__(self, *_: object) -> None:
        from ldap3.core.exceptions import LDAPException

        connection, self._connection = self._connection, None
        try:
            connection.unbind()
        except (LDAPException, OSError):
            pass  # It is closed in any case.

    def canonical(self, name: str) -> str:
        return name[len(PREFIX) :].strip() if name.lower().startswith(PREFIX) else name

    def get(self, name: str) -> str | None:
        result = self._do(
            "search",
            self._entry(name),
            "(objectClass=*)",
            search_scope=self._ldap3.BASE,
            attributes=["javaClassName", "javaReferenceAddress"],
            allowed=("noSuchObject",),
        )
        if result == "noSuchObject":
            return None
        rows = [row for row in self._connection.response or () if row.get("type") == "searchResEntry"]
        if not rows:
            return None
        text = _text_of(rows[0]["attributes"])
        if text is None:
            raise ForeignObjectError(f"{name!r} in {self.shown} is an entry of another program; choose another name")
        if (other := name_in(text)) not in (None, name):
            raise ForeignObjectError(f"{self.shown} takes {name!r} for the name of {other!r}, which is there already")
        return text

    def all(self) -> Iterator[tuple[str, str]]:
        from ldap3.core.exceptions import LDAPException

        try:
            found = self._connection.extend.standard.paged_search(
                self._base,
                f"(javaClassName={CLASS})",
                search_scope=self._ldap3.LEVEL,
                attributes=["javaClassName", "javaReferenceAddress"],
                paged_size=PAGE_ENTRIES,
                generator=True,
            )
            for count, row in enumerate(found):
                if count >= OBJECTS_MAX:
                    raise ConfigError(f"object store {self.shown} has more than {OBJECTS_MAX} objects")
                text = _text_of(row["attributes"]) if row.get("type") == "searchResEntry" else None
                if text is not None and (name := name_in(text)) is not None:
                    yield name, text
        except LDAPException as error:
            raise self._unreachable(error) from None
        self._check(())

    def exchange(self, name: str, old: str | None, new: str | None) -> bool:
        entry = self._entry(name)
        if old == new:
            return self.get(name) == old
        if new is None:
            return self._do("delete", entry, allowed=_GONE) == "success"
        value, description = _BEFORE + new, AdministeredObject.of_text(name, new).description
        if old is None:
            attributes = {"cn": _cn(name), "javaClassName": CLASS, "javaReferenceAddress": value}
            if description:
                attributes["description"] = description
            return self._do("add", entry, _CLASSES, attributes, allowed=_GONE) == "success"
        changes: dict[str, list[Any]] = {
            "javaReferenceAddress": [
                (self._ldap3.MODIFY_DELETE, [_BEFORE + old]),
                (self._ldap3.MODIFY_ADD, [value]),
            ],
            "description": [(self._ldap3.MODIFY_REPLACE, [description] if description else [])],
        }
        return self._do("modify", entry, changes, allowed=_GONE) == "success"

    def _entry(self, name: str) -> str:
        from ldap3.utils.dn import escape_rdn

        return f"{PREFIX}{escape_rdn(_cn(name))},{self._base}"

    def _do(self, what: str, *args: Any, allowed: tuple[str, ...], **more: Any) -> str:
        """Do one operation; returns what the server says of it, which is success or one of ``allowed``."""
        from ldap3.core.exceptions import LDAPException

        try:
            getattr(self._connection, what)(*args, **more)
        except LDAPException as error:
            raise self._unreachable(error) from None
        return self._check(allowed)

    def _check(self, allowed: tuple[str, ...]) -> str:
        result = self._connection.result
        said = str(result["description"])
        if said == "success" or said in allowed:
            return said
        hint = ""
        if said in ("objectClassViolation", "invalidAttributeSyntax", "undefinedAttributeType"):
            hint = "; the server needs the schema of RFC 2713 (OpenLDAP: java.schema)"
        elif said == "insufficientAccessRights":
            hint = "; name a user who may, with java.naming.security.principal"
        raise ConfigError(f"object store {self.shown}: {said} {result.get('message', '')!s:.200}{hint}")

    def _unreachable(self, error: Exception) -> ConfigError:
        said = str(error)
        if "doesn't match any name" in said:
            return ConfigError(
                f"object store {self.shown}: its certificate is of another host than {self._server.host}"
            )
        hint = f"; {TRUST} names a file with whom to trust" if "certificate verify failed" in said else ""
        return ConfigError(f"object store {self.shown} does not answer: {type(error).__name__} {said:.200}{hint}")


def _cn(name: str) -> str:
    """The cn of an object's entry."""
    data = name.encode()
    return name if len(data) <= CN_BYTES_MAX else f"sha256:{hashlib.sha256(data).hexdigest()}"


def _text_of(attributes: Mapping[str, Any]) -> str | None:
    """The text of an entry; None for an entry of another program."""
    if CLASS not in _values(attributes.get("javaClassName")):
        return None
    for value in _values(attributes.get("javaReferenceAddress")):
        if value.startswith(_BEFORE):
            return value[len(_BEFORE) :]
    return None


def _values(found: Any) -> list[str]:
    many = found if isinstance(found, list) else [] if found is None else [found]
    return [value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value) for value in many]
