"""A Ray node that is drained: its pool goes on elsewhere, from checkpoints, and no message fails by that."""

from __future__ import annotations

from pathlib import Path

import pytest

import raybroker as rb
from raybroker.examples import drained_node
from tests.cluster import rays
from tests.cluster.nodes import running_nodes

pytestmark = [pytest.mark.timeout(300), pytest.mark.long]
CLUSTER = "drained"


def test_the_example_of_a_drained_node_goes_on_elsewhere(tmp_path: Path) -> None:
    with running_nodes(2, cpus=4):
        started = rb.start(CLUSTER, brokers=1, config=rays.small_store(tmp_path))
        found = drained_node.run(documents=12, cluster=CLUSTER)
        print(found)
        assert (found["documents"], found["failures"]) == (12, 0)
        assert found["went_on"], "what was in hand went on where it was"
        with rb.connect(cluster=CLUSTER) as connection:
            assert connection.admin().list_drained_nodes() == []
        started.stop()
