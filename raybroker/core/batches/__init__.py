"""Batches that the broker forms: which waiting messages go together to a consumer, and when.

May import ``model``, ``core.blocks``, ``core.selector`` and ``core.delivery``.  The entry is
:mod:`raybroker.core.batches.forming`.
"""
