"""What the clients need: fetched by Maven, npm and Go, compiled, and kept in a folder of the user's cache.

    python -m tests.amqp_clients.building      does all of it beforehand

Each folder has a digest of what it is made from in its name, and gets that name when it is complete: what is there is
right, and several processes may build at once.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
JAVA: Final = HERE / "java"
POM: Final = HERE / "pom.xml"
GO: Final = HERE / "clients/go"
NODE: Final = HERE / "clients/node"
TIMEOUT_S: Final = 900
JAVA_RELEASE: Final = "17"
COPYING: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
SHORT_PROGRAM: Final = ("-XX:TieredStopAtLevel=1", "-Xmx512m")
"""For Java: what its second compiler gains, a short program never gains back."""
CLASSES: Final = {
    "javax": ("common", "cases", "joram", "kills", "lookup", "speed", "elsewhere"),
    "jakarta": ("common", "cases", "elsewhere"),
    "artemis": ("reference",),
}
"""Profile of the POM → the packages of java/ that are compiled with its jars."""
JORAM_PROPERTIES: Final = {
    "provider.properties": "jms.provider.admin.class=joram.JoramAdmin\n",
    "test.properties": "timeout=10000\n",
}


class MissingError(Exception):
    """A program or a package of the system is not there; the text says which."""


def program(name: str, package: str) -> str:
    """The path of a program; raises MissingError, which says the Debian package that has it."""
    found = shutil.which(name) or shutil.which(name, path="/usr/local/go/bin")
    if found is None:
        raise MissingError(f"{name} is not installed; it is in Debian's package {package}")
    return found


def cache() -> Path:
    """The folder that keeps what was fetched and compiled."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "raybroker-tests"


def jars(profile: str) -> Path:
    """The folder with the jars of one profile."""
    maven = program("mvn", "maven")

    def fetch(folder: Path) -> None:
        _run([maven, "-q", "-B", "-f", str(POM), f"-P{profile}", COPYING, f"-DoutputDirectory={folder}"], folder)

    return made(f"jars-{profile}", [POM], fetch)


def classes(profile: str) -> str:
    """The class path of the programs of one profile, which are compiled with its jars."""
    compiler = program("javac", "openjdk-17-jdk-headless")
    program("java", "openjdk-17-jdk-headless")
    libraries = f"{jars(profile)}/*"
    sources = [path for package in CLASSES[profile] for path in sorted((JAVA / package).glob("*.java"))]

    def build(folder: Path) -> None:
        with tempfile.TemporaryDirectory() as renamed:
            copies = []
            for path in sources:
                copy = Path(renamed) / path.relative_to(JAVA)
                copy.parent.mkdir(exist_ok=True)
                text = path.read_text()
                # One source for both: JMS 2.0 is in javax.jms, what came after it in jakarta.jms.
                copy.write_text(text.replace("jakarta.jms", "javax.jms") if profile == "javax" else text)
                copies.append(str(copy))
            _run([compiler, "--release", JAVA_RELEASE, "-nowarn", "-d", str(folder), "-cp", libraries, *copies], folder)
        for name, text in JORAM_PROPERTIES.items():
            (folder / name).write_text(text)

    return f"{made(f'classes-{profile}', [POM, *sources], build)}:{libraries}"


def java(
    profile: str, main: str, *arguments: str, flags: tuple[str, ...] = SHORT_PROGRAM, **properties: str
) -> list[str]:
    """The command of one Java program; properties are those of the system, broker_url for broker.url."""
    given = [f"-D{name.replace('_', '.')}={value}" for name, value in properties.items()]
    path = classes(profile)
    return [program("java", "openjdk-17-jdk-headless"), *flags, *given, "-cp", path, main, *arguments]


def go_client() -> str:
    """The compiled client in Go."""
    compiler = program("go", "golang-go")

    def build(folder: Path) -> None:
        _run([compiler, "build", "-o", str(folder / "client"), "."], GO)

    return str(made("go", sorted(GO.iterdir()), build) / "client")


def node_client() -> list[str]:
    """The command of the client in JavaScript."""
    node, installer = program("node", "nodejs"), program("npm", "npm")

    def install(folder: Path) -> None:
        for path in NODE.iterdir():
            if path.is_file():
                shutil.copy(path, folder)
        _run([installer, "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"], folder)

    return [node, str(made("node", sorted(path for path in NODE.iterdir() if path.is_file()), install) / "client.js")]


def proton_client() -> list[str]:
    """The command of the client in Python."""
    if importlib.util.find_spec("proton") is None:
        raise MissingError("python-qpid-proton is not installed; pip install 'raybroker[proton]' compiles it, with gcc")
    return [sys.executable, "-m", "tests.amqp_clients.clients.proton_client"]


def made(kind: str, sources: list[Path], make: Callable[[Path], None]) -> Path:
    """The folder of what ``make`` makes from the sources: there already, or made now, whole or not at all."""
    digest = hashlib.sha256()
    for path in sources:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    home = cache()
    folder = home / f"{kind}-{digest.hexdigest()[:16]}"
    if folder.is_dir():
        return folder
    home.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{kind}-", dir=home))
    try:
        make(unfinished)
        try:
            unfinished.rename(folder)
        except OSError:
            if not folder.is_dir():  # Else somebody else has made the same thing meanwhile.
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)[:300]} has failed:\n{(done.stdout + done.stderr)[-3000:]}")


def main() -> int:
    """Fetch and compile all; say what cannot be."""
    for profile in CLASSES:
        classes(profile)
    go_client()
    node_client()
    proton_client()
    print(cache())
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except MissingError as missing:
        sys.exit(str(missing))
