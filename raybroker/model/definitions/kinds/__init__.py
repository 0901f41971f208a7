"""The kinds of definitions: each declared once, in a module of its own.

It imports what definitions are made of, in model.definitions. Enter at :mod:`raybroker.model.definitions.kinds.table`;
:mod:`raybroker.model.definitions.kinds.kind` says what a kind is.
"""
