"""Messages over HTTP: what may be asked, who asks, what is answered.

    models            what requests and answers are made of; checks them, and describes them
    leases            receipts of messages that were handed out and wait for their acknowledgement; pure
    user_connection   the connection of one user, as requests use it
    openapi           the operations
    application       the ASGI application
    relay             the native protocol over WebSocket
    long_poll         the same by plain requests
    opening           puts them together

What it shares with other services over HTTP is in :mod:`raybroker.services.web`.


The broker is reached by a function that connects as a user with a password: whoever asks over HTTP has the rights of
that user, and none of the server's.
"""
