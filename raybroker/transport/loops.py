"""The event loop of every thread that has sockets."""

from __future__ import annotations

import asyncio

import uvloop


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A new loop; uvloop's, which moves bytes with less work than the standard one."""
    return uvloop.new_event_loop()
