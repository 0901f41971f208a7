"""The store in a database: the Store contract over tables of PostgreSQL or SQLite, through SQLAlchemy Core.

``address`` says which database and which tables, ``schema`` what they are, ``database`` makes connections and
transactions, ``lock`` keeps a second process out, ``packing`` and ``recovery`` are what is written and how it is read
back, ``store`` is the contract itself; ``administration`` and ``backup`` are for ``raybroker dbmgr``.  The entries are
:class:`~raybroker.store.sql.store.SqlStore` and :func:`~raybroker.store.sql.opening.open_store`.
"""
