"""Message listeners: functions that are called with messages, alone or deployed as a pool of instances.

The entry is :mod:`raybroker.client.listener.listener`.
"""
