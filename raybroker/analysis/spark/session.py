"""Start of Spark for the analysis: on this machine by default, on any master on request, with the source registered."""

from __future__ import annotations

import atexit
import logging
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from raybroker.analysis.spark import classes, java, masters, spark_inside
from raybroker.model.errors import ConfigError
from raybroker.system.clock import SystemClock

LOCAL: Final = "local[*]"
MISSING: Final = "the analysis needs Spark: pip install 'raybroker[analysis]'"
OPTIONS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.adaptive.enabled": "true",
    # Tables are small files, one or a few a broker: they are opened together.
    "spark.sql.files.openCostInBytes": "65536",
    # Days and brokers' names are texts, also when they look like numbers.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
}
"""What we set; ``spark-defaults.conf`` and ``--conf`` of a real master may say more."""
_JAVA_OPTIONS: Final = "-XX:+UseSerialGC -XX:MetaspaceSize=256m"
"""Below that size of its classes Java would collect the whole heap several times while Spark starts."""
_JAVA: Final = "spark.driver.extraJavaOptions"
_BRIEF: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""For dozens of short queries the optimizing compiler would take more time than it gives. Without it Java reserves
48 MiB for compiled code, not 240. A session of many jobs fills that, and its queries fail."""
_LOGGING: Final = """status = ERROR
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = spark: %m%n
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
rootLogger.level = error
rootLogger.appenderRef.stdout.ref = console
"""
SENT: Final = (
    "analysis/**/*.py",
    "model/**/*.py",
    "system/__init__.py",
    "system/clock.py",
    "system/entropy.py",
    "metrics/__init__.py",
    "metrics/catalogue.py",
)
"""The modules that workers get, below the root of the package."""
SHUFFLE_PARTITIONS: Final = "8"
"""Locally tables are small: more partitions would cost more than they save."""
SMALL: Final = {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "2"}
"""For tables of some million rows: to plan a query again between its stages takes longer than it saves."""
TINY: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}
"""For tables of some thousand rows: to compile a query takes longer than to interpret it in one partition."""


@contextmanager
def spark(
    master: str = LOCAL,
    *,
    memory: str = "2g",
    conf: dict[str, str] | None = None,
    brief: bool = True,
    lake: bool = True,
    archive: bool = True,
) -> Iterator[Any]:
    """A Spark session; ended when the block ends.

    ``brief``: its work takes seconds; false for millions of rows, which are twice as fast through compiled code.
    ``conf``: other options, for fewer rows SMALL or TINY.  ``lake``: with the source ``raybroker_lake``; to register a
    source Spark starts a Python process, which takes two seconds.  ``archive``: with the class archive of ``classes``.
    Raises ConfigError when Spark or Java is missing, or the master cannot be used.
    """
    masters.check(master)
    try:
        from pyspark.sql import SparkSession

        from raybroker.analysis.lake import source
    except ImportError as error:
        raise ConfigError(f"{MISSING} ({error})") from None
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)  # it repeats each error as JSON
    with ExitStack() as stack:
        scratch = stack.enter_context(TemporaryDirectory(prefix="raybroker-analysis-"))
        found = java.choose(Path(scratch, "java"))
        kept = stack.enter_context(_archived(found)) if archive and _JAVA not in (conf or {}) else ""
        if masters.is_here(master):
            java.workers_like_this()
        builder = SparkSession.builder.master(master).appName("raybroker analyze")
        options = {**OPTIONS, **_local_options(master, Path(scratch), memory, brief, kept), **(conf or {})}
        for key, value in options.items():
            builder = builder.config(key, value)
        try:
            session = builder.getOrCreate()
        except Exception as error:
            raise ConfigError(f"Spark does not start on {master}: {masters.reason(error)}") from error
        try:
            if not master.startswith("local[") and master != "local":
                session.sparkContext.addPyFile(str(packed(Path(scratch))))
            if lake:
                session.dataSource.register(source.LakeSource)
            yield session
        finally:
            session.stop()


@contextmanager
def _archived(found: java.Java) -> Iterator[str]:
    """Options by which a Java that is to start uses, or at its end writes, the class archive."""
    folder = java.cache_folder()
    if folder is None or spark_inside.java() is not None:
        yield ""
        return
    choice = classes.choose(folder / "java", found.program, found.release, spark_inside.jars(), SystemClock().now_ms())
    with classes.of_whole_runs(choice):
        yield choice.options
    if choice.writing is not None:
        atexit.register(_release_output)


def _release_output() -> None:
    """Java closes its standard output and error: who reads those of this process need not wait until Java has ended."""
    started = spark_inside.java()
    with suppress(Exception):
        assert started is not None
        system = started.java.lang.System
        system.out.close()
        system.err.close()


def _local_options(master: str, scratch: Path, memory: str, brief: bool, kept: str = "") -> dict[str, str]:
    """What only concerns this machine; ``kept``: the options of the class archive."""
    quiet = scratch / "log4j2.properties"
    quiet.write_text(_LOGGING, encoding="utf-8")
    java_options = f"{_JAVA_OPTIONS} {_BRIEF if brief else ''} {kept}"
    options = {
        "spark.driver.memory": memory,
        _JAVA: f"-Dlog4j2.configurationFile=file:{quiet} {java_options}",
    }
    if masters.is_here(master):
        options |= {
            "spark.local.dir": str(scratch),
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": SHUFFLE_PARTITIONS,
        }
    return options


def packed(folder: Path) -> Path:
    """What runs on workers elsewhere, as an archive that they can import: this package and the values that it reads.

    It needs Spark's Python package and what that needs, nothing else of ours: the root of the package, which brings the
    client and its dependencies in, is left empty.
    """
    root = Path(__file__).resolve().parents[2]
    made = folder / "raybroker.zip"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("raybroker/__init__.py", "")
        for pattern in SENT:
            for path in sorted(root.glob(pattern)):
                archive.write(path, path.relative_to(root.parent).as_posix())
    return made
