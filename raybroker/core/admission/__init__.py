"""Admission: what a destination takes from producers, and what it refuses.

Sequence numbers, deduplication, limits and the flow of producers.  May import ``model`` and ``core`` values; the entry
is :mod:`raybroker.core.admission.admission`.
"""
