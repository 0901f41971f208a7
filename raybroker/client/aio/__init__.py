"""The asynchronous handles.  The entry is :mod:`raybroker.client.aio.connection`."""
