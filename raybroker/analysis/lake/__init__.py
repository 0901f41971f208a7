"""The lake of scrapes: written, read, and reduced to steps of time, in processes and as a source of Spark.

It imports the exposition format and Arrow, and no job. Enter at :mod:`raybroker.analysis.lake.lake`.
"""
