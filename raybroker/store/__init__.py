"""Durable stores: implementations of one contract, ``raybroker.engine.ports.Store``.

``journal`` is the append-only log on files; ``memory`` keeps entries in a list, for tests and the simulator; ``fileio``
and ``locations`` are of use to several.  A store knows nothing of queues: the core decides about the meaning of an
entry.  Imports only ``raybroker.model``.
"""
