"""The pure core, one destination: a deterministic state machine without IO, clock, threads or randomness.

``step(command, now_ms=…)`` decides and returns an :class:`~raybroker.core.outcome.Outcome`: what to make durable, what
to release after that, and what may go at once.  The engine carries it out.
"""
