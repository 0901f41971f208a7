"""Commands about a cluster that runs: destinations, messages, definitions, services, transactions, brokers.

What lives here turns arguments into calls of ``conn.admin()`` and answers into tables. It imports the command's
connection, its output, and the table of verbs. Enter at :mod:`raybroker.cli.objects.grid`.
"""
