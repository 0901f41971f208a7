"""A loopback that cannot start leaves nothing behind: its store opens as soon as what was wrong is mended."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker.errors import BrokerError
from raybroker.store.journal.format import SECTOR_BYTES
from tests.contracts.handles import WAIT_S


def catalogue(store: Path) -> tuple[Path, int]:
    return store / "catalogue.json", 0


def end_of_a_segment(store: Path) -> tuple[Path, int]:
    """The first batch: it is found when the store is read, after the journal has been opened."""
    return store / "segment-000001", SECTOR_BYTES + 20


@pytest.mark.parametrize("damaged", [catalogue, end_of_a_segment])
def test_a_store_that_was_refused_opens_in_the_same_process_when_it_is_mended(
    tmp_path: Path, damaged: Callable[[Path], tuple[Path, int]]
) -> None:
    store, properties = tmp_path / "store", {"raybroker.metrics.enabled": False}
    with rb.loopback(store, properties=properties) as connection:
        connection.admin().create_policy("p", "x>", maxNumMsgs=7)
        connection.session().producer("q").send("kept")
    path, offset = damaged(store)
    whole = path.read_bytes()
    broken = bytearray(whole)
    broken[offset] ^= 1
    path.write_bytes(broken)
    threads = set(threading.enumerate())
    for _ in range(2):
        with pytest.raises(BrokerError, match=path.name):
            rb.loopback(store, properties=properties)
    left = {thread.name for thread in set(threading.enumerate()) - threads if thread.name == "raybroker-commit"}
    assert left == set()
    path.write_bytes(whole)
    with rb.loopback(store, properties=properties) as connection:
        message = connection.session().receive("q", timeout=WAIT_S)
        assert message is not None
        assert message.body == "kept"


def test_a_store_whose_service_cannot_be_opened_is_let_go_of(tmp_path: Path) -> None:
    store = tmp_path / "store"
    wrong: dict[str, Any] = {"imq.service.activelist": "ssljms"}  # There is no key.
    for _ in range(2):
        with pytest.raises(BrokerError) as refused:
            rb.loopback(store, properties=wrong)
        assert "is open in process" not in str(refused.value)
    with rb.loopback(store) as connection:
        connection.session().producer("q").send("it opens")
