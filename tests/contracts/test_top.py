"""``raybroker top`` over several brokers: it goes on with what the others say when one is lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from raybroker.cli.top.asking import Looking
from raybroker.cli.top.drawing import ScreenTerms, Size, picture
from raybroker.cli.top.screen import Screen
from raybroker.system.clock import SystemClock
from tests.contracts.cluster_rig import ClusterRig
from tests.contracts.handles import until


def test_a_lost_broker_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    with ClusterRig(tmp_path) as rig:
        name = rig.name()
        rig.connect("b1").admin().create_destination("queue", name)
        for home, count in (("b1", 3), ("b2", 4)):
            rig.connect(home).session().producer(name).send_many(range(count))

        @contextmanager
        def opened() -> Iterator[Any]:
            yield rig.connect("b1").admin()

        looking = Looking(opened)

        def messages() -> int:
            rows = looking.sample("destinations").rows["destinations"]
            return next(int(row["messages"]) for row in rows if row["name"] == name)

        looking.first("destinations")
        until(lambda: messages() == 7)
        rig.kill("b2")
        until(lambda: "b2" in looking.sample("destinations").absent)
        assert messages() == 3
        until(lambda: looking.sample("brokers").rows["brokers"][1]["state"] == "DOWN")
        sight = looking.sample("brokers")
        states = {row["broker"]: (row["state"], row["messages"]) for row in sight.rows["brokers"]}
        assert (states["b1"], states["b2"]) == (("UP", 3), ("DOWN", 4)), "b2 as it was last told"
        now_ns = SystemClock().monotonic_ns()
        lines = picture(Screen(view="brokers"), sight, ScreenTerms("rig", 1.0), Size(100, 20), now_ns).lines
        assert lines[0].text.startswith("raybroker brokers · 0.")
        assert "2 of 3 brokers up" in lines[0].text
        assert lines[1].text.startswith("UNKNOWN  b2: no answer for ")
        looking.close()
