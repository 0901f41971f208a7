"""The durable side of a destination: journal records, snapshots for checkpoints, and recovery from both.

May import ``model`` and ``core``.  The entry is :mod:`raybroker.core.durable.records`.
"""
