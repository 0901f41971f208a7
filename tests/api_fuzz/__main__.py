"""Run seeds one after the other; prints the first that has faults, and what they are."""

from __future__ import annotations

import argparse
import itertools
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Final

from raybroker.config import Config
from raybroker.store.sql.address import address_of
from raybroker.store.sql.administration import StoreTables
from raybroker.store.sql.database import Database
from tests.api_fuzz.oracle import Verdict, judge
from tests.api_fuzz.plan import plan_of
from tests.api_fuzz.player import Notes, read
from tests.api_fuzz.worker import on_server
from tests.contracts import postgres
from tests.sweep import Deadline

STORES: Final = ("memory", "file", "sql", "postgresql", "cluster")
"""The last one: brokers over files in one process, with clients that outlive them."""
ROUND_S: Final = 300.0
"""How long one round may take before it counts as hung; its threads' stacks are printed then."""


def run_seed(folder: Path, seed: int, store: str) -> Verdict:
    """All rounds of a seed in processes of their own, and the verdict on their notes."""
    if "://" in store:
        _make_tables(folder, store)
    if store == "cluster":
        _process(folder, "cluster", seed, 0, store).wait(2 * ROUND_S)
        return _verdict(folder)
    plan = plan_of(seed, kills=store != "memory")
    for number, planned in enumerate(plan.rounds):
        if _round(folder, seed, number, store, planned.kill_after_s):
            Notes(folder / f"notes.{number}.killed").write("killed")
    if store != "memory":
        _process(folder, "drain", seed, 0, store).wait(ROUND_S)
    return _verdict(folder)


def _verdict(folder: Path) -> Verdict:
    verdict = judge(note for path in sorted(folder.glob("notes.*")) for note in read(path))
    for path in sorted(folder.glob("*.err")):
        if "Traceback" in (text := path.read_text()) or "File " in text:
            verdict.faults.append(f"{path.name}: {text[-2000:]}")
    if not (folder / "notes.drain").exists():
        verdict.faults.append("the broker could not be drained at the end")
    return verdict


def _make_tables(folder: Path, url: str) -> None:
    given = on_server(folder, url)
    database = Database(address_of(Config.of(given), folder))
    StoreTables(database, f"{given['imq.brokerid']}_loopback", "loopback", "loopback").create()


def _process(folder: Path, what: str, seed: int, number: int, store: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.api_fuzz.worker", what, str(folder)]
    command += ["--seed", str(seed), "--round", str(number), "--store", store]
    with open(folder / f"{what}.{number}.err", "w") as errors:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)


def _round(folder: Path, seed: int, number: int, store: str, kill_after_s: float | None) -> bool:
    """Whether it was killed before it came to its end."""
    process = _process(folder, "play", seed, number, store)
    assert process.stdout is not None
    with process, process.stdout:
        process.stdout.readline()
        try:
            process.wait(ROUND_S if kill_after_s is None else kill_after_s)
        except subprocess.TimeoutExpired:
            if kill_after_s is None:
                process.send_signal(signal.SIGABRT)  # faulthandler prints where every thread is.
                return True
            process.kill()
        return process.wait() == -signal.SIGKILL


def run(store: str, *, first: int = 0, seeds: int | None = None, seconds: float | None = None) -> tuple[int, Verdict]:
    """The number of seeds that were run, and the verdict on the last: that with faults, where one has them."""
    with postgres.server() if store == "postgresql" else nullcontext() as server:
        return _run(store if server is None else server.url, first, seeds, Deadline(seconds))


def _run(store: str, first: int, seeds: int | None, deadline: Deadline) -> tuple[int, Verdict]:
    for count in itertools.count(1):
        seed = first + count - 1
        folder = Path(tempfile.mkdtemp(prefix="raybroker-fuzz-"))
        try:
            verdict = run_seed(folder, seed, store)
        finally:
            if not (keep := bool(sys.exc_info()[0])):
                keep = bool(verdict.faults)
            if not keep:
                shutil.rmtree(folder, ignore_errors=True)
        if verdict.faults:
            verdict.faults.insert(0, f"seed {seed}, --store {store}; notes are in {folder}")
        if verdict.faults or count == seeds or deadline.passed:
            return count, verdict
    raise AssertionError("never here")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=STORES, default="file")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, help="how many; without a bound until --seconds have passed")
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args()
    began = time.monotonic()
    count, verdict = run(given.store, first=given.seed, seeds=given.seeds, seconds=given.seconds)
    print(f"{count} seeds in {time.monotonic() - began:.0f} s; the last: {verdict}")
    for fault in verdict.faults[:20]:
        print(f"  {fault}")
    sys.exit(bool(verdict.faults))


if __name__ == "__main__":
    main()
