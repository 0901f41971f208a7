"""The room that the consumers of one client share."""

from __future__ import annotations

from raybroker.services.gateways.prefetch_room import SHARE_BYTES_MIN, PrefetchRoom

MOST = 64 * SHARE_BYTES_MIN


def test_shares_leave_something_for_those_who_come_later() -> None:
    room = PrefetchRoom(MOST)
    shares = [room.take_share(MOST // 4) for _ in range(100)]
    assert shares[:4] == [MOST // 4, MOST // 4, MOST // 4, MOST // 8]
    assert shares[-1] == SHARE_BYTES_MIN
    assert sum(shares) <= MOST + 100 * SHARE_BYTES_MIN
    for share in shares:
        room.give_back(share)
    assert room.take_share(MOST) == MOST // 2
