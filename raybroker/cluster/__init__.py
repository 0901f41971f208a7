"""Decisions of a cluster: a set of state machines without IO, clock, threads or randomness.

``member`` is one broker's life in the cluster and the funnel that everything goes through; it keeps the configuration
change record (``record``) and its view of the brokers (``membership``).  ``routing`` says to which
broker the messages of a unit of order go.  Times come in as ``now_ms``, milliseconds of one clock; ids come in as well.
"""
