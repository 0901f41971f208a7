"""The table of every property of this version: one row a property, and nothing else.

Names and defaults are the seeds' own; where a default differs, ``help`` gives the reason.  Properties that the design
has and this version has not are in ``LATER``: they are refused by name, since a setting that is taken and does nothing
is a trap.  Rows are ordered by scope and area; how to find one is ``settings.py``.
"""

from __future__ import annotations

from typing import Final

from raybroker.model.bounds import MESSAGE_BYTES_MAX
from raybroker.model.setting import INT_MAX, PortRange, Reload, Setting
from raybroker.model.sizes import KIB, MIB, SIZE_BYTES_MAX, UNLIMITED

LIMIT_BEHAVIORS: Final = ("REJECT_NEWEST",)
LIMIT_BEHAVIORS_LATER: Final = ("FLOW_CONTROL", "REMOVE_OLDEST", "REMOVE_LOW_PRIORITY")
FLOW_LIMIT_HELP: Final = "-1 and 0 mean no limit (a consumer that pulls one at a time is prefetch=0 of the handle)."
DAY_MS: Final = 24 * 60 * 60 * 1000

BROKER: Final[tuple[Setting, ...]] = (
    Setting("imq.message.max_size", "size", MESSAGE_BYTES_MAX, "broker", "B-10",
            "Largest body of one message. Blocks are read and written whole, so 70m is also the most that can be set, "
            "and -1 means that.", unit="bytes", low=0, high=MESSAGE_BYTES_MAX, unlimited=True, reload="live"),
    Setting("imq.ping.interval", "seconds", 120, "broker", "C-09",
            "How often the broker pings a silent client to find dead connections; 0 and -1 switch it off.",
            unit="s", low=0, high=86400, unlimited=True),
    Setting("imq.persist.store", "enum", "file", "broker", "P-01",
            "Where persistent messages are kept: 'file' is our own journal; 'memory' keeps nothing past the process.",
            choices=("file", "memory"), later=("jdbc", "sql")),
    Setting("imq.persist.file.sync.enabled", "bool", True, "broker", "P-10",
            "Force every store operation to the device before it is acknowledged. The seeds default to false and can "
            "lose acknowledged messages at a power cut; group commit makes true affordable."),
    Setting("imq.autocreate.queue", "bool", True, "broker", "D-21",
            "Create a missing queue when a producer or consumer opens it.", reload="live"),
    Setting("imq.autocreate.reaptime", "seconds", 120, "broker", "D-22",
            "How long an auto-created destination without consumers and messages is kept.",
            unit="s", low=0, high=INT_MAX),
    Setting("imq.autocreate.destination.maxNumMsgs", "int", 100000, "broker", "D-06",
            "maxNumMsgs of auto-created destinations.", unit="messages", low=0, high=INT_MAX, unlimited=True),
    Setting("imq.autocreate.destination.maxTotalMsgBytes", "size", 10 * MIB, "broker", "D-07",
            "maxTotalMsgBytes of auto-created destinations.",
            unit="bytes", low=0, high=SIZE_BYTES_MAX, unlimited=True),
    Setting("imq.autocreate.destination.maxBytesPerMsg", "size", 10 * KIB, "broker", "D-08",
            "maxBytesPerMsg of auto-created destinations.",
            unit="bytes", low=0, high=SIZE_BYTES_MAX, unlimited=True),
    Setting("imq.autocreate.destination.limitBehavior", "enum", "REJECT_NEWEST", "broker", "D-09",
            "limitBehavior of auto-created destinations.", choices=LIMIT_BEHAVIORS, later=LIMIT_BEHAVIORS_LATER),
    Setting("imq.autocreate.destination.maxNumProducers", "int", 100, "broker", "D-14",
            "maxNumProducers of auto-created destinations.", unit="producers", low=1, high=INT_MAX, unlimited=True),
    Setting("imq.autocreate.destination.isLocalOnly", "bool", False, "broker", "D-20",
            "isLocalOnly of auto-created destinations."),
    Setting("imq.autocreate.queue.maxNumActiveConsumers", "int", UNLIMITED, "broker", "D-15",
            "maxNumActiveConsumers of auto-created queues. The seed has 1, the later manual -1; ours is -1, because a "
            "second consumer that is refused is what nobody expects of a queue.",
            unit="consumers", low=1, high=INT_MAX, unlimited=True, reload="live"),
    Setting("imq.autocreate.queue.maxNumBackupConsumers", "int", 0, "broker", "D-15",
            "maxNumBackupConsumers of auto-created queues.",
            unit="consumers", low=0, high=INT_MAX, unlimited=True, reload="live"),
    Setting("imq.autocreate.queue.consumerFlowLimit", "int", 1000, "broker", "D-18, F-04",
            "consumerFlowLimit of auto-created queues. " + FLOW_LIMIT_HELP,
            unit="messages", low=0, high=INT_MAX, unlimited=True),
    Setting("imq.autocreate.queue.localDeliveryPreferred", "bool", False, "broker", "D-19",
            "localDeliveryPreferred of auto-created queues."),
    Setting("raybroker.hosting.default", "enum", "dedicated", "broker", "own",
            "Host of a destination that an administrator creates: its own actor, or one of the shared pool.",
            choices=("dedicated", "shared")),
    Setting("raybroker.hosting.autocreated", "enum", "shared", "broker", "own",
            "Host of an auto-created destination: a thousand of them must not be a thousand processes.",
            choices=("dedicated", "shared")),
    Setting("raybroker.hosting.shared.hosts", "int", 1, "broker", "own",
            "Host actors in the shared pool of one broker; each is one process with one journal.",
            unit="processes", low=1, high=256),
    Setting("raybroker.store.dir", "string", "", "broker", "own",
            "Directory of the stores; empty: raybroker/<cluster> in the user's state directory."),
    Setting("raybroker.store.segment_bytes", "size", 64 * MIB, "broker", "own",
            "Size of one journal segment; space is preallocated and freed in this unit.",
            unit="bytes", low=MIB, high=1024 * MIB),
    Setting("raybroker.data.ports", "ports", PortRange(0, 0), "broker", "own",
            "TCP ports for the data sockets of the hosts, one a host; 0: any free port."),
    Setting("raybroker.memory.block_cache_bytes", "size", 16 * MIB, "broker", "own",
            "Bodies of persistent messages that one host keeps in memory; the rest is read from the store.",
            unit="bytes", low=0, high=SIZE_BYTES_MAX),
    Setting("raybroker.connections_max", "int", 4096, "broker", "own",
            "Connections of one host; one more is refused. Each costs a file descriptor and its buffers.",
            unit="connections", low=1, high=65536),
    Setting("raybroker.handshake.timeout_ms", "millis", 10000, "broker", "own",
            "How long a new connection may take to authenticate before it is closed.",
            unit="ms", low=1, high=DAY_MS),
)

_LIVE: Final[Reload] = "live"
DESTINATION: Final[tuple[Setting, ...]] = (
    Setting("maxNumMsgs", "int", UNLIMITED, "destination", "D-06",
            "Most messages held; the next one triggers limitBehavior.",
            unit="messages", low=0, high=INT_MAX, unlimited=True, reload=_LIVE),
    Setting("maxTotalMsgBytes", "size", UNLIMITED, "destination", "D-07",
            "Most bytes of messages held; taken while less is held, so one message may overshoot.",
            unit="bytes", low=0, high=SIZE_BYTES_MAX, unlimited=True, reload=_LIVE),
    Setting("maxBytesPerMsg", "size", UNLIMITED, "destination", "D-08",
            "Largest single message; imq.message.max_size of the broker holds as well.",
            unit="bytes", low=0, high=SIZE_BYTES_MAX, unlimited=True, reload=_LIVE),
    Setting("limitBehavior", "enum", "REJECT_NEWEST", "destination", "D-09",
            "What happens at maxNumMsgs and maxTotalMsgBytes.",
            choices=LIMIT_BEHAVIORS, later=LIMIT_BEHAVIORS_LATER, reload=_LIVE),
    Setting("maxNumProducers", "int", 100, "destination", "D-14",
            "Most producers at a time; one more is refused.",
            unit="producers", low=1, high=INT_MAX, unlimited=True, reload=_LIVE),
    Setting("maxNumActiveConsumers", "int", UNLIMITED, "destination", "D-15",
            "Consumers of a queue that share its messages.",
            unit="consumers", low=1, high=INT_MAX, unlimited=True, reload=_LIVE),
    Setting("maxNumBackupConsumers", "int", 0, "destination", "D-15",
            "Consumers of a queue that wait to take the place of an active one; one more is refused.",
            unit="consumers", low=0, high=INT_MAX, unlimited=True, reload=_LIVE),
    Setting("consumerFlowLimit", "int", 1000, "destination", "D-18, F-02",
            "Most messages delivered to one consumer in one batch. " + FLOW_LIMIT_HELP,
            unit="messages", low=0, high=INT_MAX, unlimited=True, reload=_LIVE),
    Setting("isLocalOnly", "bool", False, "destination", "D-20",
            "Only consumers on the creating broker; chosen at creation and never changed.", reload="fixed"),
    Setting("localDeliveryPreferred", "bool", False, "destination", "D-19",
            "Deliver to consumers on other brokers only while the producer's broker has none.", reload=_LIVE),
    Setting("hosting", "enum", "dedicated", "destination", "own",
            "The actor that carries it: its own, or one of the shared pool; chosen at creation.",
            choices=("dedicated", "shared"), reload="fixed"),
)

FACTORY: Final[tuple[Setting, ...]] = (
    Setting("imqConsumerFlowLimit", "int", 1000, "factory", "F-05",
            "Most messages buffered for one consumer; the smaller of this and the destination's consumerFlowLimit "
            "holds. -1 and 0 mean no limit.", unit="messages", low=0, high=INT_MAX, unlimited=True),
    Setting("imqConsumerFlowThreshold", "percent", 50, "factory", "F-07",
            "Percent of the limit still buffered at or under which the consumer asks for more.",
            unit="%", low=0, high=100),
    Setting("imqConsumerFlowLimitPrefetch", "bool", True, "factory", "F-14",
            "false: nothing is buffered; the next message comes after the current one is consumed."),
    Setting("imqConnectionFlowCount", "int", 0, "factory", "F-16",
            "Messages after which delivery pauses for control frames; 0: off. The later manual has 100; ours is off, "
            "because frames are bounded and an acknowledgement never waits behind more than one of them.",
            unit="messages", low=0, high=INT_MAX),
    Setting("imqConnectionFlowLimit", "int", 1000, "factory", "F-15",
            "Most messages buffered over all consumers of one connection, if imqConnectionFlowLimitEnabled.",
            unit="messages", low=0, high=INT_MAX, unlimited=True),
    Setting("imqConnectionFlowLimitEnabled", "bool", False, "factory", "F-15",
            "Whether imqConnectionFlowLimit holds."),
    Setting("imqAckTimeout", "millis", 0, "factory", "R-01",
            "How long a blocking call waits for the broker's answer; 0: for ever.", unit="ms", low=0, high=INT_MAX),
    Setting("imqReconnectEnabled", "bool", True, "factory", "R-13",
            "Reconnect by itself after a lost connection. The seeds default to false; ours is true, because hosts "
            "restart by themselves and unacknowledged work is resent or redelivered either way."),
    Setting("imqReconnectAttempts", "int", UNLIMITED, "factory", "R-13",
            "Attempts before giving up. The seeds default to 0, none; ours is -1, as many as fit into "
            "raybroker.reconnect.timeout_ms.", unit="attempts", low=0, high=INT_MAX, unlimited=True),
    Setting("imqReconnectInterval", "millis", 1000, "factory", "R-13",
            "Longest pause between two attempts; the first ones follow each other sooner. The seeds wait 3000.",
            unit="ms", low=1, high=INT_MAX),
    Setting("imqPingInterval", "seconds", 30, "factory", "R-14",
            "How often a silent connection is tested by the client; 0 and -1 switch it off.",
            unit="s", low=0, high=86400, unlimited=True),
    Setting("imqConfiguredClientID", "string", "", "factory", "R-18",
            "Client id of connections that name none; empty: none."),
    Setting("raybroker.producer.linger_ms", "millis", 1, "factory", "own",
            "How long an asynchronous send may wait for company in its block.", unit="ms", low=0, high=60000),
    Setting("raybroker.producer.buffer_bytes", "size", 16 * MIB, "factory", "own",
            "Bodies a producer holds that are not acknowledged yet; one more send waits.",
            unit="bytes", low=64 * KIB, high=SIZE_BYTES_MAX),
    Setting("raybroker.producer.window_bytes", "size", 2 * MIB, "factory", "own",
            "Bytes a producer has under way to the broker at a time; the rest waits in its buffer. Small enough that "
            "what is received, written and forwarded stays in the processor's caches: 8m halved the throughput.",
            unit="bytes", low=64 * KIB, high=SIZE_BYTES_MAX),
    Setting("raybroker.reconnect.timeout_ms", "millis", 30000, "factory", "own",
            "How long a handle tries to reconnect before its calls raise ConnectionLostError.",
            unit="ms", low=0, high=DAY_MS),
    Setting("raybroker.connect.timeout_ms", "millis", 10000, "factory", "own",
            "How long opening one connection may take, from looking up the address to being authenticated.",
            unit="ms", low=1, high=DAY_MS),
)

ALL: Final[tuple[Setting, ...]] = BROKER + DESTINATION + FACTORY

LATER: Final[dict[str, str]] = {
    "imq.instancename": "B-19", "imq.system.max_count": "B-11", "imq.system.max_size": "B-12",
    "imq.autocreate.topic": "D-02", "imq.autocreate.topic.consumerFlowLimit": "D-02", "useDMQ": "D-24",
    "imqAsyncSendCompletionWaitTimeout": "R-02", "imqAddressList": "O-04", "imqAddressListBehavior": "R-13",
    "imqAddressListIterations": "R-13", "imqDefaultUsername": "O-04", "imqDefaultPassword": "O-04",
    "imq.message.expiration.interval": "B-09",
    "imq.green.threshold": "B-15", "imq.yellow.threshold": "B-15", "imq.orange.threshold": "B-15",
    "imq.red.threshold": "B-15", "imq.resource_state.threshold": "B-15", "imq.resource_state.count": "B-16",
    "imq.green.count": "B-16", "imq.yellow.count": "B-16", "imq.orange.count": "B-16", "imq.red.count": "B-16",
    "imq.service.activelist": "C-02", "imq.hostname": "C-04",
    "imq.portmapper.port": "C-03", "imq.portmapper.hostname": "C-03", "imq.portmapper.backlog": "C-03",
    "imq.shared.connectionMonitor_limit": "C-08", "imq.httpjms.http.pullPeriod": "C-13",
    "imq.persist.file.message.max_record_size": "P-07",
    "imq.persist.file.destination.message.filepool.limit": "P-08",
    "imq.persist.file.message.filepool.cleanratio": "P-09", "imq.persist.file.message.cleanup": "P-09",
    "imq.persist.file.newTxnLog.enabled": "P-11", "imq.persist.jdbc.dbVendor": "P-13", "imq.brokerid": "P-13",
    "imq.authentication.type": "S-03", "imq.authentication.basic.user_repository": "S-02",
    "imq.authentication.client.response.timeout": "S-01", "imq.accesscontrol.enabled": "S-04",
    "imq.accesscontrol.file.filename": "S-05", "imq.passfile.enabled": "S-14", "imq.audit.enabled": "S-16",
    "imq.metrics.enabled": "M-01", "imq.metrics.interval": "M-01", "imq.metrics.topic.enabled": "M-09",
    "imq.metrics.topic.interval": "M-09", "imq.metrics.topic.persist": "M-09", "imq.metrics.topic.timetolive": "M-09",
    "imq.log.level": "M-02", "imq.log.file.rolloverbytes": "M-04", "imq.log.file.rolloversecs": "M-04",
    "imq.destination.logDeadMsgs": "M-13", "imq.destination.DMQ.truncateBody": "D-24",
    "imq.autocreate.destination.useDMQ": "D-24", "imq.autocreate.topic.sharedConsumerFlowLimit": "D-27",
    "imq.cluster.url": "K-17", "imq.cluster.brokerlist": "K-17", "imq.cluster.masterbroker": "K-10",
    "imq.cluster.port": "K-17", "imq.cluster.transport": "K-17", "imq.cluster.hostname": "K-17",
    "imq.transaction.autorollback": "T-06", "imq.transaction.producer.maxNumMsgs": "T-09",
    "imq.transaction.consumer.maxNumMsgs": "T-09", "imq.txn.reapInterval": "T-09", "imq.txn.reapLimit": "T-09",
    "imqQueueBrowserMaxMessagesPerRetrieve": "R-12", "imqQueueBrowserRetrieveTimeout": "R-12",
    "imqPingAckTimeout": "R-14", "imqAbortOnPingAckTimeout": "R-14", "imqDisableSetClientID": "R-18",
    "imqSSLIsHostTrusted": "S-13", "validateXMLSchemaEnabled": "R-17", "XMLSchemaURIList": "R-17",
}
"""Properties of the seeds that this version does not have, with their rows."""
