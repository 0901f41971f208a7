"""The administrative verbs: each declared once, in :mod:`raybroker.admin.verbs`, the entry of this package.

A declaration is a method without a body: its name, arguments with types and defaults, the type of its answer, a line of
description, and who carries it out.  Made from it are the methods of ``conn.admin()``, blocking and asynchronous
(client.admin), the checks of arguments by the client and by the broker, the way to the broker, to all brokers or to the
host of a destination, the way in which the answers of several brokers become one (broker.cluster.cluster_admin), and
the resources of administration over HTTP (services.administration).  The types of arguments are in
:mod:`raybroker.admin.verb_types`; :mod:`raybroker.admin.checks` grades what verbs answer.

To add a verb:

1. declare it in the class of its kind (destination_verbs, transaction_verbs, broker_verbs, definition_verbs);
2. implement it as a coroutine of the same name with the same arguments: in a part of broker/ that ``Broker`` or
   ``ClusterBroker`` composes, or in hosting/ports/, as the role and method that the declaration names as ``host``;
3. give it a resource in services/administration/, and a row in cli/objects/table.py, which makes its command;
4. test it.  ``tests/unit/admin`` refuses a verb without an implementation, or with other arguments than declared, and
   one that neither a command of cli/ calls nor the table there excuses.

May import ``model`` alone, and is imported by the client, the broker and the command line.
"""
