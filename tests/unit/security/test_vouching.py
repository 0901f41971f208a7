"""Vouchers: one broker says to another one who a client is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raybroker.errors import ProtocolError, ResourceAllocationError, SecurityError
from raybroker.security import vouching
from raybroker.security.lockout import FAILURES_MAX
from raybroker.security.mechanism import LoginPeer
from raybroker.security.user_file import UserEntry
from raybroker.security.vouching import VOUCHER_S, VoucherBook, Vouching
from raybroker.wire.vouchers import proof_of

USERS = {"ann": UserEntry("v", "user"), "old": UserEntry("v", active=False)}


class Pair:
    """Broker b1, which gives vouchers out, and b2, which asks it."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.book = VoucherBook("b1", lambda: self.now_s)
        self.asked: list[str] = []
        self.other = Vouching(lambda: USERS, self._ask, lambda: self.now_s)

    async def _ask(self, broker: str, args: dict[str, Any]) -> str:
        self.asked.append(broker)
        return self.book.redeem(**args)

    def log_in(self, told: dict[str, str], secret: str | None = None) -> Any:
        login = self.other.exchange(LoginPeer("10.0.0.1"))
        challenge = login.make_challenge(told["voucher"])
        key = bytes.fromhex(told["secret"] if secret is None else secret)
        return asyncio.run(login.finish(proof_of(key, challenge)))[0].user


def test_a_voucher_is_good_for_one_login_of_its_user() -> None:
    pair = Pair()
    told = pair.book.give_out("ann")
    user = pair.log_in(told)
    assert (user.name, user.groups, pair.asked) == ("ann", {"user"}, ["b1"])
    with pytest.raises(SecurityError):
        pair.log_in(told)


def test_a_voucher_with_a_wrong_proof_is_used_up() -> None:
    pair = Pair()
    told = pair.book.give_out("ann")
    for secret in ("00" * 32, None):
        with pytest.raises(SecurityError):
            pair.log_in(told, secret)


def test_a_voucher_is_good_for_a_while() -> None:
    pair = Pair()
    told = pair.book.give_out("ann")
    pair.now_s += VOUCHER_S
    with pytest.raises(SecurityError):
        pair.log_in(told)


@pytest.mark.parametrize("user", ["old", "nobody"])
def test_a_user_has_to_be_known_where_the_client_comes(user: str) -> None:
    pair = Pair()
    with pytest.raises(SecurityError):
        pair.log_in(pair.book.give_out(user))


def test_who_guesses_has_to_wait() -> None:
    pair = Pair()
    for _ in range(FAILURES_MAX):
        with pytest.raises(SecurityError, match="wrong"):
            pair.log_in({"voucher": "x b1", "secret": ""})
    with pytest.raises(SecurityError, match="wait"):
        pair.log_in({"voucher": "x b1", "secret": ""})
    assert len(pair.asked) == FAILURES_MAX


@pytest.mark.parametrize("first", ["", "x", " b1", "x " + "b" * 1000])
def test_what_is_no_voucher_is_refused(first: str) -> None:
    with pytest.raises(ProtocolError, match="voucher"):
        Pair().other.exchange(LoginPeer("10.0.0.1")).make_challenge(first)


def test_vouchers_are_bounded_and_old_ones_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vouching, "VOUCHERS_MAX", 2)
    pair = Pair()
    pair.book.give_out("ann")
    pair.now_s += VOUCHER_S / 2
    kept = pair.book.give_out("ann")
    with pytest.raises(ResourceAllocationError, match="2 logins"):
        pair.book.give_out("ann")
    pair.now_s += VOUCHER_S / 2
    pair.book.give_out("ann")
    assert pair.log_in(kept).name == "ann"
