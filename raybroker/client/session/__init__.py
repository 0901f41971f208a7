"""Sessions: acknowledgement modes, local and distributed transactions, request and reply.

The entry is :mod:`raybroker.client.session.session`.
"""
