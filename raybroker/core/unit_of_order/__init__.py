"""Units of order: messages of one unit are processed one after another, by one consumer at a time.

May import ``model``, ``core.blocks`` and ``core.delivery``.  The entry is :mod:`raybroker.core.unit_of_order.state`.
"""
