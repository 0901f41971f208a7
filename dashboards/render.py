"""Draws the boards without Grafana: python -m dashboards.render is raybroker boards render."""

from __future__ import annotations

import sys

from raybroker.cli.main import app

if __name__ == "__main__":
    app(["boards", "render", *sys.argv[1:]], prog_name="raybroker")
