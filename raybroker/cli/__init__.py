"""The command line: arguments to operations, results to tables and JSON. Decides nothing about messages.

Plain commands are made of the declarations of verbs and of one table, see :mod:`raybroker.cli.plain`. What all commands
share stands beside it: ``command`` (-s, -v, --cluster), ``outside`` (-b, -u), ``grid_words`` (options, the question
before something is lost), ``output`` and ``answers`` (tables, JSON), ``exits``.

Ray takes a second to import, so it is imported by the commands that need it, and by those alone.
"""
