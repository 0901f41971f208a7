"""``python -m benchmarks.tools``: fetches the peers that no Debian package has, and says where they are.

Kafka is the jars of ``org.apache.kafka:kafka_2.13`` and what they need, resolved by Maven; a current NATS is built by
``go install`` from its module.  Both go into one folder, below the user's cache unless ``BENCHMARKS_TOOLS`` names
another one; a folder of jars that exists already may be given with ``BENCHMARKS_KAFKA``.

    python -m benchmarks.tools                # both
    python -m benchmarks.tools kafka
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from benchmarks.servers import find_program

KAFKA_VERSION: Final = "4.1.0"
KAFKA: Final = "org.apache.kafka:kafka_2.13"
LOG: Final = "org.slf4j:slf4j-simple:1.7.36"
"""Kafka logs through SLF4J 1.7 and brings no backend: without one its errors are lost."""
NATS_VERSION: Final = "v2.15.2"
NATS: Final = "github.com/nats-io/nats-server/v2"
FETCH_SECONDS: Final = 1200.0
_POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>raybroker.benchmarks</groupId><artifactId>kafka</artifactId><version>1</version>
  <dependencies>{dependencies}</dependencies>
</project>
"""


def folder() -> Path:
    """Where fetched tools are kept."""
    if given := os.environ.get("BENCHMARKS_TOOLS"):
        return Path(given)
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "raybroker" / "benchmarks"


def kafka_jars() -> Path | None:
    """The folder with Kafka's jars, or None when there is none."""
    given = os.environ.get("BENCHMARKS_KAFKA")
    jars = Path(given) if given else folder() / f"kafka-{KAFKA_VERSION}"
    return jars if any(jars.glob("kafka_2.13-*.jar")) else None


def nats_server() -> str | None:
    """The NATS server that was built here, or None."""
    return shutil.which("nats-server", path=str(folder() / f"nats-{NATS_VERSION}"))


def pom(*artifacts: str) -> str:
    """A project file that depends on ``group:artifact:version`` each."""
    entries = (artifact.split(":") for artifact in artifacts)
    rows = (
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"
        for group, name, version in entries
    )
    return _POM.format(dependencies="".join(rows))


def fetch_kafka() -> str:
    """Resolves the jars with Maven; the reason why not, or an empty text."""
    if kafka_jars():
        return ""
    maven = find_program("mvn")
    if not maven or not find_program("java"):
        return "kafka needs Java 17 and Maven (apt-get install openjdk-17-jre-headless maven)"
    with tempfile.TemporaryDirectory() as scratch:
        project, jars = Path(scratch) / "pom.xml", Path(scratch) / "jars"
        project.write_text(pom(f"{KAFKA}:{KAFKA_VERSION}", LOG))
        copy = "dependency:copy-dependencies"
        command = [maven, "-B", "-q", "-f", str(project), copy, f"-DoutputDirectory={jars}", "-DincludeScope=runtime"]
        return _carry_out(command, {}) or _keep(jars, folder() / f"kafka-{KAFKA_VERSION}")


def fetch_nats() -> str:
    """Builds the server with Go; the reason why not, or an empty text."""
    if nats_server():
        return ""
    go = find_program("go") or shutil.which("go", path="/usr/local/go/bin")
    if not go:
        return f"nats-current needs Go, of the version that {NATS} asks for (apt-get install golang)"
    with tempfile.TemporaryDirectory() as scratch:
        built = Path(scratch) / "built"
        fault = _carry_out([go, "install", f"{NATS}@{NATS_VERSION}"], {"GOBIN": str(built)})
        return fault or _keep(built, folder() / f"nats-{NATS_VERSION}")


def _carry_out(command: Sequence[str], env: dict[str, str]) -> str:
    try:
        done = subprocess.run(
            command, env={**os.environ, **env}, capture_output=True, text=True, check=False, timeout=FETCH_SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"{command[0]} did not end within {FETCH_SECONDS:.0f} s"
    return "" if done.returncode == 0 else f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-2000:]}"


def _keep(found: Path, home: Path) -> str:
    """Moves a folder to its place, whole or not at all."""
    home.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{home.name}-", dir=home.parent))
    shutil.copytree(found, fresh, dirs_exist_ok=True)
    fresh.chmod(0o755)
    shutil.rmtree(home, ignore_errors=True)
    fresh.rename(home)
    return ""


FETCH: Final[dict[str, Callable[[], str]]] = {"kafka": fetch_kafka, "nats": fetch_nats}


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when all that was asked for is there."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tools", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("tools", nargs="*", metavar="TOOL", help=f"some of: {', '.join(FETCH)} (all)")
    options = parser.parse_args(arguments)
    if unknown := set(options.tools) - set(FETCH):
        parser.error(f"not known: {', '.join(sorted(unknown))}; there are {', '.join(FETCH)}")
    faults = 0
    for name in options.tools or FETCH:
        fault = FETCH[name]()
        faults += bool(fault)
        print(f"{name}: {fault or 'ready'}", flush=True)
    print(f"in {folder()}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
