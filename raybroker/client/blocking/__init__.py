"""The blocking handles of the cores.  The entry is :mod:`raybroker.client.blocking.handles`.

``handles`` and ``listening`` are generated from the files of those names in
:mod:`raybroker.client.aio` by ``python -m tests.tidy.blocking_face``; a test compares them.  ``waiting`` and
``serving`` are written by hand.
"""
