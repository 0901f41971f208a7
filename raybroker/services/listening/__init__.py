"""Listening: ports, sockets that are accepted, their bounds, and the services that they belong to.

What lives here does not know what is spoken after the login. It imports transport and security. Enter at
:mod:`raybroker.services.listening.connection_services`.
"""
