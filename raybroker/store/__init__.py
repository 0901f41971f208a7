"""Durable stores: one contract (``raybroker.engine.ports.Store``), several ways to keep it.

``memory`` keeps entries in a list and is what tests and the simulator use; ``journal`` is the append-only log on files.
A store knows nothing of queues: what an entry means is decided by the core.
"""
