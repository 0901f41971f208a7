"""Decisions about copies of one log: state machines without IO, clock, threads or randomness, by the rules of Raft.

``replica`` is the machine of one copy and takes every event; ``replica_log`` is what it knows of its log, ``leading``
what a leader knows of the others, ``replica_set`` who has a vote.  An entry of the log is one committed batch of a
host's store.  Raft's timers have no part in it: a copy leads when it is told to, and a majority of promises decides.
Times come in as ``now_ms``, milliseconds of this copy's monotonic clock; ids and nonces come in as well.
"""
