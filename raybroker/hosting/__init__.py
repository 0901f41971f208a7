"""A host as an object: engine, committer and listening service on one event loop, with what its broker asks of it.

May import ``core``, ``engine``, ``content``, ``wire``, ``transport`` and ``services``.  The entry is
:mod:`raybroker.hosting.host_service`.
"""
