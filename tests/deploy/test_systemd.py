"""The systemd units: systemd accepts them, the programs understand their commands, and they hang together."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.commands import DEPLOY, environment, faults
from tests.deploy.test_config import redis_settings

UNITS = DEPLOY / "systemd"
ENVIRONMENT = environment(DEPLOY / "config" / "raybroker.env")
RAY = "raybroker-ray.service"
"""The name under which the broker knows the head or the node of its machine."""
PREFIX = "/opt/raybroker/bin/"
SPECIFIERS = {"%i": "b2", "%H": "machine"}

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
each_unit = pytest.mark.parametrize("path", sorted(UNITS.glob("*.service")), ids=lambda path: path.stem)


def read(path: Path) -> dict[str, list[str]]:
    """``Section.Key`` → values, in order."""
    found: dict[str, list[str]] = {}
    section = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.setdefault(f"{section}.{key}", []).append(value)
    return found


def unit(name: str) -> dict[str, list[str]]:
    return read(UNITS / f"raybroker-{name}.service")


def command(name: str) -> list[str]:
    """The words of a unit's command, as systemd would put them together."""
    (line,) = unit(name)["Service.ExecStart"]
    for mark, value in SPECIFIERS.items():
        line = line.replace(mark, value)
    found: list[str] = []
    for word in line.split():
        bare = re.fullmatch(r"\$(\w+)", word)
        found += ENVIRONMENT[bare[1]].split() if bare else [re.sub(r"\$\{(\w+)\}", lambda m: ENVIRONMENT[m[1]], word)]
    return found


def said(path: Path, folder: Path, edit: tuple[str, str] = ("", "")) -> str:
    """What systemd says of a unit beside the others, with programs in the places where they will be installed."""
    programs = folder / "programs"
    programs.mkdir()
    for name in ("ray", "raybroker", "redis-server"):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    units = folder / "units"
    units.mkdir()
    for other in UNITS.glob("*.service"):
        text = other.read_text().replace(PREFIX, f"{programs}/").replace("/usr/bin/redis", f"{programs}/redis")
        (units / other.name).write_text(text.replace(*edit) if other == path else text)
    alias = "raybroker-node.service" if "node" in path.name else "raybroker-head.service"
    (units / RAY).symlink_to(units / alias)
    name = path.name.replace("@.", "@b2.")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", name],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{units}:", "SYSTEMD_LOG_LEVEL": "notice"},
    )
    about = [line for line in done.stderr.splitlines() if "raybroker" in line]
    return "\n".join(about) + ("" if done.returncode == 0 else f"\nexit code {done.returncode}: {done.stderr}")


@needs_systemd
@each_unit
def test_systemd_accepts_the_unit(path: Path, tmp_path: Path) -> None:
    assert said(path, tmp_path) == ""


@needs_systemd
@pytest.mark.parametrize(
    ("edit", "fault"),
    [
        (("Restart=always", "Restrat=always"), "Unknown key"),
        (("Restart=always", "Restart=sometimes"), "Failed to parse"),
        (("ray start", "roy start"), "not executable"),
    ],
)
def test_systemd_finds_what_is_wrong(edit: tuple[str, str], fault: str, tmp_path: Path) -> None:
    assert fault in said(UNITS / "raybroker-node.service", tmp_path, edit)


@each_unit
def test_the_program_understands_its_command(path: Path) -> None:
    words = command(path.stem.removeprefix("raybroker-"))
    assert words[0].startswith((PREFIX, "/usr/bin/"))
    assert faults(shlex.join(words)) == []


@pytest.mark.parametrize("name", ["head", "node", "broker@"])
def test_all_have_the_environment_of_the_cluster(name: str) -> None:
    assert unit(name)["Service.EnvironmentFile"] == ["/etc/raybroker/raybroker.env"]
    assert unit(name)["Service.User"] == ["raybroker"]


@pytest.mark.parametrize("name", ["head", "node"])
def test_ray_comes_back_and_offers_a_place_for_a_broker(name: str) -> None:
    found = unit(name)
    assert found["Service.Restart"] == ["always"]
    assert found["Unit.StartLimitIntervalSec"] == ["0"], "systemd would give up after five tries"
    assert found["Service.OOMPolicy"] == ["continue"]
    assert found["Install.Alias"] == [RAY]
    words = command(name)
    assert f"--resources={ENVIRONMENT['NODE_RESOURCES']}" in words
    assert "--block" in words
    assert set(ENVIRONMENT["NODE_PORTS"].split()) <= set(words)


def test_the_folders_are_those_of_the_environment() -> None:
    for name in ("head", "node"):
        assert ENVIRONMENT["RAYBROKER_STORE__DIR"] == f"/var/lib/{unit(name)['Service.StateDirectory'][0]}"
        assert ENVIRONMENT["RAY_TMPDIR"] == f"/var/cache/{unit(name)['Service.CacheDirectory'][0]}"


def test_the_broker_joins_whenever_its_ray_starts_and_tries_until_it_is_in() -> None:
    found = unit("broker@")
    assert found["Unit.BindsTo"] == found["Unit.After"] == [RAY]
    assert found["Install.WantedBy"] == ["raybroker-head.service raybroker-node.service"]
    assert (found["Service.Type"], found["Service.RemainAfterExit"]) == (["oneshot"], ["yes"])
    assert found["Service.Restart"] == ["on-failure"]
    assert found["Unit.StartLimitIntervalSec"] == ["0"]
    from raybroker.cli.exits import Exit

    assert found["Service.RestartPreventExitStatus"] == [str(int(Exit.USAGE))]


@pytest.mark.skipif(shutil.which("systemctl") is None, reason="no systemctl here")
@pytest.mark.parametrize("name", ["head", "node"])
def test_enabling_the_units_makes_ray_start_the_broker(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "etc/systemd/system"
    folder.mkdir(parents=True)
    for path in UNITS.glob("*.service"):
        shutil.copy(path, folder)
    ray = f"raybroker-{name}.service"
    enable = ["systemctl", f"--root={tmp_path}", "enable", ray, "raybroker-broker@b2.service"]
    subprocess.run(enable, check=True, capture_output=True)
    wanted = folder / f"{ray}.wants" / "raybroker-broker@b2.service"
    assert wanted.readlink().name == "raybroker-broker@.service"
    assert (folder / "multi-user.target.wants" / ray).is_symlink()
    assert (folder / RAY).readlink().name == ray


def test_the_head_remembers_in_the_redis_that_is_started_for_it() -> None:
    settings = redis_settings(DEPLOY / "config" / "redis.conf")
    assert f"RAY_REDIS_ADDRESS={settings['bind']}:{settings['port']}" in unit("head")["Service.Environment"][0].split()
    assert "raybroker-redis.service" in unit("head")["Unit.Wants"][0].split()
    assert "raybroker-redis.service" in unit("head")["Unit.After"][0].split()
    assert settings["dir"] == f"/var/lib/{unit('redis')['Service.StateDirectory'][0]}"
