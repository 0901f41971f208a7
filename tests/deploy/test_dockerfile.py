"""The Dockerfile copies what there is, runs what it may, and gives Ray and raybroker settings that they know."""

from __future__ import annotations

import fnmatch
import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

from raybroker.config import Config
from tests.cluster.rays import ROOT
from tests.deploy.commands import DEPLOY, comment_commands, parse, simple_commands, syntax_fault
from tests.deploy.test_config import unknown_to_ray

PATH = DEPLOY / "Dockerfile"
INSTRUCTIONS = frozenset({"ARG", "FROM", "RUN", "COPY", "ENV", "USER", "WORKDIR", "VOLUME", "CMD"})
PROGRAMS = frozenset({"apt-get", "rm", "useradd", "install", "python", "/opt/raybroker/bin/pip"})
BUILD_S = 100


class Instruction(NamedTuple):
    name: str
    rest: str


def instructions(text: str) -> list[Instruction]:
    """The instructions of a Dockerfile, continued lines joined; raises AssertionError for one that is not expected."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines()
    found = [Instruction(*line.split(None, 1)) for line in joined]
    assert {one.name for one in found} <= INSTRUCTIONS, found
    return found


def ignored(path: str, rules: list[str]) -> bool:
    """Whether the builder does not get a file: the last rule that is about it decides."""
    out = False
    for rule in rules:
        pattern = rule.removeprefix("!").removeprefix("**/")
        if fnmatch.fnmatch(path, pattern) or path.startswith(f"{pattern}/") or f"/{pattern}/" in path:
            out = not rule.startswith("!")
    return out


def rules() -> list[str]:
    lines = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def copy_faults(found: list[Instruction], root: Path) -> list[str]:
    """What cannot be copied: no such file, or no such stage before."""
    faults = []
    stages: list[str] = []
    for one in found:
        words = one.rest.split()
        if one.name == "FROM":
            stages += words[2:] if words[1:2] == ["AS"] else []
        if one.name == "COPY" and words[0].startswith("--from="):
            stage = words[0].partition("=")[2]
            if stage not in stages:
                faults.append(f"no stage {stage}")
        elif one.name == "COPY":
            missing = [name for name in words[:-1] if not (root / name).exists() or ignored(name, rules())]
            faults += [f"{name} is not there" for name in missing]
    return faults


def variables(found: list[Instruction]) -> dict[str, str]:
    pairs = [word.partition("=") for one in found if one.name == "ENV" for word in one.rest.split()]
    return {name: value for name, _, value in pairs}


def read() -> list[Instruction]:
    return instructions(PATH.read_text(encoding="utf-8"))


def test_what_is_copied_is_there() -> None:
    assert copy_faults(read(), ROOT) == []
    wrong = instructions("FROM a AS b\nCOPY raybroker tests ./\nCOPY --from=c /x /x\nCOPY --from=b /x /x\n")
    assert copy_faults(wrong, ROOT) == ["tests is not there", "no stage c"]


def test_all_that_the_package_is_built_from_reaches_the_builder() -> None:
    copies = [one.rest.split() for one in read() if one.name == "COPY" and "--from" not in one.rest]
    copied = {word for words in copies for word in words[:-1]}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert copied == {"pyproject.toml", project["project"]["readme"], *packages}
    assert not ignored("raybroker/py.typed", rules())
    assert ignored("raybroker/cli/__pycache__/x.pyc", rules())
    assert ignored("dist/token", rules())


def test_what_is_run_can_be_parsed_and_is_known() -> None:
    for one in read():
        if one.name == "RUN":
            assert syntax_fault(one.rest) == ""
            assert {words[0] for words in simple_commands(one.rest)} <= PROGRAMS
    assert "unexpected" in syntax_fault("a && && b")


def test_the_command_is_ours() -> None:
    command = json.loads(next(one.rest for one in read() if one.name == "CMD"))
    assert command[0] == "raybroker"
    with pytest.raises(Exception) as shown:  # click's way to end after printing help
        parse(command[0], command[1:])
    assert type(shown.value).__name__ == "Exit"
    build = next(comment_commands(PATH.read_text())).split()
    assert build[:2] == ["docker", "build"]
    assert ROOT / build[build.index("-f") + 1] == PATH


def test_settings_in_the_image_are_known_and_its_processes_are_nobody_special() -> None:
    found = read()
    config = Config.load(environ=variables(found))
    assert config["raybroker.store.dir"] == next(one.rest for one in found if one.name == "VOLUME")
    assert variables(found)["RAY_AUTH_MODE"] == "token"
    assert unknown_to_ray(variables(found)) == []
    assert not [name for name in variables(found) if "TOKEN" in name], "a secret does not belong into an image"
    user = [one.rest for one in found if one.name == "USER"]
    assert user == ["1000"]
    assert f"--uid {user[0]}" in PATH.read_text()


def test_the_python_of_the_image_is_one_that_the_package_is_made_for() -> None:
    version = next(one.rest.partition("=")[2] for one in read() if one.name == "ARG")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"Programming Language :: Python :: {version}" in project["classifiers"]
    assert all(one.rest.startswith("python:${PYTHON}-slim") for one in read() if one.name == "FROM")


def docker_missing() -> str | None:
    if shutil.which("docker") is None:
        return "no docker here"
    done = subprocess.run(["docker", "buildx", "version"], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        done = subprocess.run(["docker", "info"], capture_output=True, text=True, check=False, timeout=30)
    return None if done.returncode == 0 else f"docker cannot build here: {done.stderr.strip()[:200]}"


def test_docker_finds_nothing_wrong() -> None:
    if missing := docker_missing():
        pytest.skip(missing)
    done = subprocess.run(
        ["docker", "build", "--check", "-f", str(PATH), str(ROOT)],
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
