"""Messages as tables of Arrow, and tables as messages: what needs neither Ray nor Spark.

It may import ``client``, ``model`` and pyarrow, and neither Ray nor Spark, so that processes that only hold messages
start without them.  Enter at :mod:`raybroker.tabular.arrow_table` to read, at :mod:`raybroker.tabular.queue_reader` to
hold what was read, and at :mod:`raybroker.tabular.once` to write each block once.
"""
