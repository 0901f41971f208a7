"""The blocking handles.  The entry is :mod:`raybroker.client.blocking.connection`."""
