"""The end of the demo: what the brokers' metrics said meanwhile, analysed by Spark into a report."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from raybroker.analysis.lake.export import collecting
from raybroker.demo.display import Display
from raybroker.demo.watch import Picture
from raybroker.model.errors import ConfigError
from raybroker.system.clock import SystemClock

TIER: Final = "?tier=all"
EVERY_S: Final = 1.0
REPORT: Final = "raybroker-demo.html"


@contextmanager
def recording(cluster: str) -> Iterator[Path]:
    """A lake that the cluster's metrics are collected in while the block runs; it is removed by :func:`analysed`."""
    from raybroker.actors import cluster as clusters

    lake = Path(tempfile.mkdtemp(prefix="rblake"))
    clock = SystemClock()
    found = clusters.find(cluster)
    assert found is not None
    places: dict[str, str] = {}

    def targets() -> dict[str, str]:
        """A broker that was killed comes back with another port."""
        places.update(found.endpoints())
        return {broker: url + TIER for broker, url in places.items()}

    with collecting(lake, targets, clock.now_ms, interval_s=EVERY_S):
        yield lake


def analysed(lake: Path, out: Path, picture: Picture, display: Display) -> dict[str, str]:
    """Write the report; what to say of it. Without Java or Spark one line says so, and the demo is as good."""
    clock = SystemClock()
    display.note(picture, "analysing the metrics of the demo with Spark")
    try:
        from raybroker.analysis.run import Analysis, analyze

        result = analyze(Analysis(lake, out, clock.now_ms(), archive=False), lambda: clock.monotonic_ns() / 1e9)
    except (ConfigError, ImportError) as error:
        return {"report": f"none: {error}"}
    finally:
        shutil.rmtree(lake, ignore_errors=True)
    worst = result.findings
    text = f"{result.files[0]}  ({result.facts.samples:,.0f} samples, {len(worst)} findings"
    return {"report": text + (f", first: {worst[0].subject}: {worst[0].text})" if worst else ")")}
