"""Explanations: the predicates of dispatch and admission, evaluated for one thing, with the reasons for their answer.

Nothing here decides, and nothing is changed: whether a consumer has room, whether a unit is with a session, whether a
selector picks a message is asked of the same objects that the step asks. Nothing walks through a whole queue either.
May import ``model`` and ``core``; the entries are ``messages.explained``, ``consumers.obstacles``,
``producers.held_up`` and ``queues.standing``.
"""
