"""The class archive: when it is used, when it is written, what is removed, and that Java takes it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from raybroker.analysis.spark import classes, java, session
from raybroker.system.clock import SystemClock

NOW_MS = SystemClock().now_ms()


class Place:
    """A Java, the jars of a Spark, and a folder for archives."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "cache" / "java"
        self.jars = folder / "jars"
        self.program = folder / "java"
        self.jars.mkdir()
        self.program.write_text("17.0.1")
        self.jar("spark-core.jar", "4.3")

    def jar(self, name: str, content: str) -> None:
        (self.jars / name).write_text(content)

    def choose(self, release: int = 17, now_ms: int = NOW_MS) -> classes.Choice:
        return classes.choose(self.folder, self.program, release, self.jars, now_ms)

    def written(self, content: bytes = b"\xa8\xab") -> None:
        """What Java does at its end."""
        choice = self.choose()
        assert choice.writing is not None
        (choice.writing / "classes.jsa").write_bytes(content)

    def found(self) -> list[str]:
        return sorted(path.suffix for path in self.folder.iterdir())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize(
    ("release", "write", "use"),
    [
        (17, "ArchiveClassesAtExit", "SharedArchiveFile"),
        (24, "ArchiveClassesAtExit", "SharedArchiveFile"),
        (25, "AOTCacheOutput", "AOTCache"),
    ],
)
def test_the_first_run_writes_an_archive_and_the_second_uses_it(
    place: Place, release: int, write: str, use: str
) -> None:
    first = place.choose(release)
    assert first.writing is not None
    assert first.options == f'"-XX:{write}={first.writing}/classes.jsa" -Xlog:disable'
    (first.writing / "classes.jsa").write_bytes(b"\xa8\xab\x0b\xf0 classes")
    name = classes.key(place.program, place.jars)
    assert place.choose(release) == (f'"-XX:{use}={place.folder}/{name}.jsa" -Xlog:disable', None)
    assert (place.folder / f"{name}.jsa").read_bytes() == b"\xa8\xab\x0b\xf0 classes"
    assert place.found() == [".jsa"]
    assert place.choose(release).writing is None


@pytest.mark.parametrize("content", [None, b"", bytes(4096)])
def test_while_one_process_writes_others_do_without(place: Place, content: bytes | None) -> None:
    """Java writes the beginning of an archive last."""
    writing = place.choose().writing
    assert writing is not None
    if content is not None:
        (writing / "classes.jsa").write_bytes(content)
    assert place.choose() == ("", None)
    assert place.found() == [".new"]


def test_who_died_while_writing_gives_way_to_the_next(place: Place) -> None:
    place.written(bytes(64))
    later = SystemClock().now_ms() + classes.WRITING_MS + 1000
    again = place.choose(now_ms=later)
    assert again.writing is not None
    assert not list(again.writing.iterdir())


def test_a_run_that_fails_leaves_no_archive(place: Place) -> None:
    choice = place.choose()
    with pytest.raises(KeyError), classes.of_whole_runs(choice):
        raise KeyError
    assert place.found() == []
    with classes.of_whole_runs(place.choose()):
        pass
    assert place.found() == [".new"]
    with pytest.raises(KeyError), classes.of_whole_runs(classes.Choice()):
        raise KeyError


@pytest.mark.parametrize("changed", ["java", "jar", "new jar"])
def test_an_archive_of_another_java_or_spark_is_removed(place: Place, changed: str) -> None:
    place.written()
    before = place.choose()
    assert before.writing is None
    if changed == "java":
        place.program.write_text("17.0.15")
    else:
        place.jar("spark-core.jar" if changed == "jar" else "spark-sql.jar", "4.3.1")
    again = place.choose()
    assert again.writing is not None
    assert place.found() == [".new"]
    (again.writing / "classes.jsa").write_bytes(b"\xa8")
    assert place.choose().options != before.options
    assert place.found() == [".jsa"]


def test_a_folder_that_cannot_be_written_is_no_error(place: Place) -> None:
    place.folder.parent.parent.joinpath("cache").write_text("no folder")
    assert place.choose() == ("", None)


def test_without_jars_there_is_no_archive(place: Place) -> None:
    place.program.unlink()
    assert place.choose() == ("", None)


def test_a_path_that_java_would_take_apart_is_not_used(place: Place) -> None:
    place.folder = place.folder / 'a:b"c'
    assert place.choose() == ("", None)
    assert not place.folder.exists()


def test_the_folder_is_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert java.cache_folder() == tmp_path / "raybroker"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", "/users/somebody")
    assert java.cache_folder() == Path("/users/somebody/.cache/raybroker")

    def homeless() -> Path:
        raise RuntimeError

    monkeypatch.setattr(Path, "home", homeless)
    assert java.cache_folder() is None


def test_options_of_the_archive_are_given_to_java(tmp_path: Path) -> None:
    made = session._local_options(session.LOCAL, tmp_path, "1g", True, '"-XX:AOTCache=/a b"')
    assert made["spark.driver.extraJavaOptions"].endswith(' "-XX:AOTCache=/a b"')


SCRIPT = """
import atexit, json, os, sys
from pathlib import Path
process = [0]
def tell():
    shown = [os.readlink(f"/proc/{process[0]}/fd/{fd}") for fd in (1, 2)]
    print(json.dumps([process[0], rows, mapped, shown]))
if __name__ == "__main__":
    atexit.register(tell)  # runs after those that are registered later
    from raybroker.analysis.spark import session
    with session.spark("local[1]", memory="1g", conf=session.TINY, lake=False) as spark:
        asked = "select id % 2 a, sum(id) b from range(10) group by 1 order by 1"
        rows = [list(row) for row in spark.sql(asked).collect()]
        process[0] = spark.sparkContext._gateway.proc.pid
        mapped = os.environ["XDG_CACHE_HOME"] in Path(f"/proc/{process[0]}/maps").read_text()
"""


def wait_for_end(process: int) -> None:
    """Of a process that is nobody's child any more."""
    try:
        handle = os.pidfd_open(process)
    except ProcessLookupError:
        return
    select.select([handle], [], [])
    os.close(handle)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_the_second_run_uses_what_java_wrote_after_the_first_with_the_same_answers(spark: Any, tmp_path: Path) -> None:
    """The first Java has let go of the pipes of the command before it writes."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "a cache")}

    def run() -> tuple[int, list[list[int]], bool, list[str]]:
        made = subprocess.run(
            [sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment, timeout=280, check=False
        )
        assert (made.returncode, made.stderr) == (0, "")
        process, rows, mapped, shown = json.loads(made.stdout)
        return process, rows, mapped, shown

    process, rows, mapped, shown = run()
    assert not mapped
    assert shown == ["/dev/null", "/dev/null"]
    folder = tmp_path / "a cache" / "raybroker" / "java"
    wait_for_end(process)
    _, again, mapped, shown = run()
    assert mapped
    assert again == rows == [[0, 20], [1, 25]]
    assert shown != ["/dev/null", "/dev/null"]
    assert [path.suffix for path in folder.iterdir()] == [".jsa"]
