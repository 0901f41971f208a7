"""Logins of a client at a connection service: it proves who it is by a password, a token or a certificate."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from raybroker.client.connection.channel import Channel
from raybroker.model.errors import ConfigError, NotSupportedError, ProtocolError, SecurityError
from raybroker.system.entropy import token as random_bytes
from raybroker.wire.scram import NONCE_BYTES, ScramClient
from raybroker.wire.vouchers import proof_of

DIGEST: Final = "digest"
BASIC: Final = "basic"
TOKEN: Final = "token"
VOUCHED: Final = "vouched"
DIGEST_512: Final = "digest-512"
SENDS: Final = "raybroker.client.send_secrets"
Token = str | Callable[[], str]
Proving = Callable[..., Awaitable[Any]]
Challenged = Callable[[str], Awaitable[str]]


class Credentials:
    """A user and a password, or a token; its ``repr`` shows neither.

    token   of an identity provider, or a function that gets one for each login
    sends   when a password or a token is sent as it is: private (encrypted, or within the machine), always, never
    proving calls what takes time, beside the loop; None: in any thread
    """

    def __init__(
        self,
        user: str = "",
        password: str = "",
        *,
        token: Token | None = None,
        sends: str = "private",
        proving: Proving | None = None,
    ) -> None:
        self.user = user
        self._password = password
        self._token = token
        self._sends = sends
        self._certified = False
        self._proving = proving or asyncio.to_thread

    once = False
    """They are good for the first broker alone, which vouches for the client to others."""

    @classmethod
    def of_certificate(cls, *, passed_on: bool = False) -> Credentials:
        """Who has shown a certificate over TLS says nothing more. ``passed_on``: it was shown to a gateway."""
        made = cls()
        made._certified = True
        made.once = passed_on
        return made

    def __repr__(self) -> str:
        return f"Credentials({'a token' if self._token is not None else repr(self.user)})"

    def __reduce__(self) -> Any:
        raise TypeError("credentials are not pickled")

    async def log_in(self, channel: Channel, client: dict[str, str]) -> dict[str, Any]:
        """What the service tells; raises what it answers, and SecurityError for a service that cannot be trusted."""
        if self._certified:
            return _checked(await channel.call("certify", {"client": client}))
        if self._token is not None:
            return await self._by_token(channel, client)
        try:
            return await self._by_digest(channel, client)
        except NotSupportedError:
            offered = await channel.call("mechanisms", {})
            if not isinstance(offered, list) or BASIC not in offered:
                raise
        self._require_may_send(channel, "password")
        return await _steps(channel, BASIC, self.user, self._password, client)

    async def _by_digest(self, channel: Channel, client: dict[str, str]) -> dict[str, Any]:
        scram = ScramClient(self.user, self._password, random_bytes(NONCE_BYTES).hex())
        challenge = await channel.call("login", {"mechanism": DIGEST, "first": scram.first(), "client": client})
        final: str = await self._proving(scram.final, str(challenge))
        told = _checked(await channel.call("proof", {"final": final}))
        scram.check(str(told["signature"]))
        return told

    async def _by_token(self, channel: Channel, client: dict[str, str]) -> dict[str, Any]:
        self._require_may_send(channel, "token")
        given = self._token
        text = await asyncio.to_thread(given) if callable(given) else given
        if not isinstance(text, str) or not text:
            raise ConfigError("token: it is a text, or a function that returns one")
        return await _steps(channel, TOKEN, "", text, client)

    def _require_may_send(self, channel: Channel, what: str) -> None:
        if self._sends == "never" or (self._sends == "private" and not channel.link.private):
            raise SecurityError(
                f"the service wants the {what} itself, and the connection is not encrypted: nothing was sent; connect"
                f" with TLS, or allow it with {SENDS}=always"
                if self._sends == "private"
                else f"the service wants the {what} itself, which {SENDS}=never forbids: nothing was sent"
            )


class RelayedDigest(Credentials):
    """A proof that is made elsewhere: its messages are passed on. ``first``: the first of them; ``challenged``: gets
    the challenge and returns the last one; ``signature``: the service's own proof; ``mechanism``: DIGEST or
    DIGEST_512."""

    once = True

    def __init__(self, user: str, first: str, challenged: Challenged, mechanism: str = DIGEST) -> None:
        super().__init__(user)
        self.signature = b""
        self._first = first
        self._challenged = challenged
        self._mechanism = mechanism

    async def log_in(self, channel: Channel, client: dict[str, str]) -> dict[str, Any]:
        challenge = await channel.call("login", {"mechanism": self._mechanism, "first": self._first, "client": client})
        told = _checked(await channel.call("proof", {"final": await self._challenged(str(challenge))}))
        self.signature = str(told["signature"]).encode()
        return told


class VouchedFor(Credentials):
    """The broker where the client has logged in says who it is, to another one. ``told``: its answer to ``vouch``."""

    def __init__(self, told: Any) -> None:
        super().__init__()
        self._told = told

    async def log_in(self, channel: Channel, client: dict[str, str]) -> dict[str, Any]:
        voucher, secret = str(self._told["voucher"]), bytes.fromhex(self._told["secret"])
        challenge = await channel.call("login", {"mechanism": VOUCHED, "first": voucher, "client": client})
        final = proof_of(secret, str(challenge))
        return _checked(await channel.call("proof", {"final": final}))


async def _steps(channel: Channel, mechanism: str, first: str, final: str, client: dict[str, str]) -> dict[str, Any]:
    await channel.call("login", {"mechanism": mechanism, "first": first, "client": client})
    return _checked(await channel.call("proof", {"final": final}))


def _checked(told: Any) -> dict[str, Any]:
    if not isinstance(told, dict) or not {"signature", "broker", "doors", "settings"} <= told.keys():
        raise ProtocolError("the service's answer to the login is malformed")
    return told
