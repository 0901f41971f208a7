"""Transactions of a host: local ones of sessions, and branches of distributed ones, with their records in the journal.

It imports the core and the path of commands. Enter at :mod:`raybroker.engine.transactions.transactions`.
"""
