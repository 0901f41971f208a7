"""Everything that is used of PySpark beside its documentation, in one place.

``tests/analysis/test_spark_inside.py`` fails when PySpark changes it, and ``pyproject.toml`` bounds the release.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any


def jars() -> Path:
    """The folder of the Java classes that Spark starts with."""
    from pyspark.find_spark_home import _find_spark_home

    return Path(_find_spark_home(), "jars")


def java() -> Any | None:
    """The Java that this process has started, whose classes are its attributes; None: there is none."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    return None if gateway is None else gateway.jvm


def executors(spark: Any) -> int:
    """How many processes have joined a session, its own included."""
    return int(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size())
