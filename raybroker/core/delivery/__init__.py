"""Delivery: the messages that a destination owes one queue or subscription, and how consumers get them.

May import ``model``, ``core.blocks`` and ``core.selector``.  The entry is
:mod:`raybroker.core.delivery.delivery_queue`.
"""
