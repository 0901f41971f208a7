"""The source distribution is a whole checkout, and what is installed from it works without one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.metrics.answering import answering
from tests.tidy.source import ROOT

TOPS = ("raybroker", "tests", "dashboards", "deploy", "benchmarks", ".ci")
FILES = ("README.md", "pyproject.toml", ".gitignore")
LEFT_BEHIND = ("__pycache__", "*.pyc", "*.egg-info", "results", ".hypothesis")
BUILD = "import hatchling.build as backend, sys; print(backend.build_sdist(sys.argv[1]))"
pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("distribution")]


def run(*words: str, cwd: Path, path: Path | None = None) -> str:
    """Standard output of a program that has to succeed; ``path``: where it finds modules first."""
    environment = {**os.environ, **({} if path is None else {"PYTHONPATH": str(path)})}
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this checkout, without what runs have left in it."""
    copy = tmp_path_factory.mktemp("checkout")
    for top in TOPS:
        shutil.copytree(ROOT / top, copy / top, ignore=shutil.ignore_patterns(*LEFT_BEHIND))
    for file in FILES:
        shutil.copy(ROOT / file, copy / file)
    return copy


@pytest.fixture(scope="module")
def unpacked(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the source distribution has."""
    out = tmp_path_factory.mktemp("sdist")
    name = run(sys.executable, "-c", BUILD, str(out), cwd=checkout).split()[-1]
    with tarfile.open(out / name) as archive:
        archive.extractall(out, filter="data")
    return out / name.removesuffix(".tar.gz")


def files_of(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_the_source_distribution_has_every_file_of_the_checkout(checkout: Path, unpacked: Path) -> None:
    there, found = files_of(checkout), files_of(unpacked)
    assert len(there) > 1000
    assert there - found == set()
    assert found - there <= {"PKG-INFO"}


def test_tests_run_from_the_source_distribution(unpacked: Path) -> None:
    words = ("tests/tidy/test_boards.py", "tests/tidy/test_import_law.py", "tests/unit/model/test_packages.py")
    said = run(sys.executable, "-m", "pytest", "-n", "0", "-q", *words, cwd=unpacked, path=unpacked)
    assert " passed" in said
    origin = run(sys.executable, "-c", "import raybroker; print(raybroker.__file__)", cwd=unpacked, path=unpacked)
    assert Path(origin.strip()).is_relative_to(unpacked)


def test_what_is_installed_from_it_draws_boards_without_a_checkout(unpacked: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    target, pictures = tmp_path / "target", tmp_path / "pictures"
    run(
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-compile",
        "--no-build-isolation",
        "--no-index",
        "--target",
        str(target),
        str(unpacked),
        cwd=tmp_path,
    )
    assert {name.partition("/")[0] for name in files_of(target)} >= {"raybroker", "bin"}
    assert not {"tests", "dashboards", "deploy", "benchmarks"} & {path.name for path in target.iterdir()}
    origin = run(sys.executable, "-c", "import raybroker; print(raybroker.__file__)", cwd=tmp_path, path=target)
    assert Path(origin.strip()).is_relative_to(target)
    pages = run(sys.executable, "-m", "raybroker", "help", cwd=tmp_path, path=target)
    assert len(pages.splitlines()) > len(list((ROOT / "raybroker" / "manual").rglob("*.md")))
    assert run(sys.executable, "-m", "raybroker", "help", "settings", cwd=tmp_path, path=target).startswith(
        "# Reference"
    )
    with answering() as url:
        words = ("boards", "render", "--prometheus", url, "--out", str(pictures), "cluster")
        run(sys.executable, "-m", "raybroker", *words, cwd=tmp_path, path=target)
    assert (pictures / "cluster.png").read_bytes()[:4] == b"\x89PNG"


def test_ray_is_bounded_by_the_release_that_the_tests_run_with() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    every = [*project["dependencies"], *(one for more in project["optional-dependencies"].values() for one in more)]
    bounds = [one.specifier for one in map(Requirement, every) if one.name == "ray"]
    assert len(bounds) == 3
    here = version("ray")
    major, minor = (int(part) for part in here.split(".")[:2])
    deployed = [
        found
        for path in (ROOT / "deploy").rglob("*")
        if path.is_file()
        for found in re.findall(r"\bray(?:\[\w+\])?==([\d.]+\d)", path.read_text(encoding="utf-8"))
    ]
    assert len(deployed) >= 4
    for bound in bounds:
        assert all(one in bound for one in (here, *deployed)), f"Ray {here}, deployed {deployed}: {bound}"
        assert f"{major}.{minor + 1}.0" not in bound, f"the tests have not run with Ray {major}.{minor + 1}"
