"""Benchmarks of raybroker against the bare pipe, ray.util.queue and the peers; ``python -m benchmarks`` runs them all.

Decided here: what is measured, how, and what counts as reached.  Left to others: the load generator
(:mod:`raybroker.bench`), which users have too.  Nothing in this package is needed to run the broker.
"""
