"""Spark masters: checks that a master can be right and answers, before Spark is started, and that its workers can work.

Spark itself takes a minute to say that nobody listens, and a cluster whose workers do not see the folders of the driver
fails late, or writes tables that nobody finds.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from raybroker.analysis.spark.spark_inside import executors
from raybroker.model.errors import ConfigError

ANSWER_S: Final = 5.0
"""How long a master may take to accept a connection."""
WORKERS_S: Final = 60.0
"""How long a cluster may take to give us the first worker."""
NEEDED: Final = ("numpy", "pandas", "pyarrow")
"""What workers need beside Spark's own Python package; Spark asks for the same where Arrow is used."""
FORMS: Final = "local[N], spark://HOST:PORT, yarn or k8s://https://HOST:PORT"
_HERE = re.compile(
    r"local(\[(?P<threads>\*|\d+)(,\s*\d+)?\]|-cluster\[\s*(?P<workers>\d+)\s*,\s*(?P<each>\d+)\s*,\s*\d+\s*\])?"
)
_CLUSTER = re.compile(r"(?:spark://|k8s://(?:https?://)?)(.+)")
_PLACES: Final = ("at ", "File ", "Traceback", "Driver stacktrace", "...")
_PLACE = re.compile(r"\[?([^\]/?#@]+)\]?:(\d{1,5})/?")


def is_here(master: str) -> bool:
    """Whether Spark runs in this process or in others of this machine."""
    return _HERE.fullmatch(master) is not None


def cores(master: str) -> int:
    """How many tasks a master of this machine runs at once."""
    match = _HERE.fullmatch(master)
    assert match is not None, f"{master} is elsewhere"
    if match["workers"] is not None:
        return max(1, int(match["workers"]) * int(match["each"]))
    threads = match["threads"] or "1"
    return max(1, (os.cpu_count() or 1) if threads == "*" else int(threads))


def check(master: str) -> None:
    """Raises ConfigError for what is no master, or one that nobody listens at."""
    if is_here(master) or master == "yarn":
        return
    match = _CLUSTER.fullmatch(master)
    if match is None:
        raise ConfigError(f"{master!r} is no Spark master: it is {FORMS}")
    places = [_PLACE.fullmatch(one) for one in match[1].split(",")]
    errors = []
    for place in places:
        if place is None or not 0 < int(place[2]) < 65_536:
            raise ConfigError(f"{master!r} is no Spark master: HOST:PORT is missing; it is {FORMS}")
        try:
            socket.create_connection((place[1], int(place[2])), ANSWER_S).close()
            return
        except OSError as error:
            errors.append(f"{place[1]}:{place[2]}: {error.strerror or error}")
    raise ConfigError(f"no Spark master answers at {', '.join(errors)}")


class SeenMaster(NamedTuple):
    """What a worker says: its host, and what it lacks; empty when nothing."""

    host: str
    lacks: str


def check_workers(spark: Any, lake: Path, place: Path, option: str) -> None:
    """Have workers look whether they see the lake and can write to ``place``, which ``option`` of the command names.

    Raises ConfigError with what a worker lacks, or when the cluster gives us none.
    """
    context = spark.sparkContext
    waiting = threading.Event()
    for _ in range(round(WORKERS_S * 2)):
        if executors(spark) > 1:
            break
        waiting.wait(0.5)
    else:
        raise ConfigError(f"{context.master} gives no worker within {WORKERS_S:.0f} s: it has none that is free")
    token = place / f".raybroker-{context.applicationId}"
    try:
        place.mkdir(parents=True, exist_ok=True)
        token.write_text(context.applicationId, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{option} {place} cannot be written here: {error.strerror}") from None
    tasks = 2 * max(2, context.defaultParallelism)
    try:
        said = context.parallelize(range(tasks), tasks).map(partial(look, str(lake), str(token), option)).collect()
    except Exception as error:
        raise ConfigError(f"the workers of {context.master} cannot run our Python: {reason(error)}") from error
    finally:
        token.unlink(missing_ok=True)
    lacking = sorted({one for one in said if one.lacks})
    if lacking:
        raise ConfigError("; ".join(f"worker {one.host} {one.lacks}" for one in lacking[:3]))


def look(lake: str, token: str, option: str, number: int) -> SeenMaster:
    """Runs on a worker."""
    host = socket.gethostname()
    for name in NEEDED:
        try:
            __import__(name)
        except ImportError as error:
            return SeenMaster(host, f"has no {name} in {sys.executable} ({error}); PYSPARK_PYTHON names the one to use")
    if not Path(lake).is_dir():
        return SeenMaster(host, f"does not see the lake {lake}: it must be a folder that all workers share")
    folder = Path(token).parent
    if not Path(token).is_file():
        return SeenMaster(host, f"does not see what is written to {folder} ({option}) by the driver: all must share it")
    mine = Path(f"{token}-{host}-{number}")
    try:
        mine.write_text(host, encoding="utf-8")
        mine.unlink()
    except OSError as error:
        return SeenMaster(host, f"cannot write to {folder} ({option}): {error.strerror}")
    return SeenMaster(host, "")


def reason(error: BaseException) -> str:
    """What Java says in one line, rather than which call of ours failed."""
    java = getattr(error, "java_exception", None)
    said: list[str] = []
    while java is not None and len(said) < 5:
        text = java.getMessage()
        said += [str(text).strip()] if text else []
        java = java.getCause()
    text = said[-1] if said else str(error)
    lines = _told(text)
    return (lines[-1] if "Traceback" in text else lines[0]) if lines else type(error).__name__


def _told(text: str) -> Sequence[str]:
    """Lines that say something: no places in Java's or Python's code."""
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith(_PLACES)]
