"""Affinity: messages wait a while for a consumer that is near to what they need.

May import ``model``, ``core.blocks``, ``core.selector``, ``core.batches`` and ``core.delivery``.  The entry is
:mod:`raybroker.core.affinity.affinity_pending`.
"""
