"""The ways from a client to a host or a connection service: TCP, TLS, a proxy, a WebSocket, and requests where none
passes.

What lives here opens a link and logs in; what goes over it is no concern of it. It imports wire and transport. Enter
at :mod:`raybroker.client.ways.from_outside`.
"""
