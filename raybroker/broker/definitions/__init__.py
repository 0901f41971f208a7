"""Definitions that administrators make: templates, quotas, policies, and all of them exported and imported as one
value.

What lives here checks, keeps and applies definitions; the cluster's record says which hold everywhere. It imports the
destinations of a broker and the values of definitions (:mod:`raybroker.model.definitions`). Enter at
:mod:`raybroker.broker.definitions.definitions`.
"""
