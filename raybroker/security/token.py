"""Mechanism ``token``: the client sends a signed token (JWT, RFC 7519), which an identity provider gave it.

The provider's public keys are in a file (JWKS, RFC 7517), read again when it has changed. A token is taken when it is
signed by one of them with an algorithm that the configuration allows, is for this audience and of this issuer, has a
time of expiry that is not over, and names a user. It ends the connection when it expires.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from raybroker.model.definitions.user import NAME_CHARS_MAX
from raybroker.model.errors import ConfigError, IllegalStateError, ProtocolError, SecurityError
from raybroker.security.access_rules import User
from raybroker.security.checks import CheckThreads
from raybroker.security.mechanism import Identity, LoginPeer, LoginRefusedError, require_safe

ALGORITHMS: Final = ("RS256", "EdDSA")
TOKEN_CHARS_MAX: Final = 12_000
FILE_BYTES_MAX: Final = 1 << 20
KEYS_MAX: Final = 100
GROUPS_MAX: Final = 1000
MISSING: Final = "tokens need the package pyjwt: pip install 'raybroker[login]'"
REFUSED: Final = "the token is not accepted; the broker's log has the reason"

log = logging.getLogger("raybroker.security")


@dataclass(frozen=True, slots=True)
class TokenRules:
    """``audience``, ``issuer``: what a token has to say; "" for anything. ``leeway_s``: how far the clocks of the
    provider and the broker may be apart. ``user_claim``, ``groups_claim``: where a token says who it is."""

    audience: str = ""
    issuer: str = ""
    leeway_s: int = 30
    user_claim: str = "sub"
    groups_claim: str = "groups"
    algorithms: tuple[str, ...] = ALGORITHMS


class KeyFile:
    """The keys of a JWKS file by their id, read again when it has changed. Blocks for the disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, int, int] | None = None
        self._keys: dict[str, Any] = {}

    def keys(self) -> Mapping[str, Any]:
        """Return the keys of now. A file that cannot be read leaves those before, which is said in the log; raises
        ConfigError when there were none before."""
        try:
            stat = self.path.stat()
            seen = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            if seen == self._seen:
                return self._keys
            if stat.st_size > FILE_BYTES_MAX:
                raise ConfigError(f"{self.path} has {stat.st_size} bytes; at most {FILE_BYTES_MAX} are read")
            self._keys = _keys_of(self.path.read_text(encoding="utf-8"), self.path)
        except (OSError, UnicodeDecodeError, ConfigError) as error:
            fault = error if isinstance(error, ConfigError) else ConfigError(f"{self.path} cannot be read: {error}")
            if not self._keys:
                raise fault from None
            log.error("[B2042] the keys of tokens stay as they were: %s", fault)
            return self._keys
        self._seen = seen
        return self._keys


def _keys_of(text: str, path: Path) -> dict[str, Any]:
    from jwt import PyJWKSet
    from jwt.exceptions import PyJWTError

    try:
        found = PyJWKSet.from_json(text).keys
    except (PyJWTError, ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(f'{path} is no JWKS with keys that can be used ({{"keys": [...]}})') from None
    if len(found) > KEYS_MAX:
        raise ConfigError(f"{path} has {len(found)} keys; at most {KEYS_MAX} are taken")
    keys: dict[str, Any] = {}
    for number, key in enumerate(found):
        if key.key_type == "oct":
            raise ConfigError(f"{path}: a key is a shared secret; keys of tokens are public (RSA, Ed25519)")
        keys[key.key_id or f"#{number}"] = key
    return keys


def require_library() -> None:
    """Raises ConfigError where PyJWT is missing."""
    try:
        import jwt  # noqa: F401 - whether it is there
    except ImportError:
        raise ConfigError(f"imq.authentication.type: {MISSING}") from None


def identity_of(token: str, keys: Mapping[str, Any], rules: TokenRules) -> Identity:
    """Return whose token it is; raises LoginRefusedError, which does not show it."""
    import jwt

    try:
        head = jwt.get_unverified_header(token)
    except jwt.exceptions.PyJWTError:
        raise LoginRefusedError("sent what is no token") from None
    algorithm, key_id = str(head.get("alg")), head.get("kid")
    if algorithm not in rules.algorithms:
        raise LoginRefusedError(f"sent a token signed with {algorithm!r:.20}; allowed: {', '.join(rules.algorithms)}")
    if key_id is None and len(keys) == 1:
        (key,) = keys.values()
    else:
        key = keys.get(str(key_id))
    if key is None:
        raise LoginRefusedError(f"sent a token of the key {key_id!r:.80}, which is not in the file of keys")
    if key.algorithm_name != algorithm:
        raise LoginRefusedError(f"sent a token signed with {algorithm}, and its key is for {key.algorithm_name}")
    try:
        claims: dict[str, Any] = jwt.decode(
            token,
            key.key,
            algorithms=[algorithm],
            leeway=rules.leeway_s,
            audience=rules.audience or None,
            issuer=rules.issuer or None,
            options={"require": ["exp", rules.user_claim], "verify_aud": bool(rules.audience)},
        )
    except jwt.exceptions.PyJWTError as error:
        raise LoginRefusedError(f"sent a token that is not good: {error}") from None
    name, groups = claims[rules.user_claim], claims.get(rules.groups_claim, [])
    if not isinstance(name, str) or not 1 <= len(name) <= NAME_CHARS_MAX or not name.isprintable():
        raise LoginRefusedError(f"sent a token whose {rules.user_claim} is no user's name")
    if isinstance(groups, str):
        groups = groups.split()
    if not isinstance(groups, list) or len(groups) > GROUPS_MAX or not all(isinstance(one, str) for one in groups):
        raise LoginRefusedError(f"sent a token whose {rules.groups_claim} is no list of at most {GROUPS_MAX} names")
    return Identity(User(name, frozenset(groups)), float(claims["exp"]) + rules.leeway_s)


class Token:
    """``keys``: of the identity provider; ``unencrypted``: tokens are taken also where others can read them. PyJWT
    reads the clock itself."""

    def __init__(self, keys: KeyFile, rules: TokenRules, checks: CheckThreads, *, unencrypted: bool = False) -> None:
        self._keys = keys
        self._rules = rules
        self._checks = checks
        self._unencrypted = unencrypted

    def exchange(self, peer: LoginPeer) -> TokenExchange:
        require_safe(peer, "tokens", self._unencrypted)
        return TokenExchange(self._keys.keys, self._rules, self._checks, peer.address)


class TokenExchange:
    """One login: ``first`` is nothing, ``final`` the token."""

    def __init__(
        self, keys: Callable[[], Mapping[str, Any]], rules: TokenRules, checks: CheckThreads, address: str
    ) -> None:
        self._keys = keys
        self._rules = rules
        self._checks = checks
        self._address = address
        self.name = ""
        self.why = ""
        self.locked = False

    def make_challenge(self, first: str) -> str:
        if first:
            raise ProtocolError("a login by token begins with nothing")
        return ""

    async def finish(self, final: str) -> tuple[Identity, str]:
        if not 1 <= len(final) <= TOKEN_CHARS_MAX:
            raise ProtocolError(f"a token has 1 to {TOKEN_CHARS_MAX} characters; this one has {len(final)}")
        try:
            identity = await self._checks.run(self._address, self._check, final)
        except LoginRefusedError as refused:
            self.why = f"somebody {refused}"
            raise SecurityError(REFUSED) from None
        except ConfigError as error:
            self.why = str(error)
            raise IllegalStateError("the broker cannot check tokens now; try again later") from None
        self.name = identity.user.name
        return identity, ""

    def _check(self, token: str) -> Identity:
        return identity_of(token, self._keys(), self._rules)
