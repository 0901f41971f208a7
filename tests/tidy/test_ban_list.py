"""What may be used only at home, and what to use instead: hidden inputs and hidden power have one door each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.tidy.source import Sources, package, reached_names


class Ban(NamedTuple):
    """``names`` and whatever is below them may be used only in ``homes`` (paths or folders of the package)."""

    names: tuple[str, ...]
    homes: tuple[str, ...]
    instead: str


BANS = (
    Ban(
        ("time", "datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today", "datetime.date.today"),
        ("system/clock.py", "system/supervision.py", "bench/", "examples/"),
        "take a Clock (raybroker.system.clock), or `now` as an argument",
    ),
    Ban(
        ("random", "secrets", "uuid.uuid1", "uuid.uuid4", "os.urandom", "os.getrandom"),
        ("system/entropy.py",),
        "take ids and tie-breaks as arguments; shells draw them with raybroker.system.entropy",
    ),
    Ban(
        ("os.environ", "os.environb", "os.getenv", "os.putenv"),
        ("config/layers.py", "analysis/spark/java.py"),
        "take a Config: the environment is one of its layers",
    ),
    Ban(
        ("asyncio", "uvloop"),
        (
            "transport/",
            "client/",
            "actors/",
            "services/",
            "security/checks.py",
            "system/supervision.py",
            "hosting/",
            "broker/",
            "serve/",
            "aio.py",
            "bench/",
        ),
        "decide in a pure layer; the shells wait",
    ),
    Ban(("multiprocessing",), ("bench/",), "let Ray start processes"),
    Ban(
        ("pickle.load", "pickle.loads", "pickle.Unpickler", "cloudpickle.load", "cloudpickle.loads", "marshal"),
        ("client/producer/bodies/body_encoding.py",),
        "nothing received is unpickled unless the consumer opted in, and that is decided there",
    ),
)


def violations(sources: Sources) -> Iterator[str]:
    for path, source in sources.items():
        inside = path.removeprefix("raybroker/")
        for line, name in sorted(set(reached_names(source))):
            for ban in BANS:
                banned = any(f"{name}.".startswith(f"{start}.") for start in ban.names)
                if banned and not inside.startswith(ban.homes):
                    yield f"{path}:{line}: {name} is banned here: {ban.instead}"


def bitten(source: str, path: str = "raybroker/engine/sample.py") -> list[str]:
    """The banned names found in a sample."""
    return [text.split(" is banned")[0].split(": ")[1] for text in violations({path: source})]


def test_banned_names_are_used_only_at_home() -> None:
    assert list(violations(package())) == []


def test_reading_the_clock_is_found_under_any_name() -> None:
    assert bitten("import time\n") == ["time"]
    assert bitten("from time import monotonic\n") == ["time.monotonic"]
    assert "time.sleep" in bitten("import time as clock\nclock.sleep(1)\n")
    assert bitten("import datetime as d\nd.datetime.now()\n") == ["datetime.datetime.now"]
    assert bitten("import datetime as d\nd.timedelta(1)\n") == []


def test_drawing_random_numbers_is_found() -> None:
    assert bitten("import random\n") == ["random"]
    assert bitten("from uuid import uuid4\n") == ["uuid.uuid4"]
    assert bitten("import os\nos.urandom(8)\n") == ["os.urandom"]


def test_reading_the_environment_is_found() -> None:
    assert bitten("import os\nx = os.environ['A']\n") == ["os.environ"]
    assert bitten("from os import getenv\n") == ["os.getenv"]
    assert bitten("import os\nos.environ.get('A')\n", "raybroker/config/layers.py") == []


def test_asyncio_outside_the_shells_is_found() -> None:
    assert bitten("import asyncio\n") == ["asyncio"]
    assert bitten("import asyncio\n", "raybroker/client/session/session.py") == []


def test_unpickling_outside_its_one_file_is_found() -> None:
    assert bitten("import pickle\npickle.loads(b'')\n", "raybroker/client/session/session.py") == ["pickle.loads"]
    assert bitten("import pickle\npickle.dumps(1)\n", "raybroker/client/session/session.py") == []
    assert bitten("import pickle\npickle.loads(b'')\n", "raybroker/client/producer/bodies/body_encoding.py") == []


def test_benchmarks_may_measure_time_and_start_processes() -> None:
    assert bitten("import time, multiprocessing\n", "raybroker/bench/pipe.py") == []
    assert bitten("import multiprocessing\n") == ["multiprocessing"]
