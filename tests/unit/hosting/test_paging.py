"""Where a host pages, and how large its message buffer is."""

from __future__ import annotations

from pathlib import Path

import pytest

from raybroker.config import Config
from raybroker.hosting import paging
from raybroker.hosting.paging import directory_of, message_buffer_bytes
from raybroker.model.sizes import MIB


def test_a_broker_takes_a_third_of_the_memory_at_most_and_its_hosts_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config.from_values({})
    monkeypatch.setattr(paging, "memory_limit", lambda config: 900 * MIB)
    assert message_buffer_bytes(config, 1) == 300 * MIB
    assert message_buffer_bytes(config, 3) == 100 * MIB
    assert message_buffer_bytes(config, 1_000) == paging.BUFFER_BYTES_MIN
    monkeypatch.setattr(paging, "memory_limit", lambda config: 64_000 * MIB)
    assert message_buffer_bytes(config, 2) == 256 * MIB


def test_what_is_configured_is_the_buffer_of_each_host() -> None:
    config = Config.from_values({"raybroker.paging.message_buffer_bytes": "1m"})
    assert message_buffer_bytes(config, 7) == MIB


def test_paging_files_are_beside_the_store_or_where_the_property_says(tmp_path: Path) -> None:
    beside = tmp_path / "hosts" / "h1"
    assert directory_of(Config.from_values({}), beside, "default", "b1", "h1") == beside / "paging"
    assert directory_of(Config.from_values({}), None, "h1") is None
    config = Config.from_values({"raybroker.paging.directory": str(tmp_path / "fast")})
    assert directory_of(config, beside, "default", "b1", "h1") == tmp_path / "fast" / "default" / "b1" / "h1"
