"""The log of a process: channels with their categories of lines, rolling files, and the forms of a line.

Imports only ``raybroker.model``, ``raybroker.system`` and orjson.  The entry is ``channels.Log``.
"""
