"""The host as a service: lines of its engine reach the log at the level that they carry."""

from __future__ import annotations

import asyncio
import logging

import pytest

from raybroker.config import Config
from raybroker.engine.ports import Notice
from raybroker.hosting.host_service import HostService, HostStorage
from raybroker.store.memory import MemoryStore
from tests.unit.engine.rig import Clock


def test_a_notice_is_for_information_and_every_other_line_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def host() -> HostService:
        return HostService(HostStorage(MemoryStore()), Clock(), Config.from_values({}), token=b"t")

    report = asyncio.run(host()).host.report
    with caplog.at_level(logging.INFO, "raybroker.host"):
        report(Notice("[B2000] what ends well"))
        report("[B1000] what does not")
    assert [(row.levelno, row.getMessage()) for row in caplog.records] == [
        (logging.INFO, "[B2000] what ends well"),
        (logging.WARNING, "[B1000] what does not"),
    ]
