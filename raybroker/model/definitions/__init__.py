"""Definitions that administrators make, as values: policies, quotas, templates, agents, users, the words of pauses; the
file of definitions, and the plan of an import.

It imports settings and names. Enter at :mod:`raybroker.model.definitions.kinds.table`, the table of kinds.
"""
