"""AMQP 1.0 without IO: bytes to events, calls to bytes. Both ends of a connection may use it.

Imports ``model`` alone. The entry is :class:`raybroker.wire.amqp.connection.ConnectionEndpoint`:

    connection = ConnectionEndpoint.listening(AmqpLimits(), ("PLAIN", "ANONYMOUS"))
    for event in connection.receive_data(data):   # nothing is raised for what a peer sends
        # SaslInit           connection.end_login(0), then receive_data(b"") once
        # ConnectionOpened   connection.send_open("broker")
        # SessionBegun       event.session.send_begin()
        # LinkAttached       event.link.send_attach(source, target), or event.link.refuse(error)
        # DeliveryReceived   event.link.settle_deliveries([event.delivery_id], ACCEPTED)
        # CreditGiven        event.link.send([header, message], context)
    connection.take_output()                      # to be written, in this order
    if connection.closed: ...                     # nothing more comes: it is cut when that is written

    types           values and their encodings, one table of constructors
    performatives   every composite type, one table of classes
    packed_forms    frequent frames, made from that table
    frames          protocol headers and frames
    states          what connections, sessions and links go through
    windows         the session windows
    links           links, and the order in which the deliveries of a session leave
    sessions        sessions and their links
    events          what is told
    receiving       performatives of sessions as they come
    connection      the connection: login, open and close, channels
    sections        the sections of a message
    conditions      error conditions; limits: what a connection may use

Who uses it hangs objects of its own on ``session.context`` and ``link.context``. A receiver's credit is granted by
``link.grant``; a sender looks at ``link.sendable``, and goes on at CreditGiven and SessionUnblocked. A drain
(``CreditGiven.drain``) is always answered by ``link.drained()``, when nothing more can be sent. Windows of sessions are
renewed by the engine; who wants less to come grants less credit, or stops reading.
"""
