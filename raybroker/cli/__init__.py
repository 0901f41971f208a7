"""The command line: arguments to operations, results to tables and JSON. Decides nothing about messages.

Ray takes a second to import, so it is imported by the commands that need it, and by those alone.
"""
