"""Decisions of a cluster: a set of state machines without IO, clock, threads or randomness.

``member`` is the machine of one broker and takes every event; it keeps the configuration change record
(``change_record``) and the view of the brokers (``membership``).  ``unit_routing`` assigns units of order to brokers.
Times come in as ``now_ms``, milliseconds of one clock; ids come in as well.
"""
