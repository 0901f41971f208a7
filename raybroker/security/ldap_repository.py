"""A directory server (LDAP) as a repository: a user is found, bound as with the password sent, and has groups there.

The attributes are MQ's. A user's entry is searched below ``base`` by ``uidattr`` and ``usrfilter``, as ``principal``
where one is given, else as anybody; with ``usrformat=dn`` clients send the whole name of the entry and nothing is
searched. Groups are the entries below ``grpbase`` whose ``memattr`` names the user's entry, by their ``gidattr``;
groups of groups do not count. Servers are asked in their order until one answers.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any, Final

from raybroker.model.errors import ConfigError, IllegalStateError
from raybroker.security.access_rules import User
from raybroker.security.mechanism import LoginRefusedError

CONNECT_TIMEOUT_S: Final = 5.0
"""How long one server may take to be connected to; then the next one is asked."""
GROUPS_MAX: Final = 1000
SERVERS_MAX: Final = 16
PORT: Final = 389
PORT_SSL: Final = 636
MISSING: Final = "users in LDAP need the package ldap3: pip install 'raybroker[ldap]'"
UNABLE: Final = ("busy", "unavailable", "other", "operationsError", "timeLimitExceeded", "adminLimitExceeded")
"""Answers of a server that say nothing of the password."""
UNREACHABLE: Final = "the directory of users does not answer; try again later"

log = logging.getLogger("raybroker.security")


@dataclass(frozen=True, slots=True)
class LdapRules:
    """imq.user_repository.ldap.*; ``password``: of ``principal``."""

    servers: tuple[tuple[str, int], ...]
    base: str
    principal: str = ""
    password: str = field(default="", repr=False)
    uidattr: str = "uid"
    usrformat: str = ""
    usrfilter: str = ""
    grpsearch: bool = False
    grpbase: str = ""
    gidattr: str = "cn"
    memattr: str = "member"
    grpfilter: str = ""
    timeout_s: int = 280
    tls: bool = False


def servers_of(text: str, *, tls: bool) -> tuple[tuple[str, int], ...]:
    """(host, port) of each server in a list with spaces between; raises ConfigError."""
    found = []
    for word in text.split():
        host, colon, port = word.removeprefix("ldap://").removeprefix("ldaps://").rpartition(":")
        if not colon:
            host, port = port, str(PORT_SSL if tls else PORT)
        if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
            raise ConfigError(f"imq.user_repository.ldap.server={text!r}: {word!r} is no host:port")
        found.append((host.strip("[]"), int(port)))
    if not 1 <= len(found) <= SERVERS_MAX:
        raise ConfigError(f"imq.user_repository.ldap.server={text!r}: name 1 to {SERVERS_MAX} servers, host:port")
    return tuple(found)


class LdapRepository:
    """Raises ConfigError for rules that cannot be right, also where ldap3 is missing."""

    def __init__(self, rules: LdapRules) -> None:
        try:
            import ldap3
        except ImportError:
            raise ConfigError(f"imq.authentication.basic.user_repository=ldap: {MISSING}") from None
        if not rules.base and rules.usrformat != "dn":
            raise ConfigError("imq.user_repository.ldap.base: say below which entry the users are")
        if rules.principal and not rules.password:
            raise ConfigError(
                "imq.user_repository.ldap.principal has no password: put imq.user_repository.ldap.password=… into the"
                " passfile (imq.passfile.enabled=true)"
            )
        if rules.grpsearch and not rules.grpbase:
            raise ConfigError("imq.user_repository.ldap.grpsearch=true needs imq.user_repository.ldap.grpbase")
        self._ldap3 = ldap3
        self._rules = rules

    def check(self, name: str, password: str) -> User:
        """See security.mechanism.Repository."""
        if not password:
            raise LoginRefusedError("sent no password")  # A bind without one succeeds, as anybody.
        from ldap3.core.exceptions import LDAPException

        faults = []
        for server in self._rules.servers:
            try:
                return self._check_at(server, name, password)
            except LDAPException as error:
                faults.append(f"{server[0]}:{server[1]}: {type(error).__name__} {error!s:.200}")
        log.error("[B3102] users cannot be checked, and nobody is let in: %s", "; ".join(faults))
        raise IllegalStateError(UNREACHABLE)

    def _check_at(self, server: tuple[str, int], name: str, password: str) -> User:
        rules = self._rules
        entry = name if rules.usrformat == "dn" else self._entry_of(server, name)
        with self._bound(server, entry, password) as connection:
            if connection is None:
                raise LoginRefusedError("has a wrong password, or may not bind")
            user = self._name_of(entry) if rules.usrformat == "dn" else name
            if not rules.grpsearch:
                return User(user)
            if not rules.principal:
                return User(user, self._groups_of(connection, entry))
        with self._bound(server, rules.principal, rules.password) as connection:
            return User(user, self._groups_of(self._required(connection), entry))

    def _bound(self, server: tuple[str, int], who: str, password: str) -> _Bound:
        ldap3, rules = self._ldap3, self._rules
        host, port = server
        connect_s = min(CONNECT_TIMEOUT_S, rules.timeout_s)
        at = ldap3.Server(host, port=port, use_ssl=rules.tls, get_info=ldap3.NONE, connect_timeout=connect_s)
        return _Bound(
            ldap3.Connection(
                at,
                user=who or None,
                password=password or None,
                receive_timeout=rules.timeout_s,
                read_only=True,
                raise_exceptions=False,
                auto_referrals=False,
            )
        )

    def _required(self, connection: Any) -> Any:
        if connection is None:
            from ldap3.core.exceptions import LDAPBindError

            raise LDAPBindError("imq.user_repository.ldap.principal is not let in")
        return connection

    def _entry_of(self, server: tuple[str, int], name: str) -> str:
        """The name of the one entry that a user has."""
        from ldap3.utils.conv import escape_filter_chars

        rules = self._rules
        wanted = f"({rules.uidattr}={escape_filter_chars(name)})"
        if rules.usrfilter:
            wanted = f"(&{wanted}{_in_brackets(rules.usrfilter)})"
        with self._bound(server, rules.principal, rules.password) as connection:
            found = self._search(self._required(connection), rules.base, wanted, [rules.uidattr], 2)
        if not found:
            raise LoginRefusedError("is unknown")
        if len(found) > 1:
            raise LoginRefusedError(f"has several entries below {rules.base}")
        return str(found[0]["dn"])

    def _groups_of(self, connection: Any, entry: str) -> frozenset[str]:
        from ldap3.utils.conv import escape_filter_chars

        rules = self._rules
        wanted = f"({rules.memattr}={escape_filter_chars(entry)})"
        if rules.grpfilter:
            wanted = f"(&{wanted}{_in_brackets(rules.grpfilter)})"
        found = self._search(connection, rules.grpbase, wanted, [rules.gidattr], GROUPS_MAX + 1)
        if len(found) > GROUPS_MAX:
            raise LoginRefusedError(f"is in more than {GROUPS_MAX} groups")
        return frozenset(str(name) for row in found for name in _values(row["attributes"].get(rules.gidattr)))

    def _search(self, connection: Any, base: str, wanted: str, attributes: list[str], most: int) -> list[Any]:
        """Entries; raises LDAPException when the server does not carry the search out."""
        from ldap3.core.exceptions import LDAPOperationResult

        connection.search(base, wanted, attributes=attributes, size_limit=most)
        result = connection.result
        if result["description"] not in ("success", "sizeLimitExceeded"):
            raise LDAPOperationResult(
                result=result["result"], description=result["description"], dn=base, message=result["message"]
            )
        return [row for row in connection.response or () if row.get("type") == "searchResEntry"]

    def _name_of(self, entry: str) -> str:
        """The user's name in the name of an entry, such as ann in uid=ann,ou=people."""
        from ldap3.core.exceptions import LDAPInvalidDnError
        from ldap3.utils.dn import parse_dn

        try:
            parts = parse_dn(entry)
        except LDAPInvalidDnError:
            raise LoginRefusedError("is not the name of an entry") from None
        for attribute, value, _ in parts:
            if attribute.lower() == self._rules.uidattr.lower():
                return str(value)
        raise LoginRefusedError(f"has no {self._rules.uidattr} in the name of the entry")


class _Bound:
    """A connection for a ``with``: None when the server does not take user and password."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def __enter__(self) -> Any:
        from ldap3.core.exceptions import LDAPOperationResult

        try:
            if self._connection.bind():
                return self._connection
            result = self._connection.result
            if result["description"] in UNABLE:
                raise LDAPOperationResult(
                    result=result["result"], description=result["description"], message=result["message"]
                )
            return None
        except BaseException:
            self._connection.unbind()
            raise

    def __exit__(self, *_: object) -> None:
        self._connection.unbind()


def _in_brackets(wanted: str) -> str:
    return wanted if wanted.startswith("(") else f"({wanted})"


def _values(found: Any) -> list[Any]:
    return found if isinstance(found, list) else [] if found is None else [found]
