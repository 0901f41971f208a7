"""Paging of one host: where its files are, and how large its message buffer is."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from raybroker.hosting.host_memory import memory_limit
from raybroker.model.settings.settings import ConfigView
from raybroker.model.sizes import MIB, UNLIMITED

BUFFER_BYTES_MAX: Final = 512 * MIB
"""Largest buffer of all hosts of a broker that is chosen by itself."""
BUFFER_BYTES_MIN: Final = 8 * MIB
"""Smallest buffer of one host that is chosen by itself."""
MEMORY_PARTS: Final = 3
"""The buffers take one part of so many of the memory."""


def directory_of(config: ConfigView, beside: Path | None, *names: str) -> Path | None:
    """The directory of a host's paging files; None: the host does not page.

    ``beside``: the directory of its store, if it has one; ``names``: what tells it from other hosts.
    """
    configured = config["raybroker.paging.directory"]
    if configured:
        return Path(configured).expanduser().joinpath(*names)
    return None if beside is None else beside / "paging"


def message_buffer_bytes(config: ConfigView, hosts: int) -> int:
    """The buffer of one of ``hosts`` hosts of a broker."""
    configured: int = config["raybroker.paging.message_buffer_bytes"]
    if configured != UNLIMITED:
        return configured
    return max(min(memory_limit(config) // MEMORY_PARTS, BUFFER_BYTES_MAX) // max(hosts, 1), BUFFER_BYTES_MIN)
