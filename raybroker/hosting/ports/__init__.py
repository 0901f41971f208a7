"""The requests of a broker to a host, by role: a class each, whose asynchronous methods may be called from another
process.

A method that changes something durably is declared with :func:`raybroker.hosting.durable.durable`; it does not wait
itself.  May import ``core``, ``engine``, ``content`` and ``services``.  All roles together are
:class:`raybroker.hosting.host_port.HostPort`, the entry; :mod:`raybroker.hosting.host_service` composes them.
"""
