"""A credit pool whose limit is lowered while more is on its way: nothing is granted beyond it, and nothing stalls."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from raybroker.client.consumer.prefetch.credit_pool import Share
from raybroker.client.consumer.prefetch.prefetch_tuner import PrefetchTuner
from raybroker.client.consumer.prefetch.tuned_pool import TunedCreditPool


class Rig:
    """Two members that always have messages; what they are granted comes when the test says."""

    def __init__(self) -> None:
        self.now_ns = 1_000
        self.told = 0
        self.tuner = PrefetchTuner(1, 200)
        self.pool = TunedCreditPool(self.tuner, 50, now_ns=lambda: self.now_ns, due=lambda: None, tuned=self.note)
        self.shares = [self.pool.join(), self.pool.join()]
        self.owed: dict[Share, int] = dict.fromkeys(self.shares, 0)
        for share in self.shares:
            self.pool.opened(share, self.pool.asks(200), drained=True, most=200)
            self.pool.ready(share)

    def note(self) -> None:
        self.told += 1

    def granted(self) -> None:
        for grant in self.pool.grants():
            assert grant.credit >= 0
            self.owed[grant.share] += grant.credit
            if not grant.credit and not grant.stands:
                self.owed[grant.share] = 0
                self.pool.drained(grant.share)

    def come(self, share: Share) -> None:
        count, self.owed[share] = self.owed[share], 0
        if count:
            ask = share.arrived(count)
            assert ask >= 0
            self.owed[share] += ask

    def take(self, share: Share, pace_ns: int) -> None:
        self.now_ns += pace_ns
        if share.buffered:
            ask = share.consumed(1)
            assert ask >= 0
            self.owed[share] += ask
        else:
            share.wanted()


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.sampled_from([1_000, 1_000_000, 3_000_000_000]), st.booleans()),
        min_size=10,
        max_size=40,
    )
)
def test_the_sums_hold_and_messages_go_on_to_come(turns: list[tuple[int, int, bool]]) -> None:
    rig = Rig()
    for index, pace_ns, comes in turns:
        share = rig.shares[index]
        rig.granted()
        for one in rig.shares if comes else ():
            rig.come(one)
        for _ in range(5):
            rig.take(share, pace_ns)
        pool = rig.pool
        assert pool.used == sum(one.used for one in rig.shares)
        assert pool.granted == sum(one.granted for one in rig.shares) >= 0
        assert 1 <= pool.limit <= 200
    for _ in range(400):
        if 4 * rig.pool.limit > 3 * 200:
            break
        rig.granted()
        for share in rig.shares:
            rig.come(share)
            while share.buffered:
                rig.take(share, 1_000)
    assert 4 * rig.pool.limit > 3 * 200, "it is quick at last, and the limit is not wrong by a third any more"
    assert rig.told > 0
