"""Writes the boards as JSON, which Grafana reads, into dashboards/boards: python -m dashboards.boards"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from raybroker.boards.catalogue import boards

FOLDER: Final = Path(__file__).parent / "boards"


def written() -> dict[str, str]:
    """File name → what has to be in it."""
    return {f"{name}.json": json.dumps(board, indent=2) + "\n" for name, board in boards().items()}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, text in written().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
