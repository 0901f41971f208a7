"""What holds for every test: cluster tests run one by one, seeds are reproducible, and what is collected stays.

A run without arguments leaves out what takes long (:data:`LEFT_OUT`); files, folders and ``-m`` say otherwise.
"""

from __future__ import annotations

import compileall
import gc
import importlib
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import hypothesis
import pytest

from tests import sweep

TESTS = Path(__file__).parent

# Five workers and hundreds of processes import the same modules: without bytecode each of them compiles all anew.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# What the user of this machine has configured for the command line is none of the tests' business.
os.environ["XDG_CONFIG_HOME"] = str(TESTS / "no-configuration")
os.environ.pop("RAYBROKER_CONTEXT", None)

# Machines where tests run are slow and busy at times: a deadline would test them rather than us.
hypothesis.settings.register_profile("here", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "here")


LEFT_OUT = "not (sweep or cluster or spark or clients or long) or smoke"
"""What a run without arguments takes: a newcomer has the answer in minutes, and .ci/run has stages for the rest."""
SWEEP_TIMES = 12
"""How many times ``--sweep-seconds`` a sweep may take before it counts as hung."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--sweep-seconds",
        type=float,
        default=sweep.SECONDS,
        metavar="S",
        help="what each test marked sweep may spend looking (some take a stated multiple)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Before the workers of xdist are made: they get the expression with the other options."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # Whatever a shell starts in the background ignores Ctrl-C, and so would the programs that tests end by it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.markexpr:
        config.option.markexpr = LEFT_OUT


@pytest.fixture
def sweep_seconds(request: pytest.FixtureRequest) -> float:
    """What this sweep may spend, in seconds."""
    return float(request.config.getoption("--sweep-seconds"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests in tests/cluster are marked so and share one xdist worker: a machine has room for one cluster.

    First of all: the worker reads the groups in this hook too.
    """
    for item in items:
        if item.nodeid.startswith("tests/cluster/"):
            item.add_marker("cluster")
        if item.get_closest_marker("sweep") is not None and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SWEEP_TIMES * item.config.getoption("--sweep-seconds") + 300))
        if item.get_closest_marker("cluster") is not None:
            item.add_marker(pytest.mark.xdist_group("cluster"))
        if item.nodeid.startswith("tests/tidy/"):
            item.add_marker(pytest.mark.xdist_group("tidy"))  # They share the trees of the sources.


def pytest_collection(session: pytest.Session) -> None:
    """Collecting makes millions of objects that stay, and looking for cycles among them takes half as long again."""
    gc.disable()
    if session.config.option.markexpr == LEFT_OUT:
        compile_share(os.environ.get("PYTEST_XDIST_WORKER", "gw0"), os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))


def compile_share(worker: str, workers: str) -> None:
    """Each worker of a whole run begins with a share of the modules of its own, and finds the bytecode of the others.

    In a new checkout all of them would come to the same files at the same moment, and each would compile everything.
    """
    first, step = int(worker.removeprefix("gw")), int(workers)
    if step == 1:
        return
    for path in sorted((TESTS.parent / "raybroker").rglob("*.py"))[first::step]:
        compileall.compile_file(path, quiet=2)
    # Tests are compiled with their assertions rewritten, which importing them does; conftest files prepare that.
    for path in [*sorted(TESTS.rglob("conftest.py")), *sorted(TESTS.rglob("test_*.py"))[first::step]]:
        with suppress(Exception, pytest.skip.Exception):  # Collecting says what is wrong with it.
            importlib.import_module(".".join(path.relative_to(TESTS.parent).with_suffix("").parts))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Where workers take tests by their groups, the groups are in the ids, or everything would go anywhere.

    What was collected stays until the end: no later search for cycles looks at it, and some tests ask for many.
    """
    if getattr(session.config.option, "loadgroup", False):
        lost = [item.nodeid for item in session.items if item.get_closest_marker("cluster") and "@" not in item.nodeid]
        assert not lost, f"pytest and pytest-xdist do not understand each other: {lost[0]} is in no group"
    gc.collect()
    gc.freeze()
    gc.collect()  # Looks at everything that is made from here on as often as if nothing had been there before.
    gc.enable()
