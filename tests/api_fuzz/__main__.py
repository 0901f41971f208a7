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
from tests.api_fuzz.watch import AFTER_S, HUNG, SAYS
from tests.api_fuzz.worker import on_server
from tests.contracts import postgres
from tests.sweep import Deadline

STORES: Final = ("memory", "file", "sql", "postgresql", "cluster")
"""The last one: brokers over files in one process, with clients that outlive them."""
ROUND_S: Final = 300.0
"""How long one round may take before it counts as hung: it ends then, and its notes have the stacks of its threads and
tasks."""


def run_seed(folder: Path, seed: int, store: str, limit_s: float = ROUND_S) -> Verdict:
    """All rounds of a seed in processes of their own, and the verdict on their notes."""
    if "://" in store:
        _make_tables(folder, store)
    if store == "cluster":
        _ended(_process(folder, "cluster", seed, 0, store, 2 * limit_s), 2 * limit_s)
        return _verdict(folder)
    plan = plan_of(seed, kills=store != "memory")
    for number, planned in enumerate(plan.rounds):
        if _round(folder, seed, number, store, planned.kill_after_s, limit_s):
            Notes(folder / f"notes.{number}.killed").write("killed")
    if store != "memory":
        _ended(_process(folder, "drain", seed, 0, store, limit_s), limit_s)
    return _verdict(folder)


def _verdict(folder: Path) -> Verdict:
    verdict = judge(note for path in sorted(folder.glob("notes.*")) for note in read(path))
    for path in sorted(folder.glob("*.err")):
        text = path.read_text()
        if SAYS in text:
            verdict.faults.insert(0, f"{path.name}: {text[text.index(SAYS) :]}")
        elif "Traceback" in text or "File " in text:
            verdict.faults.append(f"{path.name}: {text[-2000:]}")
    if not (folder / "notes.drain").exists():
        verdict.faults.append("the broker could not be drained at the end")
    return verdict


def _make_tables(folder: Path, url: str) -> None:
    given = on_server(folder, url)
    database = Database(address_of(Config.from_values(given), folder))
    StoreTables(database, f"{given['imq.brokerid']}_loopback", "loopback", "loopback").create()


def _process(folder: Path, what: str, seed: int, number: int, store: str, limit_s: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.api_fuzz.worker", what, str(folder)]
    command += ["--seed", str(seed), "--round", str(number), "--store", store, "--limit", str(limit_s)]
    with open(folder / f"{what}.{number}.err", "w") as errors:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)


def _ended(process: subprocess.Popen[str], limit_s: float) -> int:
    """The exit status of a process, which ends by itself soon after its limit; HUNG when it has hung."""
    with process:
        try:
            return process.wait(limit_s + 2 * AFTER_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


def _round(folder: Path, seed: int, number: int, store: str, kill_after_s: float | None, limit_s: float) -> bool:
    """Whether it was killed before it came to its end."""
    process = _process(folder, "play", seed, number, store, limit_s)
    assert process.stdout is not None
    process.stdout.readline()
    if kill_after_s is not None:
        try:
            process.wait(kill_after_s)
        except subprocess.TimeoutExpired:
            process.kill()
    return _ended(process, limit_s) in (-signal.SIGKILL, HUNG)


def run(
    store: str, *, first: int = 0, seeds: int | None = None, seconds: float | None = None, limit_s: float = ROUND_S
) -> tuple[int, Verdict]:
    """The number of seeds that were run, and the verdict on the last: that with faults, where one has them."""
    with postgres.server() if store == "postgresql" else nullcontext() as server:
        return _run(store if server is None else server.url, first, seeds, Deadline(seconds), limit_s)


def _run(store: str, first: int, seeds: int | None, deadline: Deadline, limit_s: float) -> tuple[int, Verdict]:
    for count in itertools.count(1):
        seed = first + count - 1
        folder = Path(tempfile.mkdtemp(prefix="raybroker-fuzz-"))
        try:
            verdict = run_seed(folder, seed, store, limit_s)
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
    parser.add_argument("--limit", type=float, default=ROUND_S, help="seconds after which a round has hung")
    given = parser.parse_args()
    began = time.monotonic()
    count, verdict = run(given.store, first=given.seed, seeds=given.seeds, seconds=given.seconds, limit_s=given.limit)
    print(f"{count} seeds in {time.monotonic() - began:.0f} s; the last: {verdict}")
    for fault in verdict.faults[:20]:
        print(f"  {fault}")
    sys.exit(bool(verdict.faults))


if __name__ == "__main__":
    main()
