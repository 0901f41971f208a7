"""What holds for unit tests alone: none starts Ray."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn

import pytest


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
def _unit_tests_do_not_start_ray() -> Iterator[None]:
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
