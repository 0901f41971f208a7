"""Messages over HTTP: what may be asked, who asks, what is answered.

    models        what requests and answers are made of; checks them, and describes them
    problems      errors as HTTP says them (problem+json)
    leases        receipts of messages that were handed out and wait for their acknowledgement; pure
    credentials   who asks: users' passwords, each proved to the broker
    users         one connection to the broker for each user
    openapi       the description of all of it, made from the models
    application   the ASGI application
    relay         the native protocol over WebSocket
    opening       puts them together

The broker is reached by a function that connects as a user with a password: whoever asks over HTTP has the rights of
that user, and none of the server's.
"""
