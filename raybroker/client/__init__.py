"""What programs hold in their hands: connections, sessions, producers, consumers.

One implementation lives on the loop of :mod:`raybroker.client.connection.io_thread`; the blocking and the asynchronous
handles are two faces of it.
"""
