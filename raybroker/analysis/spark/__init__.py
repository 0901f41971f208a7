"""Spark: the Java that it needs, its masters, and its start.

It imports pyspark when it is asked for. Enter at :mod:`raybroker.analysis.spark.session`.
"""
