"""Mechanism ``vouched``: another broker of the cluster has seen who the client is.

A gateway passes on proofs that only its client can make: of SCRAM, or by a certificate. They are good for its own
broker, and for each other one that the client needs its own broker gives out a voucher, good for one login within
VOUCHER_S. The other broker asks the first one, by the way that the brokers of a cluster have, whether the proof is
right; the user has to be known to it as well.
"""

from __future__ import annotations

import hmac
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from raybroker.model.errors import ProtocolError, ResourceAllocationError, SecurityError
from raybroker.security.access_rules import User
from raybroker.security.lockout import CountedExchange, Lockout
from raybroker.security.mechanism import Identity, LoginPeer
from raybroker.security.user_file import UserEntry
from raybroker.system.entropy import token
from raybroker.wire.vouchers import proof_of

VOUCHER_S: Final = 30.0
VOUCHERS_MAX: Final = 4096
"""Given out and not used; with more the oldest ones that are over go, and where none is, no further ones are made."""
ID_BYTES: Final = 16
SECRET_BYTES: Final = 32
FIRST_CHARS_MAX: Final = 512
AskVoucher = Callable[[str, dict[str, Any]], Awaitable[str]]
"""Asks a broker for the user of a voucher; raises SecurityError, and BrokerGoneError when it does not answer."""


class Voucher(NamedTuple):
    """``until_s``: by the clock of its book."""

    user: str
    secret: bytes
    until_s: float


class VoucherBook:
    """The vouchers of one broker. ``now_s``: a clock that never goes back."""

    def __init__(self, broker: str, now_s: Callable[[], float]) -> None:
        self._broker = broker
        self._now_s = now_s
        self._open: OrderedDict[str, Voucher] = OrderedDict()

    def give_out(self, user: str) -> dict[str, str]:
        """A new one, as its client gets it; raises ResourceAllocationError when too many are open."""
        now_s = self._now_s()
        while self._open and next(iter(self._open.values())).until_s <= now_s:
            self._open.popitem(last=False)
        if len(self._open) >= VOUCHERS_MAX:
            raise ResourceAllocationError(
                f"{VOUCHERS_MAX} logins at other brokers are under way; try again in {VOUCHER_S:g} s"
            )
        number, secret = token(ID_BYTES).hex(), token(SECRET_BYTES)
        self._open[number] = Voucher(user, secret, now_s + VOUCHER_S)
        return {"voucher": f"{number} {self._broker}", "secret": secret.hex()}

    def redeem(self, voucher: str, challenge: str, proof: str) -> str:
        """The user of a voucher, which is used up; raises SecurityError for one that is not open, or a wrong proof."""
        known = self._open.pop(voucher, None)
        if known is None or known.until_s <= self._now_s():
            raise SecurityError("the voucher is not known, used, or older than it may be")
        if not hmac.compare_digest(proof_of(known.secret, challenge).encode(), proof.encode()):
            raise SecurityError("the proof of a voucher is wrong")
        return known.user


class Vouching:
    """``users``: those there are now; ``ask``: the broker that has given a voucher out."""

    def __init__(
        self, users: Callable[[], Mapping[str, UserEntry]], ask: AskVoucher, now_s: Callable[[], float]
    ) -> None:
        self._users = users
        self._ask = ask
        self._lockout = Lockout(now_s)

    def exchange(self, peer: LoginPeer) -> VouchedExchange:
        return VouchedExchange(self._users, self._ask, self._lockout, peer.address)


class VouchedExchange(CountedExchange):
    """One login of a client at ``address``; see security.mechanism.Exchange."""

    def __init__(
        self, users: Callable[[], Mapping[str, UserEntry]], ask: AskVoucher, lockout: Lockout, address: str
    ) -> None:
        super().__init__(lockout, address)
        self._users = users
        self._ask = ask
        self._voucher = self._broker = ""
        self._challenge = token(ID_BYTES).hex()

    def make_challenge(self, first: str) -> str:
        self._voucher, _, self._broker = first.partition(" ")
        if len(first) > FIRST_CHARS_MAX or not self._voucher or not self._broker:
            raise ProtocolError("a voucher is its number and the broker that gave it out")
        self.name = f"vouched for by {self._broker}"
        self.require_unlocked()
        return self._challenge

    async def finish(self, final: str) -> tuple[Identity, str]:
        args = {"voucher": self._voucher, "challenge": self._challenge, "proof": final}
        try:
            name = await self._ask(self._broker, args)
        except SecurityError as error:
            raise self.wrong(str(error)) from None
        entry = self._users().get(name)
        if entry is None or not entry.active:
            raise self.wrong(f"stands for {name!r:.140}, who is {'unknown' if entry is None else 'not active'} here")
        self.right()
        self.name = name
        return Identity(User(name, frozenset({entry.group}))), ""
