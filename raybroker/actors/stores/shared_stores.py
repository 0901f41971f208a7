"""Messages of brokers that share a database (``imq.cluster.ha``): how they are given to the next tenure of a broker."""

from __future__ import annotations

from pathlib import Path

from raybroker.actors.stores.store_tables import shared_brokers, tables_of_broker
from raybroker.config import Config
from raybroker.model.errors import IllegalStateError, StoreError
from raybroker.model.settings.settings import ConfigView
from raybroker.model.shared_store import SharedRow, StoreState
from raybroker.store.sql.administration import HAND_OVER_S
from raybroker.store.sql.opening import holder_of_tenure
from raybroker.store.sql.shared import SharedBrokers
from raybroker.system.clock import SystemClock


def hand_over(config: ConfigView, directory: Path, cluster: str, broker: str, tenure: int) -> list[str]:
    """Have a broker's messages belong to this tenure alone; the hosts that somebody had open.  Raises StoreError."""
    clock = SystemClock()
    return tables_of_broker(config, directory, cluster, broker).hand_over(
        holder_of_tenure(tenure), monotonic_ns=clock.monotonic_ns, sleep=clock.sleep, patience_s=HAND_OVER_S
    )


def begin_tenure(config: Config, directory: Path, cluster: str, broker: str, node: str) -> int:
    """Give a broker that is being started its messages; the number of its tenure.  One that has just ended is given
    the time after which it counts as silent.

    Raises IllegalStateError when it lives somewhere, or somebody is starting it; ConfigError, StoreError.
    """
    shared = shared_brokers(config, directory.parent, cluster)
    if not (shared.view().row_of(broker) or SharedRow(broker)).tenure:
        tables_of_broker(config, directory, cluster, broker).check_closed()  # By one that knows of no tenures.
    row = _silent(shared, broker, config["imq.cluster.monitor.interval"] * config["imq.cluster.monitor.threshold"])
    if not shared.take(broker, tenure=row.tenure, beats=row.beats, node=node):
        raise IllegalStateError(f"broker {broker} is being started by somebody else at this moment; look: list bkr")
    try:
        hand_over(config, directory, cluster, broker, row.tenure + 1)
    except StoreError as error:
        shared.set_state(broker, row.tenure + 1, StoreState.BROKER_DOWN, str(error))
        raise
    return row.tenure + 1


def _silent(shared: SharedBrokers, broker: str, silence_s: int) -> SharedRow:
    """The row of a broker that gives no signs of life; raises IllegalStateError for one that does."""
    view = shared.view()
    row = view.row_of(broker) or SharedRow(broker)
    left_ms = row.beat_ms + silence_s * 1000 - view.now_ms
    if not row.tenure or row.state is StoreState.BROKER_DOWN or left_ms <= 0:
        return row
    SystemClock().sleep(left_ms / 1000)
    now = shared.view().row_of(broker)
    if now is None or (now.tenure, now.beats) != (row.tenure, row.beats):
        raise IllegalStateError(
            f"broker {broker} gives signs of life from node {row.node}, and is {row.state} in {shared.shown}: it runs"
            " in another Ray, or is being started there"
        )
    return now
