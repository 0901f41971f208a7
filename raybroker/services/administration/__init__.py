"""Administration over HTTP: the verbs of :mod:`raybroker.admin.verbs` as resources, JSON in and JSON out.

    resources     method and path → verb; the entry of this package
    shapes        what a verb takes and answers, as models that check and describe it
    user          the connection of one who asks
    application   the ASGI application
    opening       puts them together

Nothing is said here of a verb that its declaration does not say: its arguments, their bounds, what it answers and its
description come from there. Arguments that stand in the path are taken from it, the others from the query of GET and
DELETE, and from the JSON object that is the body of POST and PATCH. Who asks has the rights of his own user, whose
connection the broker has let in as one of an administrator.
"""
