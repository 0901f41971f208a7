"""messages.log is one JSON object a line, and rolls."""

from __future__ import annotations

import json
from pathlib import Path

from raybroker.config import Config
from raybroker.logs.messages import MessagesLog


def test_a_row_is_a_line_with_its_date(tmp_path: Path) -> None:
    config = Config.from_values({"imq.log.timezone": "Asia/Tokyo", "raybroker.log.messages_bytes": 4096})
    log = MessagesLog(tmp_path, config.__getitem__)
    row = {"event": "Produced", "ms": 1_700_000_000_250, "content": {"text": 'a "b"\n', 7: None}}
    for _ in range(100):
        log(row)
    log.close()
    lines = (tmp_path / "messages.log").read_text().splitlines()
    assert json.loads(lines[0]) == {
        "date": "2023-11-15T07:13:20.250+09:00",
        "event": "Produced",
        "ms": 1_700_000_000_250,
        "content": {"text": 'a "b"\n', "7": None},
    }
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files[:2] == ["messages.log", "messages_1.log"]
    assert all(path.stat().st_size <= 4096 for path in tmp_path.iterdir())
