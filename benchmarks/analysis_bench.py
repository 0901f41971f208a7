"""What the analysis costs: ``python -m benchmarks.analysis_bench [--samples 10m 100m] [--folder DIR] [--json FILE]``.

A lake of a month of a cluster is made of the recording in ``tests/analysis/recordings``: ten million samples for each
ten brokers, so that 100 million are a hundred brokers.  Measured on two cores, each run in a process of its own:

* ingest: fresh exports (packed text, four scrapes a file, as a collector leaves them, never compacted) into the Parquet
  tables by date and broker and those that jobs ask, and the source ``raybroker_lake`` into typed rows of Spark, every
  column used; samples a second, the first time and when warm;
* a whole ``raybroker analyze``: seconds, microseconds a sample, and the most memory that Spark and its workers took;
* the same of three scrapes of one broker: what a report costs before there is anything to read;
* a stream: from a file in the lake to its alert, in intervals of batches.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.machine import describe

ROOT: Final = Path(__file__).resolve().parents[1]
RECORDING: Final = ROOT / "tests" / "analysis" / "recordings" / "b1.prom.gz"
KEPT: Final = ("send_to_store", "service", "prefetch_occupancy", "round_trip")
"""Histograms that lakes of the benchmark have; all of them would be three quarters of the samples."""
FRESH: Final = 4
"""Scrapes of a file that is a minute old, one every 15 seconds: what a collector leaves before compaction."""
DAYS: Final = 30
BROKERS_EACH: Final = 10
SAMPLES_EACH: Final = 10_000_000
START_MS: Final = 1_788_220_800_000
MASTER: Final = "local[2]"
INTERVAL_S: Final = 2.0
GOALS: Final = {"ingest": 500_000, "linear": 1.2, "lag": 2.0, "small": 20.0, "ten million": 45.0}


def recording() -> Any:
    """The recorded broker, without most of its histograms."""
    from raybroker.analysis.lake import lake as layout
    from tests.analysis.generate import Recording, record

    text, _ = layout.content(str(RECORDING))
    frames = [one for one in layout.frames(text, RECORDING.name) if isinstance(one, layout.ScrapeFrame)]
    made = record(frames[0].body, frames[-1].body, (frames[-1].ts - frames[0].ts) / 1000)
    lines = [line for line in made.lines if not line.suffix or any(word in line.metric for word in KEPT)]
    return Recording(lines, made.destinations)


def plan_for(samples: int) -> Any:
    """A month of as many brokers as the number of samples says."""
    from tests.analysis.generate import Plan

    brokers = max(1, round(samples / SAMPLES_EACH * BROKERS_EACH))
    scrapes = samples / brokers / len(recording().lines)
    return Plan(brokers, START_MS, DAYS * 86_400.0, DAYS * 86_400.0 / scrapes, seed=1)


def _make_part(task: tuple[str, int, int, list[int]]) -> int:
    from dataclasses import replace

    from tests.analysis.generate import make

    lake, samples, scrapes, brokers = task
    plan = plan_for(samples)
    if scrapes:
        plan = replace(plan, rotate_ms=round((scrapes - 1) * plan.interval_s * 1000))
    return make(Path(lake), recording(), plan, brokers).samples


def lake_of(folder: Path, samples: int, scrapes: int = 0) -> tuple[Path, int, float]:
    """The lake, made unless it is there; how many samples it has, and how long making it took.

    Files have a day, as compaction leaves them, or so many ``scrapes``.
    """
    name = f"lake-{samples}-by-{scrapes}" if scrapes else f"lake-{samples}"
    lake, noted = folder / name, folder / f"{name}.json"
    if noted.exists():
        return lake, json.loads(noted.read_text())["samples"], 0.0
    shutil.rmtree(lake, ignore_errors=True)
    began = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        tasks = [(str(lake), samples, scrapes, [number]) for number in range(plan_for(samples).brokers)]
        made = sum(pool.imap_unordered(_make_part, tasks))
    noted.write_text(json.dumps({"samples": made}))
    return lake, made, time.monotonic() - began


class Memory(threading.Thread):
    """Watches the resident memory of a process and all below it; ``most`` in bytes."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.most = 0
        self._pid = pid
        self._stop_now = threading.Event()

    def run(self) -> None:
        import psutil

        while not self._stop_now.wait(0.5):
            total = 0
            try:
                root = psutil.Process(self._pid)
                for one in (root, *root.children(recursive=True)):
                    total += one.memory_info().rss
            except psutil.NoSuchProcess:
                continue
            self.most = max(self.most, total)

    def stop(self) -> None:
        self._stop_now.set()
        self.join()


def timed(command: Sequence[str]) -> tuple[float, int, str]:
    """Seconds, most bytes of memory and the output of a command; raises when it fails."""
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    memory = Memory(process.pid)
    memory.start()
    out, errors = process.communicate()
    memory.stop()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}: {errors[-2000:]}")
    return time.monotonic() - began, memory.most, out


def ingest(lake: Path, folder: Path, samples: int) -> dict[str, Any]:
    """Samples a second into tables, and into typed rows of Spark; in this process."""
    from raybroker.analysis import tables
    from raybroker.analysis.lake.plan import PlanWindow
    from raybroker.analysis.spark import session

    window = PlanWindow(0, 1 << 52, START_MS + DAYS * 86_400_000)

    def to_tables(spark: Any) -> None:
        tables.build(spark, lake, folder / "tables", window, tasks=2)

    def to_rows(spark: Any) -> None:
        frame = spark.read.format("raybroker_lake").option("path", str(lake)).load()
        row = frame.selectExpr(
            "count(1) n",
            "sum(value) s",
            "max(ts) t",
            "sum(size(labels)) l",
            "sum(length(metric)) m",
            "max(broker) b",
            "sum(if(type = 'counter', 1, 0)) c",
        ).collect()[0]
        assert row.n == samples, f"{row.n:,} of {samples:,} samples"

    rates: dict[str, Any] = {"samples": samples}
    with session.spark(MASTER, brief=False) as spark:
        for name, work in {"tables": to_tables, "rows": to_rows}.items():
            took = []
            for _ in range(3):
                began = time.monotonic()
                work(spark)
                took.append(time.monotonic() - began)
            rates[name] = {"first": samples / took[0], "warm": samples / statistics.median(took[1:])}
    return rates


def analyze(lake: Path, folder: Path, samples: int) -> dict[str, Any]:
    """One whole run of the command."""
    out = folder / f"report-{samples}.html"
    seconds, most, said = timed(
        [sys.executable, "-m", "raybroker", "analyze", str(lake), "--out", str(out), "--master", MASTER]
    )
    took = json.loads(out.with_suffix(".json").read_text())["took_s"]
    return {"seconds": seconds, "memory_bytes": most, "took_s": took, "said": said.strip().splitlines()[-1]}


def small_lake(folder: Path) -> Path:
    """Three scrapes of the recorded broker."""
    from raybroker.analysis.lake import lake as layout
    from raybroker.analysis.lake.export import LakeWriter

    lake = folder / "lake-small"
    shutil.rmtree(lake, ignore_errors=True)
    text, _ = layout.content(str(RECORDING))
    writer = LakeWriter(lake, "b1")
    for one in [one for one in layout.frames(text, RECORDING.name) if isinstance(one, layout.ScrapeFrame)][:3]:
        writer.write(one.ts, one.body)
    writer.close()
    return lake


def lag(folder: Path, scrapes: int = 12) -> dict[str, float]:
    """How many intervals of batches after its file an alert comes."""
    from raybroker.analysis import names
    from raybroker.analysis.follow import LakeFollower, ScrapeBatch
    from raybroker.analysis.lake.export import LakeWriter
    from raybroker.analysis.spark import session

    lake = folder / "stream"
    shutil.rmtree(lake, ignore_errors=True)
    seen: dict[int, float] = {}
    came = threading.Condition()

    def take(batch: ScrapeBatch) -> None:
        with came:
            seen[batch.newest_ms] = time.monotonic()
            came.notify_all()

    late = []
    with session.spark(MASTER) as spark:
        writer = LakeWriter(lake, "b1", rotate_ms=0)
        writer.write(START_MS, f"{names.DEAD} 0\n".encode())
        follower = LakeFollower(spark, lake, take, interval_s=INTERVAL_S)
        for number in range(scrapes):
            ts = START_MS + 1000 * number
            if number:
                writer.write(ts, f"{names.DEAD} {number}\n".encode())
            began = time.monotonic()
            with came:
                if not came.wait_for(lambda wanted=ts: wanted in seen, 60):
                    raise RuntimeError("the stream does not come forward")
            late.append((seen[ts] - began) / INTERVAL_S)
        follower.stop()
    return {"median": statistics.median(late[2:]), "most": max(late[2:])}


def number_of(text: str) -> int:
    """ "10m" → 10,000,000."""
    scale = {"k": 1_000, "m": 1_000_000}.get(text[-1:].lower(), 1)
    return round(float(text.rstrip("kKmM")) * scale)


def main() -> None:
    """Run what was asked for and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", nargs="+", type=number_of, default=[SAMPLES_EACH, 10 * SAMPLES_EACH])
    parser.add_argument("--folder", type=Path, default=Path("analysis-bench"))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    result: dict[str, Any] = {"machine": describe(given.folder), "runs": {}}
    for samples in given.samples:
        lake, made, seconds = lake_of(given.folder, samples)
        print(f"{made:>13,} samples in the lake, made in {seconds:.0f} s", flush=True)
        run = analyze(lake, given.folder, samples)
        run["us_per_sample"] = run["seconds"] * 1e6 / made
        result["runs"][made] = run
        print(
            f"{'':13} analysed in {run['seconds']:.1f} s, {run['us_per_sample']:.2f} µs a sample, "
            f"{run['memory_bytes'] / 1e9:.2f} GB; {run['took_s']}",
            flush=True,
        )
        if made <= 1.01 * SAMPLES_EACH:
            print(f"{'':13} goal for ten million samples: {GOALS['ten million']:.0f} s")
    result["small"] = analyze(small_lake(given.folder), given.folder, 3)
    print(f"three scrapes: {result['small']['seconds']:.1f} s, goal {GOALS['small']:.0f}; {result['small']['took_s']}")
    fresh, made, _ = lake_of(given.folder, min(given.samples), FRESH)
    result["ingest"] = ingest(fresh, given.folder, made)
    for name in ("tables", "rows"):
        one = result["ingest"][name]
        print(
            f"ingest of fresh exports into {name}: {one['warm']:,.0f} samples a second (first {one['first']:,.0f}), "
            f"goal {GOALS['ingest']:,}",
            flush=True,
        )
    costs = [run["us_per_sample"] for _, run in sorted(result["runs"].items())]
    if len(costs) > 1:
        print(f"cost a sample, most against fewest samples: {costs[-1] / costs[0]:.2f}, goal {GOALS['linear']}")
    result["lag"] = lag(given.folder)
    median, most = result["lag"]["median"], result["lag"]["most"]
    print(f"stream: {median:.2f} intervals behind, at most {most:.2f}, goal {GOALS['lag']}")
    if given.json is not None:
        given.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
