"""STOMP 1.0, 1.1 and 1.2: the server of the service ``stomp``, each of whose clients is a client of the broker.

Entry: :class:`raybroker.services.stomp.server.StompServer`, made in ``broker/services/opening_services.py``; frames are
those of ``wire/stomp``.  It imports the client's parts, since a STOMP connection is an ordinary connection behind
:mod:`raybroker.services.gateways.gateway`; why is said there.

What a client may send, beside the commands and headers of the protocol:

    SEND         persistent (true unless it says false), priority, expires (ms since 1970), correlation-id, reply-to,
                 type, JMSXGroupID (unit of order), AMQ_SCHEDULED_DELAY (ms); every other header is a property
    SUBSCRIBE    selector, activemq.prefetchSize or prefetch-count, no-local, activemq.subscriptionName or
                 durable-subscription-name (with client-id in CONNECT), shared-subscription-name (with the same durable
                 name: shared and durable)
    UNSUBSCRIBE  activemq.subscriptionName or durable-subscription-name: ends the durable subscription, too
    NACK         requeue:false: the message is dead at once

Where it differs from ActiveMQ, and why; ``python -m tests.contracts.stomp_parity`` shows it:

* ERROR always ends the connection, as the protocol demands; ActiveMQ ends it after some errors alone.
* A destination begins with one of the prefixes, an ``ack`` of SUBSCRIBE is one of the three modes, and an id is that of
  one subscription: anything else is an ERROR. ActiveMQ takes a name without a prefix for a queue, a mode that it does
  not know for ``auto``, and a second subscription of the same id, which a client then cannot tell from the first.
* A SEND is persistent unless it says ``persistent:false``; ActiveMQ stores nothing unless it says ``persistent:true``.
  Losing messages is what has to be asked for.
* A RECEIPT of a SEND follows the sync to the disk, or in a transaction the hand-over; the COMMIT's tells of the disk.
* NACK means that processing failed: the message comes again, and is dead when it came too often. ActiveMQ buries it
  with the first NACK, which is ``requeue:false`` here.
* ACK in a transaction that is aborted: the message is unacknowledged as before, and may be acknowledged again; so in
  ActiveMQ. A COMMIT that acknowledges a message that went back meanwhile is an ERROR and nothing of it happens.
* ACK of a message whose broker was lost, in a cluster: the session goes on, and the message comes again, flagged; that
  is an ERROR only for a frame that asks for a RECEIPT, and for a COMMIT, which would otherwise say what is not so.
* A body with a content type that is text (or with a charset that is known) is a text message, whatever
  content-length says; without a content type it is ActiveMQ's rule: with content-length bytes, without it a text.
* A map, list or other value of a native producer arrives as JSON (``services/gateways/json_form.py``); ActiveMQ asks
  for a
  transformation.
* MESSAGE always says content-length and content-type, so that a reader never has to look for the end of a body.
  CONNECTED says its version in 1.0, too, as ActiveMQ does.
* A header that is no identifier is a property under another name (``services/stomp/headers.py``), since selectors could
  not name it; STOMP clients do not notice.
* A header of a STOMP client is a text, and as in JMS a selector does not compare a text with a number: ``price = '7'``
  finds what a STOMP client has sent, ``price > 5`` only what has a number, of a native producer. ActiveMQ reads a text
  as a number when a selector of a STOMP client asks for one, so that both match there.
* Priorities are obeyed by every queue; ActiveMQ's queues do so when a policy says ``prioritizedMessages``.
* A queue that nobody has created takes messages of 10 KiB (``imq.autocreate.destination.maxBytesPerMsg``), as in MQ.
* JMSXGroupID is a unit of order: messages of a group are with one consumer at a time, in order. With ActiveMQ a group
  also stays with its first consumer as long as there is that; here the next message may go to another one.
* A subscriber of a pattern joins a topic that appears later a moment after it was made, and misses what was published
  in between; ActiveMQ's gets the first message of a new topic, too.
* A prefetch is 100 unless it is asked for, ActiveMQ's is 1000; for subscriptions of every mode it is also the bound of
  what waits in memory for a client that does not read.
* Not built, and refused by name: browsers, exclusive and retroactive consumers, repeated and cron schedules,
  transformations, composite destinations, patterns of queues.
"""
