"""Bounded staleness: messages that are too far behind the published version leave the queue, or go behind all others.

May import ``model``, ``core.blocks``, ``core.selector`` and ``core.delivery``.  The entry is
:mod:`raybroker.core.staleness.version_pending`.
"""
