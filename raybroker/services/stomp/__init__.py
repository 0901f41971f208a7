"""STOMP 1.0, 1.1 and 1.2: the server of the service ``stomp``, each of whose clients is a client of the broker.

Entry: :class:`raybroker.services.stomp.server.StompServer`, made in ``broker/opening_services.py``; frames are those of
``wire/stomp``.  It imports the client's parts, since a STOMP connection is an ordinary connection behind
:mod:`raybroker.services.gateway`; why is said there.

What a client may send, beside the commands and headers of the protocol:

    SEND         persistent (true unless it says false), priority, expires (ms since 1970), correlation-id, reply-to,
                 type, JMSXGroupID (unit of order), AMQ_SCHEDULED_DELAY (ms); every other header is a property
    SUBSCRIBE    selector, activemq.prefetchSize or prefetch-count, no-local, activemq.subscriptionName or
                 durable-subscription-name (with client-id in CONNECT), shared-subscription-name (with the same durable
                 name: shared and durable)
    UNSUBSCRIBE  activemq.subscriptionName or durable-subscription-name: ends the durable subscription, too
    NACK         requeue:false: the message is dead at once

Where it differs from ActiveMQ, and why:

* ERROR always ends the connection, as the protocol demands; ActiveMQ goes on after some errors.
* A SEND is persistent unless it says ``persistent:false``; ActiveMQ stores nothing unless it says ``persistent:true``.
  Losing messages is what has to be asked for.
* A RECEIPT of a SEND follows the sync to the disk, or in a transaction the hand-over; the COMMIT's tells of the disk.
* NACK means that processing failed: the message comes again, and is dead when it came too often. ActiveMQ buries it
  with the first NACK, which is ``requeue:false`` here.
* ACK in a transaction that is aborted: the message is unacknowledged as before, and may be acknowledged again; so in
  ActiveMQ. A COMMIT that acknowledges a message that went back meanwhile is an ERROR and nothing of it happens.
* A body with a content type that is text (or with a charset that is known) is a text message, whatever
  content-length says; without a content type it is ActiveMQ's rule: with content-length bytes, without it a text.
* A map, list or other value of a native producer arrives as JSON; ActiveMQ asks for a transformation.
* MESSAGE always says content-length and content-type. CONNECTED says its version in 1.0, too, as ActiveMQ does.
* A header that is no identifier is a property under another name (``services/stomp/headers.py``), since selectors could
  not name it; STOMP clients do not notice.
* A prefetch is 100 unless it is asked for, ActiveMQ's is 1000; for subscriptions of every mode it is also the bound of
  what waits in memory for a client that does not read.
* Not built, and refused by name: browsers, exclusive and retroactive consumers, repeated and cron schedules,
  transformations, composite destinations.
"""
