"""Whoever lacks a package is told which extra brings it."""

from __future__ import annotations

import tomllib

import pytest

from raybroker.model.packages import EXTRAS, SERVER, how_to_install
from tests.tidy.source import ROOT

CALLED = {
    "argon2": "argon2-cffi",
    "jwt": "pyjwt",
    "hdrh": "hdrhistogram",
    "prometheus_client": "prometheus-client",
    "fastapi": "ray[serve]",
    "uvicorn": "ray[serve]",
}
"""Name that is imported → name that is installed, where they differ."""


@pytest.mark.parametrize(("package", "extra"), [*EXTRAS.items(), *((name, "server") for name in sorted(SERVER))])
def test_the_extra_that_is_named_brings_the_package(package: str, extra: str) -> None:
    brings = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"][extra]
    assert any(text.lower().startswith(CALLED.get(package, package)) for text in brings)
    hint = how_to_install(ModuleNotFoundError(name=f"{package}.inner"))
    assert hint is not None
    assert f"raybroker[{extra}]" in hint


def test_a_package_that_no_extra_brings_is_an_error_of_its_own() -> None:
    assert how_to_install(ModuleNotFoundError(name="nosuch")) is None
