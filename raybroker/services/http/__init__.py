"""The server of HTTP, for messages, administration and metrics: connections, their bounds, and the ASGI interface.

It imports the bounds of listeners. Enter at :mod:`raybroker.services.http.http_server`.
"""
