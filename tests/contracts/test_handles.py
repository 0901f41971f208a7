"""The handles over a broker in the process: memory, a directory, and the asynchronous face."""

from __future__ import annotations

from tests.contracts.handle_basics import Basics


class TestHandles(Basics):
    """Every test of the basics, with each broker of ``conftest.py``."""
