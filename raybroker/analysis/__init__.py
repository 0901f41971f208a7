"""Analysis of what brokers export to Prometheus: a lake of scrapes, tables made of it with Spark, jobs, one report.

``lake`` is the layout on disk, ``export`` writes it, ``source`` reads it into Spark, ``steps`` makes tables of it,
``jobs`` answer questions with them, ``report`` shows the answers, ``follow`` raises alerts from a stream.  Spark is
imported only where it runs; what brokers and collectors use of this package needs the standard library alone.
"""
