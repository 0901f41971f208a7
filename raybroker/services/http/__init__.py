"""The server of HTTP, for messages, administration and metrics: connections, their bounds, and the ASGI interface.

It imports the bounds of listeners, and problems as they are told. Enter at :mod:`raybroker.services.http.http_server`.
"""
