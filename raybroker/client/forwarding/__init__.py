"""Store-and-forward: the agent that takes messages of one cluster and sends them to another.

The entry is :mod:`raybroker.client.forwarding.agent`.
"""
