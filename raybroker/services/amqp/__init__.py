"""AMQP 1.0: the server of the services ``amqp`` and ``amqps``, each of whose clients is a client of the broker.

Entry: :class:`raybroker.services.amqp.server.AmqpServer`, made in ``broker/services/opening_services.py``; frames,
links and windows are those of ``wire/amqp``.  It imports the client's parts, since an AMQP connection is an ordinary
connection behind :mod:`raybroker.services.gateways.gateway`; why is said there.

    connection  socket, login, open, keep-alives, and the events of the engine
    session     links are attached and detached, one after another
    incoming    links on which clients send      outgoing     links on which they receive
    coordinator, transaction                     local transactions
    link_writing  what such a link writes        messages     sections of messages
    addresses   destinations as clients name them
    login       the mechanisms of SASL           conditions   errors of the broker as AMQP tells them

What a client may ask for, beside what the protocol says:

    container-id       is the client id; with the capability sole-connection-for-container no other connection has it
    target             address null: each message goes where its property ``to`` says; dynamic: a temporary destination
    source             filters apache.org:selector-filter:string and apache.org:no-local-filter:list (topics), echoed
                       when they are obeyed; distribution-mode copy: a browser of a queue; durable or expiry-policy
                       never: the durable subscription of the link's name up to a ``|``; capabilities shared and global
    source null        ends the durable subscription of the link's name
    x-opt-delivery-time, x-opt-delivery-delay    when a message is delivered, ms since 1970 or from now
    group-id           the unit of order
    coordinator        local transactions

What it does, and why:

* The bare message passes as it came. Header and delivery annotations are written anew.
* A message is durable when its header says so, as the protocol has it; without a header it is not.
* ``accepted`` is told when a durable message is on disk, or in a transaction when it is handed over.
* The credit of a receiver is what the broker is asked for, at most 1,000 at a time: what nobody has asked for stays
  where others can have it. A drain asks the broker, and is answered when there is nothing more.
* rejected, and modified with undeliverable-here: the message is dead at once. modified with delivery-failed: it failed,
  comes again with its count raised, and is dead when it came too often. released, and modified alone: it goes back as
  if it had never come, and so does what is unsettled when a link or a session ends. When the connection is lost all
  that was unsettled counts as delivered, since nobody knows what the client has seen.
* What a transaction settles that is rolled back has failed, when the client has settled it; else it has it still.
* A queue that nobody has created takes messages of 10 KiB (``imq.autocreate.destination.maxBytesPerMsg``), as in MQ:
  raise that for JMS clients that send larger ones.
* A client is told of the other brokers of the cluster in ``failover-server-list`` of the open, as clients reach them:
  of those that take new clients. Where its own does not, it is sent to one of them (amqp:connection:redirect).
* Not built: deliveries of a lost link are not resumed but come again, and global transactions are refused.
"""
