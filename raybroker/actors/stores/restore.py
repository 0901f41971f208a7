"""Restoring a backup as the record of a cluster's master, while all of its brokers are down."""

from __future__ import annotations

from pathlib import Path

from raybroker.cluster.backup import load
from raybroker.cluster.member import restored
from raybroker.config import Config, store_directory
from raybroker.config.brokers import plan_of
from raybroker.model.errors import ConfigError, IllegalStateError, StoreDamagedError
from raybroker.store.record import RecordFile
from raybroker.system import entropy


def restore(backup: bytes, cluster: str, config: Config) -> tuple[Path, int]:
    """(the record's file, how many destinations and subscriptions are in it).

    Raises StoreDamagedError for a damaged backup and ConfigError for one of another cluster, with nothing changed;
    IllegalStateError while the master runs on this machine.
    """
    plan = plan_of(config)
    master = plan.master
    if plan.table:
        raise ConfigError("the record is in a table; restore it by: raybroker dbmgr restore sharecc_tbl")
    if master is None:
        raise ConfigError("there is no master in this configuration (imq.cluster.nomasterbroker): nothing to restore")
    name = config["imq.cluster.clusterid"] or cluster
    state = load(backup, cluster=name).state
    path = store_directory(config, cluster, master) / "record"
    file = RecordFile(path)
    try:
        frames = file.open()
    except StoreDamagedError as error:
        raise StoreDamagedError(f"{error}; move it away, and restore again") from None
    except IllegalStateError:
        raise IllegalStateError(f"broker {master} runs: stop all brokers first (raybroker down)") from None
    try:
        file.replace(restored(frames, backup, cluster=name, name=master, master=master, new_id=entropy.token(8).hex()))
    finally:
        file.close()
    return path, len(state.destinations) + len(state.subscriptions)
