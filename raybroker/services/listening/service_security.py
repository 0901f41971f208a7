"""Security of a broker's connection services: who logs in, by what, what access rules say, and where it is audited."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from raybroker.logs.audit import Audit
from raybroker.model.errors import SecurityError
from raybroker.model.settings.setting_services import SERVICE_KINDS
from raybroker.model.settings.settings import ConfigView
from raybroker.security.access import Access
from raybroker.security.access_rules import User
from raybroker.security.authentication import Authentication
from raybroker.security.certificate_users import CertificateUsers
from raybroker.security.mechanism import BASIC, VOUCHED, Exchange, Identity, LoginPeer
from raybroker.security.passfile import LDAP, passwords_of
from raybroker.security.rule_file import RuleFile
from raybroker.security.tls import ServerTls
from raybroker.security.user_file import UserFile
from raybroker.security.vouching import AskVoucher, VoucherBook, Vouching
from raybroker.system.clock import SystemClock

FILE: Final = "file"
"""The user repository whose users are in the file of users."""


class ServiceSecurity:
    """The security of one broker, by the files of its directory.

    users  the file of users
    audit  where logins, and what is refused, are written down
    """

    def __init__(self, config: ConfigView, directory: Path, audit: Audit) -> None:
        self.users = UserFile(directory / config["imq.user_repository.file.filename"])
        self.audit = audit
        self._config = config
        self._directory = directory
        self._rules = RuleFile(directory / config["imq.accesscontrol.file.filename"])
        self._certificates = CertificateUsers(directory / config["raybroker.tls.users.name"])
        self._authentication: Authentication
        self.vouchers: VoucherBook
        self._vouching: Vouching

    async def open(self, services: Sequence[str], clock: SystemClock) -> None:
        """Read what logins to these services need. Raises ConfigError."""
        await asyncio.to_thread(self.users.users)
        passwords = await asyncio.to_thread(passwords_of, self._config, self._directory)
        self._authentication = Authentication(
            self._config,
            services,
            users=self.users,
            directory=self._directory,
            ldap_password=passwords.get(LDAP) or "",
            now_s=lambda: clock.monotonic_ns() / 1e9,
        )

    def begin_vouching(self, broker: str, ask: AskVoucher, clock: SystemClock) -> None:
        """Give out vouchers for other brokers, and take theirs. ``ask``: the broker that has given one out."""

        def now_s() -> float:
            return clock.monotonic_ns() / 1e9

        self.vouchers = VoucherBook(broker, now_s)
        self._vouching = Vouching(self.users.users, ask, now_s)

    async def open_keystore(self) -> ServerTls:
        """Open what services with TLS show, and read whom certificates of clients stand for. Raises ConfigError."""
        tls = await asyncio.to_thread(ServerTls.from_config, self._config, self._directory)
        await asyncio.to_thread(self._certificates.users)
        return tls

    def access(self, service: str) -> Access:
        """Return what access rules say of the service, all of it where none hold for it."""
        own: str = self._config[f"imq.{service}.accesscontrol.enabled"]
        controlled = self._config["imq.accesscontrol.enabled"] if own == "inherit" else own == "true"
        return Access(self._rules if controlled else None)

    def login(self, service: str, mechanism: str, peer: LoginPeer) -> Exchange:
        if mechanism == VOUCHED and SERVICE_KINDS[service] == "NORMAL":
            return self._vouching.exchange(peer)
        return self._authentication.exchange(service, mechanism, peer)

    def mechanisms(self, service: str) -> list[str]:
        return self._authentication.names(service)

    def proved_by(self, mechanism: str, identity: Identity) -> object:
        """What the file of users has of a user who has logged in by it; None: he has logged in by something else."""
        by_directory = self._config["imq.authentication.basic.user_repository"] != FILE
        if identity.until_s is not None or (by_directory and mechanism == BASIC):
            return None
        return self.users.users().get(identity.user.name)

    def certified(self, certificate: bytes) -> User:
        """The user that a client's certificate stands for; raises SecurityError."""
        name = self._certificates.user_of(certificate)
        entry = self.users.users().get(name)
        if entry is None or not entry.active:
            state = "unknown" if entry is None else "not active"
            raise SecurityError(f"the user that the certificate stands for, {name!r:.140}, is {state}")
        return User(name, frozenset({entry.group}))

    def close(self) -> None:
        self._authentication.close()
