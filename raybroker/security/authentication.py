"""The mechanisms that the services of a broker offer, as its configuration says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from raybroker.model.errors import ConfigError, NotSupportedError
from raybroker.model.settings.settings import ConfigView
from raybroker.security.basic import Basic
from raybroker.security.checks import CheckThreads
from raybroker.security.digest import Digest
from raybroker.security.file_repository import FileRepository
from raybroker.security.ldap_repository import LdapRepository, LdapRules, servers_of
from raybroker.security.lockout import Lockout
from raybroker.security.mechanism import (
    BASIC,
    DIGEST,
    DIGEST_512,
    MECHANISMS,
    TOKEN,
    UNENCRYPTED,
    Exchange,
    LoginPeer,
    Mechanism,
    Repository,
)
from raybroker.security.token import ALGORITHMS, KeyFile, Token, TokenRules, require_library
from raybroker.security.user_file import UserFile
from raybroker.system import entropy
from raybroker.wire.scram import NONCE_BYTES, SHA256, SHA512

SECRET_BYTES: Final = 32
INHERIT: Final = "inherit"
LDAP: Final = "ldap"
_TYPE: Final = "imq.authentication.type"
_REPOSITORY: Final = "imq.authentication.basic.user_repository"
_LDAP: Final = "imq.user_repository.ldap."
_TOKEN: Final = "raybroker.authentication.token."


class Authentication:
    """``services``: those that listen; ``directory``: of keys; ``now_s``: a clock that never goes back;
    ``ldap_password``: of the principal, from the passfile.

    Raises ConfigError for a configuration by which nobody could log in, or which has a directory server that no login
    would ask.
    """

    def __init__(
        self,
        config: ConfigView,
        services: Sequence[str],
        *,
        users: UserFile,
        directory: Path,
        ldap_password: str = "",
        now_s: Callable[[], float],
    ) -> None:
        offered = {name: offered_by(config, name) for name in services}
        wanted = {kind for kinds in offered.values() for kind in kinds}
        if config[_REPOSITORY] == LDAP and BASIC not in wanted:
            raise ConfigError(
                f"{_REPOSITORY}={LDAP} has no effect: only logins by {BASIC} ask the directory server, and no service"
                f" takes them; set {_TYPE}={BASIC}, or take {_REPOSITORY} away"
            )
        unencrypted = bool(config[UNENCRYPTED])
        lockout = Lockout(now_s)
        self._checks = CheckThreads(config["raybroker.authentication.threads"])
        self._ldap_checks: CheckThreads | None = None
        self._users = users
        made: dict[str, Mechanism] = {}
        if DIGEST in wanted:
            made |= {
                name: Digest(
                    users.users,
                    lockout,
                    nonce=lambda: entropy.token(NONCE_BYTES).hex(),
                    secret=entropy.token(SECRET_BYTES),
                    algorithm=algorithm,
                )
                for name, algorithm in ((DIGEST, SHA256), (DIGEST_512, SHA512))
            }
        if BASIC in wanted:
            repository: Repository = FileRepository(users)
            checks = self._checks
            if config[_REPOSITORY] == LDAP:
                repository = LdapRepository(ldap_rules(config, ldap_password))
                checks = self._ldap_checks = CheckThreads(config["raybroker.user_repository.ldap.connections"])
            made[BASIC] = Basic(repository, lockout, checks, unencrypted=unencrypted)
        if TOKEN in wanted:
            require_library()
            keys = KeyFile(directory / config[f"{_TOKEN}keys"])
            keys.keys()
            made[TOKEN] = Token(keys, token_rules(config), self._checks, unencrypted=unencrypted)
        self._sha512 = made.get(DIGEST_512)
        self._offered: Mapping[str, dict[str, Mechanism]] = {
            name: {kind: made[kind] for kind in kinds} for name, kinds in offered.items()
        }

    def names(self, service: str) -> list[str]:
        """The mechanisms of a service."""
        return list(self._offered[service])

    def exchange(self, service: str, mechanism: str, peer: LoginPeer) -> Exchange:
        """Begin the exchange of one login. Raises NotSupportedError for a mechanism that the service does not offer,
        and SecurityError for a client that may not use it."""
        found = self._offered[service].get(mechanism)
        if mechanism == DIGEST_512 and DIGEST in self._offered[service]:
            found = self._sha512
        if found is None:
            raise NotSupportedError(
                f"service {service} takes no login by {mechanism!r:.40}; it takes {', '.join(self._offered[service])}"
            )
        return found.exchange(peer)

    def close(self) -> None:
        self._checks.close()
        if self._ldap_checks is not None:
            self._ldap_checks.close()


def offered_by(config: ConfigView, service: str) -> list[str]:
    """The mechanisms that the configuration wants for a service; raises ConfigError."""
    name, text = f"imq.{service}.authentication.type", str(config[f"imq.{service}.authentication.type"])
    if text == INHERIT:
        name, text = _TYPE, str(config[_TYPE])
    kinds = list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    unknown = [kind for kind in kinds if kind not in MECHANISMS]
    if unknown or not kinds:
        raise ConfigError(f"{name}={text!r}: it is one or several of {', '.join(MECHANISMS)}, with commas between")
    return kinds


def ldap_rules(config: ConfigView, password: str) -> LdapRules:
    """imq.user_repository.ldap.*; raises ConfigError."""
    tls = bool(config[f"{_LDAP}ssl.enabled"])
    usrformat = config[f"{_LDAP}usrformat"]
    return LdapRules(
        servers_of(config[f"{_LDAP}server"], tls=tls),
        config[f"{_LDAP}base"],
        principal=config[f"{_LDAP}principal"],
        password=password,
        uidattr=config[f"{_LDAP}uidattr"],
        usrformat="" if usrformat == "name" else usrformat,
        usrfilter=config[f"{_LDAP}usrfilter"],
        grpsearch=config[f"{_LDAP}grpsearch"],
        grpbase=config[f"{_LDAP}grpbase"],
        gidattr=config[f"{_LDAP}gidattr"],
        memattr=config[f"{_LDAP}memattr"],
        grpfilter=config[f"{_LDAP}grpfilter"],
        timeout_s=config[f"{_LDAP}timeout"],
        tls=tls,
    )


def token_rules(config: ConfigView) -> TokenRules:
    """raybroker.authentication.token.*; raises ConfigError."""
    name, text = f"{_TOKEN}algorithms", str(config[f"{_TOKEN}algorithms"])
    algorithms = tuple(word.strip() for word in text.split(",") if word.strip())
    if not algorithms or not set(algorithms) <= set(ALGORITHMS):
        raise ConfigError(f"{name}={text!r}: it is one or both of {', '.join(ALGORITHMS)}, with a comma between")
    return TokenRules(
        config[f"{_TOKEN}audience"],
        config[f"{_TOKEN}issuer"],
        config[f"{_TOKEN}leeway"],
        config[f"{_TOKEN}user_claim"],
        config[f"{_TOKEN}groups_claim"],
        algorithms,
    )
