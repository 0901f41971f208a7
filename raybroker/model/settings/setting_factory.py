"""The properties of connection factories: what clients ask of their connections, sessions and handles.

Part of the table that ``setting_table.py`` puts together.
"""

from __future__ import annotations

from typing import Final

from raybroker.model.settings.setting import (
    DAY_MS,
    DELIVERY_MODES,
    INT_MAX,
    OVERRIDE_MS_MAX,
    PRIORITY_DEFAULT,
    PRIORITY_MAX,
    Setting,
)
from raybroker.model.sizes import KIB, MIB, SIZE_BYTES_MAX, UNLIMITED

FACTORY: Final[tuple[Setting, ...]] = (
    Setting("imqConsumerFlowLimit", "int", 1000, "factory",
            "Most messages buffered for one consumer; the smaller of this and the destination's consumerFlowLimit "
            "holds. -1 and 0 mean no limit.", unit="messages", low=0, high=INT_MAX, unlimited=True),
    Setting("imqConsumerFlowThreshold", "percent", 50, "factory",
            "Percent of the limit still buffered at or under which the consumer asks for more.",
            unit="%", low=0, high=100),
    Setting("imqConsumerFlowLimitPrefetch", "bool", True, "factory",
            "false: nothing is buffered; the next message comes after the current one is consumed."),
    Setting("imqConnectionFlowCount", "int", 0, "factory",
            "Messages after which delivery pauses for control frames; 0: off. MQ's later manual has 100; ours is off, "
            "because frames are bounded and an acknowledgement never waits behind more than one of them.",
            unit="messages", low=0, high=INT_MAX),
    Setting("imqConnectionFlowLimit", "int", 1000, "factory",
            "Most messages buffered over all consumers of one connection, if imqConnectionFlowLimitEnabled.",
            unit="messages", low=0, high=INT_MAX, unlimited=True),
    Setting("imqConnectionFlowLimitEnabled", "bool", False, "factory",
            "Whether imqConnectionFlowLimit holds."),
    Setting("imqAckTimeout", "millis", 0, "factory",
            "How long a blocking call waits for the broker's answer; 0: for ever.", unit="ms", low=0, high=INT_MAX),
    Setting("imqAsyncSendCompletionWaitTimeout", "millis", 180000, "factory",
            "How long the future of an asynchronous send waits for the broker's answer; then it raises "
            "RequestTimeoutError, and the message is still on its way. 0: for ever.", unit="ms", low=0, high=INT_MAX),
    Setting("SendTimeout", "millis", 10, "factory",
            "How long a message waits at the broker for room within the broker's own limits (imq.system.max_count and "
            "max_size) before it is refused; 0: not at all. Where the room is divided among hosts, to learn whether "
            "there is any takes some milliseconds more, and 5 seconds at most. Closing a producer waits as long for "
            "messages that are not persistent or belong to a transaction. Other limits refuse at once, or have "
            "FLOW_CONTROL.", unit="ms", low=0, high=INT_MAX),
    Setting("imqAddressList", "string", "", "factory",
            "Names of the brokers that may be the home of a connection, separated by commas. Empty: any broker, that "
            "of this node first. A broker that the application names itself wins. From outside: addresses of "
            "connection services, mq://host:port/service."),
    Setting("imqBrokerHostName", "string", "", "factory",
            "Host of the broker, where imqAddressList is empty: mq://host:port/jms. An override of it at the start "
            "beats the imqAddressList of a program or of an object."),
    Setting("imqBrokerHostPort", "int", 7676, "factory",
            "Port of the broker's port mapper, with imqBrokerHostName; localhost without it.",
            unit="port", low=1, high=65535),
    Setting("imqSocketConnectTimeout", "millis", 0, "factory",
            "How long a socket to a connection service may take to be connected, from outside; then the next address "
            "is tried. 0: as long as the login as a whole may take.", unit="ms", low=0, high=DAY_MS),
    Setting("imqOverrideJMSDeliveryMode", "bool", False, "factory",
            "Whether imqJMSDeliveryMode holds for all messages that are sent, whatever a program says."),
    Setting("imqJMSDeliveryMode", "int", 2, "factory",
            "Delivery mode with imqOverrideJMSDeliveryMode, as JMS numbers it. 1: not persistent. 2: persistent.",
            unit="mode", low=1, high=2),
    Setting("imqOverrideJMSExpiration", "bool", False, "factory",
            "Whether imqJMSExpiration holds for all messages that are sent, whatever a program says."),
    Setting("imqJMSExpiration", "millis", 0, "factory",
            "Life of messages with imqOverrideJMSExpiration; 0: they never expire.",
            unit="ms", low=0, high=OVERRIDE_MS_MAX),
    Setting("imqOverrideJMSPriority", "bool", False, "factory",
            "Whether imqJMSPriority holds for all messages that are sent, whatever a program says."),
    Setting("imqJMSPriority", "int", PRIORITY_DEFAULT, "factory",
            "Priority of messages with imqOverrideJMSPriority; 9 is the highest.",
            unit="priority", low=0, high=PRIORITY_MAX),
    Setting("imqOverrideJMSHeadersToTemporaryDestinations", "bool", False, "factory",
            "Whether these three overrides hold for messages to temporary destinations too, such as answers."),
    Setting("imqSSLIsHostTrusted", "bool", False, "factory",
            "Accept any certificate of a broker, so that nobody knows who it is; for trials alone. false: the "
            "certificate has to be for the host's name, of an authority that is trusted, and within its time."),
    Setting("raybroker.client.tls.trust", "string", "", "factory",
            "File with the certificates that brokers' certificates may be signed by, or are, as PEM (raybroker keytool "
            "export writes one); empty: the authorities of the system. rb.connect(…, trust=…)"),
    Setting("raybroker.client.tls.server_name", "string", "", "factory",
            "Name that the broker's certificate has; empty: that of the address."),
    Setting("raybroker.client.tls.certificate", "string", "", "factory",
            "File with the client's own private key and certificate chain as PEM, readable by its owner alone, for "
            "brokers that ask for one. rb.connect(…, certificate=…)"),
    Setting("raybroker.client.tls.passfile", "string", "", "factory",
            "Passfile with raybroker.client.tls.password, the password of that key."),
    Setting("raybroker.client.proxy.address", "string", "", "factory",
            "Address of an HTTP proxy, http://host:port, through which connections from outside go (CONNECT), whatever "
            "their scheme; environment: HTTPS_PROXY, HTTP_PROXY and NO_PROXY say which. Many proxies let through port "
            "443 alone. Empty: none. rb.connect(…, proxy=…)"),
    Setting("raybroker.client.proxy.user", "string", "", "factory",
            "The user that the proxy knows; HTTP Basic, which the proxy gets in clear."),
    Setting("raybroker.client.proxy.passfile", "string", "", "factory",
            "Passfile with raybroker.client.proxy.password, the password of that user."),
    Setting("imqAddressListBehavior", "enum", "PRIORITY", "factory",
            "In which order the brokers of imqAddressList are tried: as they are listed, or in a new random order for "
            "each connection.", choices=("PRIORITY", "RANDOM")),
    Setting("imqAddressListIterations", "int", 1, "factory",
            "How many times imqAddressList is gone through before giving up, but never longer than "
            "raybroker.reconnect.timeout_ms; -1: as often as fits into that. Each broker is tried imqReconnectAttempts "
            "times before the next one, and at least once: with -1, which is ours, exactly once, since otherwise the "
            "second of the list would never be tried.", unit="passes", low=1, high=INT_MAX, unlimited=True),
    Setting("imqReconnectEnabled", "bool", True, "factory",
            "Reconnect by itself after a lost connection. MQ's default is false; ours is true, because hosts "
            "restart by themselves and unacknowledged work is resent or redelivered either way."),
    Setting("imqReconnectAttempts", "int", UNLIMITED, "factory",
            "Attempts before giving up. MQ's default is 0, none; ours is as many as fit into "
            "raybroker.reconnect.timeout_ms. Where -1 is set, attempts go on without an end, unless that time is set "
            "as well: then it holds. With imqAddressList the attempts are those at each broker, for "
            "imqAddressListIterations times.", unit="attempts", low=0, high=INT_MAX, unlimited=True),
    Setting("imqReconnectInterval", "millis", 1000, "factory",
            "Longest pause between two attempts; the first ones follow each other sooner. MQ's default is 3000.",
            unit="ms", low=1, high=INT_MAX),
    Setting("imqPingInterval", "seconds", 30, "factory",
            "How often a silent connection is tested by the client; 0 and -1 switch it off.",
            unit="s", low=0, high=86400, unlimited=True),
    Setting("imqPingAckTimeout", "millis", 0, "factory",
            "How long the client waits for anything from a broker that it has pinged. What happens then is "
            "imqAbortOnPingAckTimeout's. 0: until the next ping; a connection that is silent from one ping to the next "
            "is given up in any case.", unit="ms", low=0, high=DAY_MS),
    Setting("imqAbortOnPingAckTimeout", "bool", False, "factory",
            "Whether a connection that has not answered within imqPingAckTimeout is given up, and made anew. false: "
            "the listener of the connection's events is told 'unanswered', and the connection stays until the next "
            "ping."),
    Setting("imqConfiguredClientID", "string", "", "factory",
            "Client id of connections that name none; empty: none."),
    Setting("imqDisableSetClientID", "bool", False, "factory",
            "Refuse client ids that programs choose: imqConfiguredClientID alone holds."),
    Setting("ClientIdPolicy", "enum", "Restricted", "factory",
            "Restricted: a client id belongs to one live connection of this kind at a time. Unrestricted: connections "
            "may have it that others have too, of either kind. They then have the same subscriptions.",
            choices=("Restricted", "Unrestricted")),
    Setting("SubscriptionSharingPolicy", "enum", "Exclusive", "factory",
            "Whether a subscription may have consumers of several connections with the same client id "
            "(ClientIdPolicy=Unrestricted), of which each message goes to one. Exclusive: it has one consumer. "
            "Sharable: durable_consumer() and consumer() of a topic share with those of the same client id, topic and "
            "selector, and durable ones of the same name. Connections without a client id share nothing.",
            choices=("Exclusive", "Sharable")),
    Setting("AllowCloseInOnMessage", "bool", True, "factory",
            "Whether a listener may close its own session, and close or stop its own connection. false: it gets "
            "IllegalStateError."),
    Setting("imqDefaultUsername", "string", "", "factory",
            "User of connections from outside whose program names none, with imqDefaultPassword. MQ's default is "
            "guest, whom it brings along; here there is no such user. Not used beside a token or a certificate."),
    Setting("imqDefaultPassword", "string", "", "factory",
            "Password of imqDefaultUsername. For a ConnectionFactory alone: the properties of brokers are shown, and "
            "told to clients.", secret=True),
    Setting("imqQueueBrowserMaxMessagesPerRetrieve", "int", 1000, "factory",
            "Most messages that a browser fetches at a time.", unit="messages", low=1, high=100_000),
    Setting("imqQueueBrowserRetrieveTimeout", "millis", 60000, "factory",
            "How long a browser waits for the messages it asked for.", unit="ms", low=1, high=INT_MAX),
    Setting("defaultTimeToLive", "millis", 0, "factory",
            "Life of messages whose producer says none; 0: they never expire.",
            unit="ms", low=0, high=OVERRIDE_MS_MAX),
    Setting("defaultTimeToDeliver", "millis", 0, "factory",
            "Delay before messages can be received whose producer says none.",
            unit="ms", low=0, high=OVERRIDE_MS_MAX),
    Setting("defaultRedeliveryDelay", "millis", 0, "factory",
            "Pause before a message is delivered again that a session recovered or rolled back.",
            unit="ms", low=0, high=INT_MAX),
    Setting("defaultPriority", "int", PRIORITY_DEFAULT, "factory",
            "Priority of messages whose producer says none; 9 is the highest.",
            unit="priority", low=0, high=PRIORITY_MAX),
    Setting("DefaultUnitOfOrder", "string", "", "factory",
            "Unit of order of messages whose producer names none. Empty or None: none. System-generated: each session "
            "has one of its own. Anything else is the name."),
    Setting("defaultDeliveryMode", "enum", "Persistent", "factory",
            "Whether messages are stored whose producer says nothing.", choices=DELIVERY_MODES),
    Setting("DefaultCompressionThreshold", "size", INT_MAX, "factory",
            "Bodies of more bytes are compressed by the process that sends them, unless that makes them larger, and "
            "stay so in the broker's memory and stores; limits count what is left of them. They are decompressed when "
            "`body` is read. The default is off. Connections to a broker in the same process compress nothing by "
            "themselves, and the broker compresses nothing for consumers.", unit="bytes", low=0, high=INT_MAX),
    Setting("MessageCompressionOptions", "enum", "GZIP_DEFAULT_COMPRESSION", "factory",
            "How bodies above DefaultCompressionThreshold are compressed: with zlib at its usual level, its best or "
            "its fastest, or with Zstandard, about as small and three times as fast; that needs pip install "
            "'raybroker[zstd]' where they are sent and received.",
            choices=("GZIP_DEFAULT_COMPRESSION", "GZIP_BEST_COMPRESSION", "GZIP_BEST_SPEED", "ZSTD"), later=("LZF",)),
    Setting("LoadBalancingEnabled", "bool", True, "factory",
            "true: a producer of a distributed destination chooses a member for each message; false: for its first "
            "one, and keeps it."),
    Setting("ServerAffinityEnabled", "bool", True, "factory",
            "Whether producers and consumers of distributed destinations prefer the member of their home broker. "
            "Producers that are spread unevenly over the brokers do better without."),
    Setting("FlowControlEnabled", "bool", True, "factory",
            "Whether producers obey a destination that is over its threshold (messagesHigh, bytesHigh), and send no "
            "more than a limited number of messages a second until it is not. They are slowed, never refused."),
    Setting("FlowMaximum", "int", 500, "factory",
            "Messages a second that a producer may send first when its destination comes to be over its threshold. "
            "Afterwards it may send more and more, and is free when it reaches this again. Each producer has a limit "
            "of its own.", unit="messages/s", low=1, high=INT_MAX),
    Setting("FlowMinimum", "int", 50, "factory",
            "Messages a second that no producer is slowed below; at most FlowMaximum.",
            unit="messages/s", low=1, high=INT_MAX),
    Setting("FlowInterval", "seconds", 60, "factory",
            "How long it takes from FlowMaximum to FlowMinimum, and back. 0: FlowMinimum holds at once, and no limit "
            "as soon as the destination is not over its threshold any more.", unit="s", low=0, high=INT_MAX),
    Setting("FlowSteps", "int", 10, "factory",
            "Steps that FlowInterval is cut into: downwards by a constant ratio, upwards by equal amounts.",
            unit="steps", low=1, high=INT_MAX),
    Setting("OneWaySendMode", "enum", "buffered", "factory",
            "Which sends of non-persistent messages wait for the broker's decision. buffered: none. disabled: all. "
            "enabled: one of OneWaySendWindowSize. topicOnly: one of as many to topics, and all to queues. WebLogic's "
            "default is disabled; ours is buffered, which refuses by events and counters. Messages with units and "
            "those to distributed destinations are always waited for, but in mode buffered.",
            choices=("buffered", "disabled", "enabled", "topicOnly")),
    Setting("OneWaySendWindowSize", "int", 1, "factory",
            "Of so many one-way sends of a producer the last one waits for the broker, and so for all of them; 1: "
            "every one. A first value to try is 300. With more than 1, and OneWaySendMode enabled or topicOnly, "
            "FlowControlEnabled has no effect.", unit="messages", low=1, high=INT_MAX),
    Setting("acknowledgePolicy", "enum", "All", "factory",
            "What acknowledge() of a message covers in a session with client acknowledgement: All that the session has "
            "received, or Previous: up to that message.", choices=("All", "Previous")),
    Setting("maxMessagesInTransaction", "int", 1, "factory",
            "Calls of a listener that may share one transaction; it ends earlier when no next message is at hand.",
            unit="messages", low=1, high=INT_MAX),
    Setting("raybroker.producer.linger_ms", "millis", 1, "factory",
            "How long an asynchronous send may wait for company in its block while what its producer sent before is "
            "not confirmed, or is not going to be (non-persistent messages, transactions).",
            unit="ms", low=0, high=60000),
    Setting("raybroker.producer.buffer_bytes", "size", 16 * MIB, "factory",
            "Bodies a producer holds that are not acknowledged yet; one more send waits.",
            unit="bytes", low=64 * KIB, high=SIZE_BYTES_MAX),
    Setting("raybroker.producer.window_bytes", "size", 2 * MIB, "factory",
            "Bytes a producer has under way to the broker at a time; the rest waits in its buffer. Small enough that "
            "what is received, written and forwarded stays in the processor's caches: 8m halved the throughput.",
            unit="bytes", low=64 * KIB, high=SIZE_BYTES_MAX),
    Setting("raybroker.producer.reference_bytes", "size", UNLIMITED, "factory",
            "Bytes of arrays of numpy and tables of Arrow above which a body goes by reference, as with rb.ref; at "
            "least a mebibyte does. -1: only what is given with rb.ref. Within Ray.",
            unit="bytes", low=0, high=SIZE_BYTES_MAX, unlimited=True),
    Setting("raybroker.reconnect.timeout_ms", "millis", 30000, "factory",
            "How long a handle tries to reconnect before its calls raise ConnectionLostError. It begins anew with each "
            "host that a broker which starts says it has started. Its default does not hold where imqReconnectAttempts "
            "is set to -1.",
            unit="ms", low=0, high=DAY_MS),
    Setting("raybroker.connect.timeout_ms", "millis", 10000, "factory",
            "How long opening one connection may take, from looking up the address to being authenticated.",
            unit="ms", low=1, high=DAY_MS),
    Setting("raybroker.client.send_secrets", "enum", "private", "factory",
            "When a password (of basic) or a token is sent as it is to a connection service. private: over TLS, or "
            "within the machine. Passwords for digest are never sent. What the cluster says does not count here.",
            choices=("private", "always", "never")),
    Setting("raybroker.client.http.carrier", "enum", "auto", "factory",
            "What carries the native protocol to http:// and https:// addresses. websocket: a WebSocket. poll: plain "
            "requests, for proxies that let no WebSocket pass. auto: a WebSocket, and plain requests where that is "
            "refused or does not begin within 4 s.", choices=("auto", "websocket", "poll")),
    Setting("raybroker.client.direct", "bool", True, "factory",
            "Whether a thread that waits in a blocking call serves the connections of its process itself (on Linux), "
            "which saves two changes of thread a call. It does so while it is the only thread that waits, and every "
            "connection of the process wants it; listeners, and connections of raybroker.aio, need the IO thread until "
            "they are closed. In the main thread handlers of signals then run while it waits, or right after the "
            "call."),
    Setting("raybroker.client.spin", "spin", -1, "factory",
            "How long a thread that serves the sockets while it waits for an answer (raybroker.client.direct) looks "
            "for it before it sleeps, in microseconds; as raybroker.spin of hosts. The connections of a process share "
            "their sockets: the one that was opened last decides."),
    Setting("raybroker.client.buffer_bytes", "size", 0, "factory",
            "Bodies that brokers send ahead of the application, in bytes for each consumer and broker, besides the "
            "number of messages that its limit allows; one message always goes, whatever it has, while a quarter of "
            "that or less is in the buffer. What the application has taken counts no more, acknowledged or not. 0: no "
            "bound.", unit="bytes", low=0, high=INT_MAX),
    Setting("raybroker.client.loop", "enum", "shared", "factory",
            "Where connections of raybroker.aio do their work. shared: on the IO thread of the process, which goes on "
            "while the application keeps its loop busy. own: on the event loop that connects, which saves two changes "
            "of thread a call; nothing is read or answered while that loop is busy, and waiting for a send's future "
            "without await is an error. A loopback's connections live with its broker.",
            choices=("shared", "own")),
)  # fmt: skip
