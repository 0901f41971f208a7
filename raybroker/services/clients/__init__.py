"""Clients of the services, whatever they speak: their ids, rows about them, their limits, and those that were ended.

It imports security and the model. Enter at :mod:`raybroker.services.clients.client_rows`.
"""
