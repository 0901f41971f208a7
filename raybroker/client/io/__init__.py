"""The loops that serve a client's sockets, and the threads, tasks and signals around them.

What lives here knows nothing of brokers or messages: it runs what it is given. It imports transport alone. Enter at
:mod:`raybroker.client.io.io_thread`.
"""
