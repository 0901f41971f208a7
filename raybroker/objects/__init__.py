"""Administered objects: connection factories and destinations that an administrator keeps for programs to look up.

    administered.py   one object: its type and attributes, checked, and the text that stores keep of it
    addresses.py      which store a user means, and what a store can do
    stores.py         opens it: a folder, a directory server or a database (folder.py, ldap.py, database.py)
    operations.py     add, delete, list, query, update, with plain arguments: what ``raybroker objmgr`` and others call
    command_file.py   these operations from a file, as MQ's imqobjmgr -i reads it
    jndi.py           the objects as a jndi.properties, for Java programs that come by AMQP

Knows nothing of connections: the client makes its factories and destinations of these objects
(``client/connection/lookup.py``). Everything blocks for disks and servers.
"""
