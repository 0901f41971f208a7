"""Messages as tables of Arrow, and tables as messages: what Ray Data and Spark have alike.

It may import ``client``, ``model`` and pyarrow, and neither Ray nor Spark.  Enter at
:mod:`raybroker.tabular.arrow_table` to read, and at :mod:`raybroker.tabular.once` to write each block once.
"""
