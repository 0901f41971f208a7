"""The client: connections, sessions, producers and consumers, which applications hold.

One implementation lives on the loop of :mod:`raybroker.client.io.io_thread`; the blocking and the asynchronous
handles are two faces of it.
"""
