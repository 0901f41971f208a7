"""Commands about a cluster that runs: destinations, messages, definitions, services, transactions, brokers.

Plain ones are rows of :mod:`raybroker.cli.objects.table`, where to enter; :mod:`raybroker.cli.plain` makes them of the
declarations of their verbs. The other files have what is different, written by hand: commands that use several verbs,
files or Ray, or that print in a way of their own. They import the command's connection, its output, and the verbs.
"""
