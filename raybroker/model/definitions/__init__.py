"""Definitions that administrators make, as values: policies, quotas, templates, agents, users, and the plan of an
import.

It imports settings and names. Enter at :mod:`raybroker.model.definitions.definitions`.
"""
