"""Waiting for the end of a leader, on an event loop: a copy works in a thread of its own, and is looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

LOOK_S: Final = 0.05
"""How often a copy is looked at."""


async def until_unled(is_led: Callable[[], bool], timeout_s: float) -> bool:
    """Wait until a copy hears no leader; False: it still does after ``timeout_s`` seconds."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + timeout_s
    while is_led():
        if loop.time() >= until_s:
            return False
        await asyncio.sleep(LOOK_S)
    return True
