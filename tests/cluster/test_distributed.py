"""A distributed queue over two brokers of one Ray (W-109 … W-115)."""

from __future__ import annotations

from pathlib import Path

import raybroker as rb
from tests.cluster.rays import small_store
from tests.contracts.handles import bodies, take, until


def test_members_share_messages_and_forward_what_nobody_takes(own_ray: str, tmp_path: Path) -> None:
    with rb.start("spread", brokers=2, config=small_store(tmp_path)) as cluster:
        assert cluster.brokers == ["b1", "b2"]
        with rb.connect(cluster="spread", broker="b1", ServerAffinityEnabled=False) as connection:
            admin, session = connection.admin(), connection.session()
            admin.create_destination("queue", "work", distributed=True, hosting="shared")
            session.producer("work").send_many(range(20))
            rows = admin.query_destination("queue", "work")["members"]
            assert {row["broker"]: row["messages"] for row in rows} == {"b1": 10, "b2": 10}
            consumers = [session.consumer("work") for _ in range(2)]
            assert sorted(c._core.info()["brokers"] for c in consumers) == [["b1"], ["b2"]]
            found = [body for consumer in consumers for body in bodies(take(consumer, 10))]
            assert sorted(found) == list(range(20))
            kept, closed = consumers
            assert closed.receive_nowait() is None
            assert kept.receive_nowait() is None
            closed.close()
            (lonely,) = {"b1", "b2"} - set(kept._core.info()["brokers"])
            with rb.connect(cluster="spread", broker=lonely, LoadBalancingEnabled=False) as other:
                sender = other.session().producer("work")
                balance = sender._core._balance
                member = balance.members[lonely]
                until(lambda: member.attached)
                for done in [future for _, future in member.put_many(range(300), sender._core.shared)]:
                    done.result(20)
            rows = admin.query_destination("queue", "work")["members"]
            assert {row["broker"]: row["messages"] for row in rows}[lonely] == 300
            assert kept.receive(timeout=0.2) is None
            admin.update_destination("queue", "work", forwardDelay=0)
            assert bodies(take(kept, 300)) == list(range(300))
            assert kept.receive_nowait() is None
            until(lambda: admin.query_destination("queue", "work")["messages"] == 0)
            until(lambda: admin.list_transactions() == [])
