"""The asynchronous handles: coroutines over the cores.  The entry is :mod:`raybroker.client.aio.handles`.

The blocking handles are generated from these files (``python -m tests.tidy.blocking_face``), except for ``waiting`` and
``serving``, which each face has of its own: how it waits, and where the listeners of a session are called.  What must
differ between the faces belongs into those two.
"""
