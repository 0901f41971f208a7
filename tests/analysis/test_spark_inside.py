"""What is used of PySpark beside its documentation is there, and is what it was."""

from __future__ import annotations

from pyspark import SparkContext

from raybroker.analysis.spark.spark_inside import jars


def test_pyspark_has_what_is_leaned_on() -> None:
    assert list(jars().glob("spark-core_*.jar")), "the folder of Spark's classes"
    assert hasattr(SparkContext, "_gateway"), "the Java of this process"
    assert "_jsc" in SparkContext._do_init.__code__.co_names, "Java's side of a context"
