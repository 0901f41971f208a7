"""What drives fuzz targets: ``python -m tests.fuzz --seconds N [--target NAME …] [--engine atheris|hypothesis]``.

With atheris installed (``pip install atheris``) inputs are guided by coverage; otherwise hypothesis makes them out of
valid ones, and the command says so. A target takes bytes and returns; whatever else leaves it is a bug, and the input
is printed.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import itertools
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tests.sweep import Deadline, until

ROUND = 100
"""Inputs that are tried at a time."""
INPUT_S = 60
"""An input that takes longer has found something that hangs."""
RSS_MIB_MAX = 2048
Target = Callable[[bytes], None]
Targets = Mapping[str, tuple[Target, "st.SearchStrategy[bytes]"]]
INSTRUMENTED = (
    "raybroker.wire",
    "raybroker.services",
    "raybroker.security",
    "raybroker.engine",
    "raybroker.content",
    "raybroker.model.blocks.block",
    "raybroker.model.blocks.large_block",
)
"""Where bytes of a peer are looked at. Instrumenting the rest takes long, and shows nothing of them."""
NOT_INSTALLED = "atheris is not installed here (pip install atheris)"


def has_atheris() -> bool:
    return importlib.util.find_spec("atheris") is not None


def examine(
    target: Target, strategy: st.SearchStrategy[bytes], examples: int, *, drawn_from: int | None = None
) -> None:
    """Try so many inputs; raises what the target raised, with the smallest input that does it in its notes.

    ``drawn_from``: the same number means the same inputs; without one it is as hypothesis is told to.
    """

    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=settings.default.derandomize if drawn_from is None else False,  # type: ignore[union-attr]
    )
    @given(strategy)
    def check(data: bytes) -> None:
        target(data)

    (check if drawn_from is None else seed(drawn_from)(check))()


def by_hypothesis(known: Targets, names: list[str], seconds: float, first: int, size: int = ROUND) -> dict[str, int]:
    """Rounds over all targets until the time is over; name → inputs tried.  Rounds are numbered from ``first``, and
    the number decides the inputs."""
    tried, deadline = dict.fromkeys(names, 0), Deadline(seconds)
    for number in until(deadline, itertools.count(first)):
        for name in names:
            if deadline.passed and tried[name]:
                break
            target, strategy = known[name]
            examine(target, strategy, size, drawn_from=number)
            tried[name] += size
    return tried


def by_atheris(module: str, known: Targets, name: str, seconds: float) -> int:
    """One target in a process of its own, since libFuzzer ends the process it runs in; the process's exit status."""
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder)
        for index, data in enumerate(_samples(known[name][1], 50)):
            corpus.joinpath(f"seed{index}").write_bytes(data)
        command = [sys.executable, "-m", "tests.fuzz.engine", module, name, folder]
        limits = [f"-max_total_time={seconds:.0f}", f"-rss_limit_mb={RSS_MIB_MAX}", f"-timeout={INPUT_S}"]
        environment = {**os.environ, "TMPDIR": folder}  # libFuzzer ends the process before it tidies up.
        return subprocess.run(
            [*command, *limits, f"-artifact_prefix={folder}/"], check=False, env=environment
        ).returncode


def _samples(strategy: st.SearchStrategy[bytes], count: int) -> list[bytes]:
    found: list[bytes] = []
    examine(found.append, strategy, count, drawn_from=random.randrange(1 << 32))
    return found


def _inside_atheris(module: str, name: str, arguments: list[str]) -> None:
    import atheris

    with atheris.instrument_imports(include=list(INSTRUMENTED)):
        target = importlib.import_module(module).targets()[name][0]
        target(b"")  # What the first input makes is no growth, and what it imports is instrumented too.
    atheris.Setup([f"{module}:{name}", *arguments], target)
    atheris.Fuzz()


def main(module: str, known: Targets, arguments: list[str]) -> int:
    """The command line of a module whose ``targets()`` are ``known``."""
    parser = argparse.ArgumentParser(prog=f"python -m {module.removesuffix('.__main__')}", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="in all")
    parser.add_argument("--target", action="append", choices=sorted(known), help="default: all")
    parser.add_argument("--engine", choices=("atheris", "hypothesis"), help="default: atheris if it is installed")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="of the first round of hypothesis")
    options = parser.parse_args(arguments)
    names = options.target or sorted(known)
    if options.engine == "atheris" and not has_atheris():
        print(f"{NOT_INSTALLED}: --engine hypothesis does without", file=sys.stderr)
        return 2
    engine = options.engine or ("atheris" if has_atheris() else "hypothesis")
    if options.engine is None and engine == "hypothesis":
        print(f"{NOT_INSTALLED}: inputs are made by hypothesis, and are not guided by coverage")
    print(f"fuzzing {', '.join(names)} with {engine} for {options.seconds:g} s")
    if engine == "atheris":
        failed = [name for name in names if by_atheris(module, known, name, options.seconds / len(names)) != 0]
        print(f"failed: {', '.join(failed)}" if failed else "nothing found")
        return 1 if failed else 0
    print(f"the first round is drawn from {options.seed}")
    for name, inputs in by_hypothesis(known, names, options.seconds, options.seed).items():
        print(f"{name}: {inputs} inputs, nothing found")
    return 0


if __name__ == "__main__":
    _inside_atheris(sys.argv[1], sys.argv[2], sys.argv[3:])
