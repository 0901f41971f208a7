"""All fuzz targets: ``python -m tests.fuzz --seconds N [--target NAME …]``; the options are in ``engine.py``."""

from __future__ import annotations

import sys

from tests.fuzz import engine, listeners, wire


def targets() -> engine.Targets:
    """Those of the parts without sockets, and of the listeners."""
    return {**wire.targets(), **listeners.targets()}


if __name__ == "__main__":
    try:
        raise SystemExit(engine.main("tests.fuzz.__main__", targets(), sys.argv[1:]))
    finally:
        listeners.close()
