"""A record file that is damaged in the middle: the error says what an administrator can do, and that works."""

from __future__ import annotations

from pathlib import Path

import pytest

from raybroker.actors.join import opened
from raybroker.actors.stores.restore import restore
from raybroker.cluster.backup import dump
from raybroker.cluster.change_record import Change, ChangeRecord
from raybroker.config import Config, store_directory
from raybroker.model.errors import StoreDamagedError
from raybroker.store.record import RecordFile


def test_a_damaged_record_says_what_to_do_and_a_backup_is_restored_in_its_place(tmp_path: Path) -> None:
    config = Config.from_values(
        {"raybroker.store.dir": str(tmp_path), "imq.cluster.masterbroker": "b1", "imq.cluster.brokerlist": "b1"}
    )
    path = store_directory(config, "one", "b1") / "record"
    file = RecordFile(path)
    file.open()
    for number in range(3):
        file.append([b'["life",%d,""]' % number])
    file.close()
    data = bytearray(path.read_bytes())
    data[40] ^= 1
    path.write_bytes(data)
    with pytest.raises(StoreDamagedError, match="move it away while the broker is stopped"):
        opened(RecordFile(path))
    record = ChangeRecord("r", "one", 1)
    record.propose(Change("create_destination", ("queue", "orders"), {}))
    with pytest.raises(StoreDamagedError, match="move it away, and restore again"):
        restore(dump(record), "one", config)
    path.rename(path.with_name("record.damaged"))
    assert restore(dump(record), "one", config) == (path, 1)
    assert opened(RecordFile(path))
