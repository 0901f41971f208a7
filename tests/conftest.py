"""What holds for every test: unit tests do not start Ray, cluster tests run one by one, seeds are reproducible.

A run without arguments leaves out what takes long (:data:`LEFT_OUT`); files, folders and ``-m`` say otherwise.
"""

from __future__ import annotations

import compileall
import gc
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import hypothesis
import pytest

from tests import sweep

TESTS = Path(__file__).parent

# Four workers and hundreds of processes import the same modules: without bytecode each of them compiles all anew.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# What the user of this machine has configured for the command line is none of the tests' business.
os.environ["XDG_CONFIG_HOME"] = str(TESTS / "no-configuration")
os.environ.pop("RAYBROKER_CONTEXT", None)

# Machines where tests run are slow and busy at times: a deadline would test them rather than us.
hypothesis.settings.register_profile("here", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "here")


LEFT_OUT = "not (sweep or cluster or spark or long) or smoke"
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
        if item.path.is_relative_to(TESTS / "cluster"):
            item.add_marker("cluster")
        if item.get_closest_marker("sweep") is not None and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SWEEP_TIMES * item.config.getoption("--sweep-seconds") + 300))
        if item.get_closest_marker("cluster") is not None:
            item.add_marker(pytest.mark.xdist_group("cluster"))
        if item.path.is_relative_to(TESTS / "tidy"):
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


def refuse_ray(*args: object, **options: object) -> NoReturn:
    """Stands in for ``ray.init``, which Ray also calls by itself at the first use of an actor."""
    raise RuntimeError("unit tests do not start Ray: move this one to tests/cluster, or test without the actor")


class _RefuseAtImport(MetaPathFinder):
    """Replaces ``ray.init`` as soon as somebody imports Ray; importing it here would cost every run seconds."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "ray":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("ray")
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_refuse(module: Any) -> None:
            execute(module)
            module.init_of_ray, module.init = module.init, refuse_ray

        spec.loader.exec_module = execute_and_refuse  # type: ignore[method-assign]
        return spec


@pytest.fixture(autouse=True)
def _unit_tests_do_not_start_ray(request: pytest.FixtureRequest) -> Iterator[None]:
    if not request.path.is_relative_to(TESTS / "unit"):
        yield
        return
    finder = _RefuseAtImport()
    ray: Any = sys.modules.get("ray")
    if ray is None:
        sys.meta_path.insert(0, finder)
    else:
        ray.init_of_ray, ray.init = ray.init, refuse_ray
    yield
    if finder in sys.meta_path:
        sys.meta_path.remove(finder)
    ray = sys.modules.get("ray")
    if ray is not None:
        ray.init = ray.init_of_ray
