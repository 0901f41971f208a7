"""The table of every property of this version: one row a property, and nothing else.

Names and defaults are those of MQ and WebLogic; where a default differs, ``help`` gives the reason.  Properties that
the design has and this version has not are in ``LATER``, and those that it will not have in ``INSTEAD``: they are
refused by name, since a setting that is taken and does nothing is a trap.  Rows are ordered by scope and area; how to
find one is ``settings.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from raybroker.model.balancing import POLICIES
from raybroker.model.bounds import MESSAGE_BYTES_MAX, REFERENCE_BYTES_MAX
from raybroker.model.definitions.pauses import BY_DESTINATION, WORK, at_startup, of_broker
from raybroker.model.settings.setting import (
    DAY_MS,
    DELIVERY_MODES,
    INT_MAX,
    OVERRIDE_MS_MAX,
    PRIORITY_MAX,
    PortRange,
    Reload,
    Setting,
)
from raybroker.model.settings.setting_cluster import CLUSTER
from raybroker.model.settings.setting_factory import FACTORY
from raybroker.model.settings.setting_listeners import LISTENER_SETTINGS
from raybroker.model.settings.setting_memory import MEMORY
from raybroker.model.settings.setting_metrics import OBSERVING
from raybroker.model.settings.setting_security import SECURITY_SETTINGS
from raybroker.model.settings.setting_services import SERVICE_SETTINGS
from raybroker.model.settings.setting_store import STORE
from raybroker.model.settings.setting_thresholds import THRESHOLDS
from raybroker.model.settings.setting_tls import TLS_SETTINGS
from raybroker.model.sizes import KIB, MIB, SIZE_BYTES_MAX, UNLIMITED

IN_BROKER: Final = "broker"
HOSTINGS: Final = ("dedicated", "shared", IN_BROKER)
"""Where destinations are: the values of the attribute hosting."""

LIMIT_BEHAVIORS: Final = ("REJECT_NEWEST", "FLOW_CONTROL", "REMOVE_OLDEST", "REMOVE_LOW_PRIORITY")
PREFETCH_RECALLS: Final = ("Default", "Always", "Never")
STALENESS_POLICIES: Final = ("Default", "Discard", "Last")
STALENESS_MAX: Final = 1_000
"""Largest maxStaleness: each version that waits is looked at for each message that is handed out."""
EXPIRATION_POLICIES: Final = ("Default", "Discard", "Log", "Redirect")
FLOW_LIMIT_HELP: Final = "-1 and 0 mean no limit (a consumer that pulls one at a time is prefetch=0 of the handle)."
NO_OVERRIDE: Final = "no override"

_PAUSED_AT_STARTUP: Final = tuple(
    Setting(
        of_broker(work),
        "enum",
        BY_DESTINATION,
        "broker",
        f"Whether {work} of all destinations is paused at each start of their hosts. default: as the attribute "
        f"{at_startup(work)} of each says; true: of all; false: of none, whatever they say. A destination that is "
        "created later is not paused; resume dst resumes. Names that begin with mq. are not meant.",
        choices=(BY_DESTINATION, "true", "false"),
    )
    for work in WORK.values()
)

BROKER: Final[tuple[Setting, ...]] = (
    Setting("imq.message.max_size", "size", MESSAGE_BYTES_MAX, "broker",
            "Largest body of one message. Blocks are read and written whole, so 70m is also the most that can be set, "
            "and -1 means that.", unit="bytes", low=0, high=MESSAGE_BYTES_MAX, unlimited=True, reload="live"),
    Setting("raybroker.reference.max_size", "size", 512 * MIB, "broker",
            "Largest body of one message by reference (rb.ref, raybroker.producer.reference_bytes). "
            "imq.message.max_size does not hold for these, and maxBytesPerMsg of the destination does.",
            unit="bytes", low=0, high=REFERENCE_BYTES_MAX, reload="live"),
    Setting("imq.system.max_count", "int", UNLIMITED, "broker",
            "Most messages that all destinations of a broker hold together. Whatever is held counts: undelivered, "
            "unacknowledged, uncommitted and delayed ones. One more is refused. mq.sys.dmq and metrics "
            "topics do not count.", unit="messages", low=0, high=INT_MAX, unlimited=True, reload="live"),
    Setting("imq.system.max_size", "size", UNLIMITED, "broker",
            "Most bytes of message bodies that all destinations of a broker hold together; as imq.system.max_count.",
            unit="bytes", low=0, high=SIZE_BYTES_MAX, unlimited=True, reload="live"),
    Setting("raybroker.system.blockingSendPolicy", "enum", "FIFO", "broker",
            "Who goes first of the senders that wait for room within imq.system.max_count and max_size. FIFO: the one "
            "that came first, and who would fit waits behind it. Preemptive: whoever fits.",
            choices=("FIFO", "Preemptive"), reload="live"),
    *_PAUSED_AT_STARTUP,
    Setting("imq.ping.interval", "seconds", 15, "broker",
            "How often the broker pings its clients. One from which nothing has come between two pings is lost: "
            "a process that hangs or is stopped is noticed after 15 to 30 s, and its messages come again elsewhere, "
            "flagged. MQ's default is 120. Raise it for clients that may stand still for longer and are to keep their "
            "messages. 0 and -1 switch it off.",
            unit="s", low=0, high=86400, unlimited=True),
    Setting("imq.persist.file.sync.enabled", "bool", True, "broker",
            "Force every store operation to the device before it is acknowledged. MQ's default is false and can "
            "lose acknowledged messages at a power cut; group commit makes true affordable."),
    Setting("imq.persist.file.message.max_record_size", "size", MIB, "broker",
            "Persistent messages that were sent together, or one that is larger alone, get a file of their own when "
            "they have more bytes than that; -1: never. What is in such a file is not copied when space is reclaimed.",
            unit="bytes", low=4 * KIB, high=SIZE_BYTES_MAX, unlimited=True, minus_one="no own files"),
    Setting("imq.persist.file.destination.message.filepool.limit", "int", 100, "broker",
            "Free files of large messages that a host keeps for reuse; more are removed. Destinations of a shared host "
            "share them.", unit="files", low=0, high=10_000),
    Setting("imq.persist.file.message.filepool.cleanratio", "percent", 0, "broker",
            "Percent of these free files that are kept truncated to nothing: more work, less disk.",
            unit="%", low=0, high=100),
    Setting("imq.persist.file.message.cleanup", "bool", False, "broker",
            "Remove these free files when a host is stopped: a slower stop, less disk."),
    Setting("imq.autocreate.queue", "bool", True, "broker",
            "Create a missing queue when a producer or consumer opens it.", reload="live"),
    Setting("imq.autocreate.topic", "bool", True, "broker",
            "Create a missing topic when a producer or consumer opens it.", reload="live"),
    Setting("imq.autocreate.reaptime", "seconds", 120, "broker",
            "How long an auto-created destination without consumers and messages is kept.",
            unit="s", low=0, high=INT_MAX),
    Setting("imq.autocreate.destination.maxNumMsgs", "int", 100000, "broker",
            "maxNumMsgs of auto-created destinations.", unit="messages", low=0, high=INT_MAX, unlimited=True),
    Setting("imq.autocreate.destination.maxTotalMsgBytes", "size", 10 * MIB, "broker",
            "maxTotalMsgBytes of auto-created destinations.",
            unit="bytes", low=0, high=SIZE_BYTES_MAX, unlimited=True),
    Setting("imq.autocreate.destination.maxBytesPerMsg", "size", 10 * KIB, "broker",
            "maxBytesPerMsg of auto-created destinations.",
            unit="bytes", low=0, high=SIZE_BYTES_MAX, unlimited=True),
    Setting("imq.autocreate.destination.limitBehavior", "enum", "REJECT_NEWEST", "broker",
            "limitBehavior of auto-created destinations.", choices=LIMIT_BEHAVIORS),
    Setting("imq.autocreate.destination.maxNumProducers", "int", 100, "broker",
            "maxNumProducers of auto-created destinations.", unit="producers", low=1, high=INT_MAX, unlimited=True),
    Setting("imq.autocreate.destination.isLocalOnly", "bool", False, "broker",
            "isLocalOnly of auto-created destinations."),
    Setting("imq.autocreate.destination.useDMQ", "bool", True, "broker",
            "useDMQ of auto-created destinations.", reload="live"),
    Setting("imq.autocreate.queue.maxNumActiveConsumers", "int", UNLIMITED, "broker",
            "maxNumActiveConsumers of auto-created queues. MQ's first manual has 1, the later one -1; ours is -1, "
            "because a second consumer that is refused is what nobody expects of a queue.",
            unit="consumers", low=1, high=INT_MAX, unlimited=True, reload="live"),
    Setting("imq.autocreate.queue.maxNumBackupConsumers", "int", 0, "broker",
            "maxNumBackupConsumers of auto-created queues.",
            unit="consumers", low=0, high=INT_MAX, unlimited=True, reload="live"),
    Setting("imq.autocreate.queue.consumerFlowLimit", "int", 1000, "broker",
            "consumerFlowLimit of auto-created queues. " + FLOW_LIMIT_HELP,
            unit="messages", low=0, high=INT_MAX, unlimited=True),
    Setting("imq.autocreate.queue.localDeliveryPreferred", "bool", False, "broker",
            "localDeliveryPreferred of auto-created queues."),
    Setting("imq.autocreate.topic.consumerFlowLimit", "int", 1000, "broker",
            "consumerFlowLimit of auto-created topics. " + FLOW_LIMIT_HELP,
            unit="messages", low=0, high=INT_MAX, unlimited=True),
    Setting("imq.autocreate.topic.sharedConsumerFlowLimit", "int", 5, "broker",
            "sharedConsumerFlowLimit of auto-created topics.",
            unit="messages", low=0, high=INT_MAX, unlimited=True),
    Setting("imq.admincreate.topic.sharedConsumerFlowLimit", "int", 5, "broker",
            "sharedConsumerFlowLimit of topics that an administrator creates without saying one.",
            unit="messages", low=0, high=INT_MAX, unlimited=True),
    Setting("imq.message.expiration.interval", "seconds", 60, "broker",
            "How often a host looks for expired messages; one goes at most this long after its time. 0: no search, and "
            "an expired message goes when it would be delivered. It never reaches a consumer either way.",
            unit="s", low=0, high=86400, reload="live"),
    Setting("imq.destination.DMQ.truncateBody", "bool", False, "broker",
            "Keep only the headers and properties of dead messages.", reload="live"),
    Setting("imq.destination.logDeadMsgs", "bool", False, "broker",
            "Write a line to the log for every message that dies. Limits that are reached are told in any case.",
            reload="live"),
    Setting("imq.transaction.autorollback", "bool", False, "broker",
            "Roll back distributed transactions that are PREPARED when a host starts. false: they wait for their "
            "manager, or for raybroker commit txn and rollback txn."),
    Setting("imq.transaction.producer.maxNumMsgs", "int", 1000, "broker",
            "Most messages that one producer may send in one transaction.",
            unit="messages", low=1, high=INT_MAX, unlimited=True, reload="live"),
    Setting("imq.transaction.consumer.maxNumMsgs", "int", 100, "broker",
            "Most messages that one consumer may take in one transaction.",
            unit="messages", low=1, high=INT_MAX, unlimited=True, reload="live"),
    Setting("imq.transaction.message.maxConsecutiveRollbacks", "int", 0, "broker",
            "Rollbacks in a row after which a message goes to the dead message queue, whatever its destination's "
            "redeliveryLimit says; 0 and -1: off.",
            unit="rollbacks", low=0, high=INT_MAX, unlimited=True, minus_one="off", reload="live"),
    Setting("imq.txn.reapLimit", "int", 500, "broker",
            "Outcomes of finished transactions that a host remembers, for a client that lost its answer. It remembers "
            "10,000 in any case: each session may ask for its latest one. One manual prints imq.txt.reapLimit, a "
            "misprint.",
            unit="transactions", low=0, high=INT_MAX),
    Setting("raybroker.transaction.timeout_ms", "millis", 60 * 60 * 1000, "broker",
            "An open transaction that is older is rolled back: what it holds would be held for ever.",
            unit="ms", low=1000, high=INT_MAX, reload="live"),
    Setting("raybroker.hosting.default", "enum", "dedicated", "broker",
            "Host of a destination that an administrator creates: as its attribute hosting says.",
            choices=HOSTINGS),
    Setting("raybroker.hosting.autocreated", "enum", "shared", "broker",
            "Host of an auto-created destination, as its attribute hosting says: a thousand of them must not be a "
            "thousand processes.", choices=HOSTINGS),
    Setting("raybroker.hosting.shared.hosts", "int", 1, "broker",
            "Host actors in the shared pool of one broker; each is one process with one journal.",
            unit="processes", low=1, high=256),
    Setting("raybroker.hosting.spare", "bool", False, "broker",
            "Keep one host process ready that serves nothing yet, so that creating a destination with a host of its "
            "own does not wait for a process to start. It costs each broker the memory of an idle host, about 90 MB; "
            "one that was taken is replaced within seconds.", reload="live"),
    Setting("raybroker.spin", "spin", -1, "broker",
            "How long a host that has confirmed to a lone sender looks for its next frame before it sleeps, in "
            "microseconds: to be woken up takes 25 to 30 of them, and finds cold caches. auto: 100 where the host may "
            "use four processors or more, never with fewer. Spins in which nothing comes get rarer."),
    Setting("raybroker.store.dir", "string", "", "broker",
            "Directory of the stores; empty: raybroker/<cluster> in the user's state directory."),
    Setting("raybroker.store.segment_bytes", "size", 64 * MIB, "broker",
            "Size of one journal segment; space is preallocated and freed in this unit.",
            unit="bytes", low=MIB, high=1024 * MIB),
    Setting("raybroker.store.message_compression_enabled", "bool", False, "broker",
            "Whether hosts compress bodies before they store them (zlib, at its best speed), and open them when they "
            "are read back. In memory they stay as they came, and limits and quotas count that. Bodies that came "
            "compressed, or in pieces, are stored as they are. A send waits for it: it saves disk for processor time. "
            "WebLogic's StoreMessageCompressionEnabled.", reload="live"),
    Setting("raybroker.store.low_free_percent", "percent", 10, "broker",
            "The disk of a store is called nearly full, in the log, in metrics and by query bkr, when less of it is "
            "free; 0: never. It is an alarm and refuses nothing. For check bkr it is a warning, and less than a tenth "
            "of it is critical.", unit="%", low=0, high=100, reload="live"),
    Setting("raybroker.store.low_free_bytes", "size", 0, "broker",
            "The same, when fewer bytes are free, whatever part of the disk that is.",
            unit="bytes", low=0, high=SIZE_BYTES_MAX, reload="live"),
    Setting("raybroker.data.ports", "ports", PortRange(0, 0), "broker",
            "TCP ports for the data sockets of the hosts, one a host, and UDP ports for signs of life, one a host and"
            " one a broker (where none comes through, Ray carries them); 0: any free port."),
    Setting("raybroker.memory.block_cache_bytes", "size", 16 * MIB, "broker",
            "Bodies of persistent messages that one host keeps in memory; the rest is read from the store.",
            unit="bytes", low=0, high=SIZE_BYTES_MAX),
    Setting("raybroker.paging.message_buffer_bytes", "size", UNLIMITED, "broker",
            "Bodies of messages that are not stored (non-persistent, or wanted by no durable subscription) that a host "
            "keeps in memory, with 512 bytes for each block of messages; the rest goes to paging files. It is no "
            "limit: nothing is refused or waits because of it. WebLogic's MessageBufferSize.",
            unit="bytes", low=0, high=SIZE_BYTES_MAX, unlimited=True,
            minus_one="a third of the memory, at most 512m, shared by the broker's hosts (at least 8m each)",
            reload="live"),
    Setting("raybroker.paging.directory", "string", "", "broker",
            "Directory of paging files, with a directory for each host in it; empty: the directory of each host's "
            "store. What is in them means nothing after a restart and is removed at the start. The same disk as the "
            "journal's is as good as another one as long as little is paged. A loopback without a store pages only "
            "when this is set."),
    Setting("raybroker.paging.file_bytes", "size", 128 * MIB, "broker",
            "Size at which the next paging file begins; a file is removed when none of its messages is left. "
            "WebLogic's PagingMaxFileSize, 1280m there; smaller files give back room sooner.",
            unit="bytes", low=MIB, high=1024 * MIB),
    Setting("raybroker.paging.message_compression_enabled", "bool", False, "broker",
            "Whether bodies are compressed before they go to paging files; as "
            "raybroker.store.message_compression_enabled, but in the thread that writes the files, so that no send "
            "waits for it. WebLogic's PagingMessageCompressionEnabled.", reload="live"),
    Setting("raybroker.connections_max", "int", 4096, "broker",
            "Connections of one host; one more is refused. Each costs a file descriptor and its buffers.",
            unit="connections", low=1, high=65536),
    Setting("raybroker.handshake.timeout_ms", "millis", 10000, "broker",
            "How long a new connection may take to authenticate before it is closed.",
            unit="ms", low=1, high=DAY_MS),
)  # fmt: skip

_LIVE: Final[Reload] = "live"
DESTINATION: Final[tuple[Setting, ...]] = (
    Setting("maxNumMsgs", "int", UNLIMITED, "destination",
            "Most messages held; the next one triggers limitBehavior.",
            unit="messages", low=0, high=INT_MAX, unlimited=True, reload=_LIVE),
    Setting("maxTotalMsgBytes", "size", UNLIMITED, "destination",
            "Most bytes of messages held; taken while less is held, so one message may overshoot. Where others make "
            "room (REMOVE_OLDEST, REMOVE_LOW_PRIORITY) a message that is larger than this is refused.",
            unit="bytes", low=0, high=SIZE_BYTES_MAX, unlimited=True, reload=_LIVE),
    Setting("maxBytesPerMsg", "size", UNLIMITED, "destination",
            "Largest body of a single message; imq.message.max_size of the broker holds as well.",
            unit="bytes", low=0, high=SIZE_BYTES_MAX, unlimited=True, reload=_LIVE),
    Setting("maximumMessageSize", "size", UNLIMITED, "destination",
            "Largest single message with its headers: the body as it travels, and properties, correlation id, type and "
            "the other headers as they are encoded. WebLogic's MaximumMessageSize, 2147483647 there. Checked when a "
            "message is sent, and not when a stored one is moved here from another destination. It may not be less "
            "than maxBytesPerMsg, which counts the body alone.",
            unit="bytes", low=0, high=SIZE_BYTES_MAX, unlimited=True, reload=_LIVE),
    Setting("affinityWait", "int", 1_000, "destination",
            "How long a message waits for a consumer with its label, where there is one, before anybody may have it: "
            "see affinityKey. 0: it does not.",
            unit="ms", low=0, high=3_600_000, reload=_LIVE),
    Setting("maxCheckpointBytes", "size", 64 * KIB, "destination",
            "Largest checkpoint of a delivery, message.checkpoint(state), as it is encoded; 0: none. All of "
            "a queue or subscription together are in memory, and are at most 256 MiB.",
            unit="bytes", low=0, high=512 * KIB, reload=_LIVE),
    Setting("messagesHigh", "int", UNLIMITED, "destination",
            "Messages held above which it is over its threshold: a line in the log, the time counts, and producers of "
            "connections with FlowControlEnabled send more and more slowly (FlowMaximum, FlowMinimum, FlowInterval, "
            "FlowSteps) until it is not. It refuses nothing: that is maxNumMsgs.",
            unit="messages", low=0, high=INT_MAX, unlimited=True, minus_one="no threshold", reload=_LIVE),
    Setting("messagesLow", "int", UNLIMITED, "destination",
            "Messages held below which it is not over messagesHigh any more; has to be lower than that.",
            unit="messages", low=0, high=INT_MAX, unlimited=True, minus_one="no threshold", reload=_LIVE),
    Setting("bytesHigh", "size", UNLIMITED, "destination",
            "As messagesHigh, of the bytes of messages held.",
            unit="bytes", low=0, high=SIZE_BYTES_MAX, unlimited=True, minus_one="no threshold", reload=_LIVE),
    Setting("bytesLow", "size", UNLIMITED, "destination",
            "As messagesLow, for bytesHigh.",
            unit="bytes", low=0, high=SIZE_BYTES_MAX, unlimited=True, minus_one="no threshold", reload=_LIVE),
    Setting("limitBehavior", "enum", "REJECT_NEWEST", "destination",
            "What happens at maxNumMsgs and maxTotalMsgBytes: REJECT_NEWEST refuses the new one; FLOW_CONTROL "
            "makes the producers wait; what is stored by then is confirmed, and each producer may overshoot the limit "
            "by limit / maxNumProducers messages, 1 to 1000; a transaction waits before its first message, and not "
            "once it has sent or received something, so that it may overshoot by all it holds; one of a STOMP client "
            "does not wait; "
            "REMOVE_OLDEST discards the oldest, also where a consumer has prefetched it and not begun; "
            "REMOVE_LOW_PRIORITY discards the lowest priority, and within one the oldest: one translation of MQ's "
            "manual says by expiry, which its own code and manual do not.",
            choices=LIMIT_BEHAVIORS, reload=_LIVE),
    Setting("maxNumProducers", "int", 100, "destination",
            "Most producers at a time; one more is refused.",
            unit="producers", low=1, high=INT_MAX, unlimited=True, reload=_LIVE),
    Setting("maxNumActiveConsumers", "int", UNLIMITED, "destination",
            "Consumers of a queue that share its messages.",
            unit="consumers", low=1, high=INT_MAX, unlimited=True, reload=_LIVE, only="queue"),
    Setting("maxNumBackupConsumers", "int", 0, "destination",
            "Consumers of a queue that wait to take the place of an active one; one more is refused.",
            unit="consumers", low=0, high=INT_MAX, unlimited=True, reload=_LIVE, only="queue"),
    Setting("consumerFlowLimit", "int", 1000, "destination",
            "Most messages delivered to one consumer in one batch. With another value than 1000, and for consumers "
            "with a prefetch of their own, full batches go to one consumer after the other; else one that is idle gets "
            "half of what another one holds and has not begun. " + FLOW_LIMIT_HELP,
            unit="messages", low=0, high=INT_MAX, unlimited=True, reload=_LIVE),
    Setting("sharedConsumerFlowLimit", "int", 5, "destination",
            "consumerFlowLimit of each consumer of a shared subscription: small, so that they share evenly. "
            "-1 and 0 mean no limit.",
            unit="messages", low=0, high=INT_MAX, unlimited=True, reload=_LIVE, only="topic"),
    Setting("prefetchRecall", "enum", "Default", "destination",
            "Whether messages that a consumer has prefetched and its application has not begun are taken back for "
            "another consumer that has been idle for 20 ms; they do not count as delivered. Default: of consumers "
            "whose limit nobody has set, while they hold 4 or more, without those of a unit of order. Always: also of "
            "those with a prefetch of their own or under a consumerFlowLimit, down to the message in work, and whole "
            "units of order of which none is begun. Never: each keeps what it got.",
            choices=PREFETCH_RECALLS, reload=_LIVE),
    Setting("isLocalOnly", "bool", False, "destination",
            "Only consumers on the creating broker; chosen at creation and never changed.", reload="fixed"),
    Setting("localDeliveryPreferred", "bool", False, "destination",
            "Deliver to consumers on other brokers only while the producer's broker has none.",
            reload=_LIVE, only="queue"),
    Setting("hosting", "enum", "dedicated", "destination",
            "The process that carries it, chosen at creation. dedicated: one of its own; shared: one of a pool; "
            "broker: that of the broker, on the loop of its gateways. A message that comes over STOMP or HTTP is "
            "confirmed soonest by broker, which shares a processor core with all clients of these protocols and ends "
            "with the broker's process; its stores are files or memory, not SQL.",
            choices=HOSTINGS, reload="fixed"),
    Setting("replicas", "int", 1, "destination",
            "How many copies of what it stores there are to be, each on another Ray node: 1, 3 or 5; a send is "
            "confirmed once a majority has it. The queue is in one place of the cluster then, at the broker whose copy "
            "leads, and another one takes over when that is lost. 1 after more than that: it stays in its one place.",
            unit="copies", low=1, high=5, reload="gradual"),
    Setting("minInSync", "int", 0, "destination",
            "How many copies have to have a message before its send is confirmed: from a majority up to all of them. "
            "0: a majority. Fewer are refused: who leads after a loss is decided by a majority, which could lack what "
            "was confirmed.",
            unit="copies", low=0, high=5, reload="gradual"),
    Setting("useDMQ", "bool", True, "destination",
            "Move dead messages to mq.sys.dmq: expired ones, those over redeliveryLimit, and those that a full "
            "destination removes. false: they are discarded.", reload=_LIVE),
    Setting("expirationPolicy", "enum", "Default", "destination",
            "What becomes of an expired message: Discard removes it, Log removes it with a line in the log, Redirect "
            "moves it to errorDestination, Default goes by useDMQ. Their own default is Discard in "
            "WebLogic, and the dead message queue in MQ; ours keeps what nobody has seen.",
            choices=EXPIRATION_POLICIES, reload=_LIVE),
    Setting("expirationLoggingPolicy", "string", "", "destination",
            "What the line of expirationPolicy=Log shows beside the message id: names of headers and properties, "
            "%header% or %properties% for all of them, with commas between.", reload=_LIVE),
    Setting("errorDestination", "string", "", "destination",
            "A queue for what expires (expirationPolicy=Redirect) and for what is over redeliveryLimit; it has to be "
            "on the same broker. Empty: useDMQ decides. It must not lead back to the destination itself. While it is "
            "full or does not exist, persistent dead messages stay where they died, which the log says, and are "
            "offered again every 5 s; others are dropped.", reload=_LIVE),
    Setting("redeliveryLimit", "int", 20, "destination",
            "Times that a message is delivered again after it failed; the next failure makes it a dead message. MQ "
            "and WebLogic have no limit; ours is 20, because one message that cannot be handled must not turn "
            "for ever.",
            unit="redeliveries", low=0, high=INT_MAX, unlimited=True, reload=_LIVE),
    Setting("redeliveryLimitByCause", "string", "", "destination",
            "Redelivery limits of failures whose cause is known, which are counted apart: oom=3 (out of memory), lost "
            "(the process, actor or node that worked on it has died), preempted (its node was taken away), timeout, "
            "poison=0 (the body cannot be decoded), with commas between; -1: no limit. Not named: oom 3, poison 0, "
            "preempted none, lost and timeout as redeliveryLimit. With lost= the death of a consumer that had begun "
            "counts as that, and with timeout= an ack deadline that has passed does; without, the one counts as a "
            "failure of the application and the other not at all.", reload=_LIVE),
    Setting("errorDestinationByCause", "string", "", "destination",
            "Queues for what is dead by a cause, such as oom=work.large, where consumers have more memory; as "
            "errorDestination, which holds for causes that are not named.", reload=_LIVE),
    Setting("redeliveryDelayOverride", "millis", UNLIMITED, "destination",
            "Pause before a failed message is delivered again, whatever the consumer asks for.",
            unit="ms", low=0, high=INT_MAX, unlimited=True, minus_one=NO_OVERRIDE, reload=_LIVE),
    Setting("redeliveryBackoffPercent", "percent", 100, "destination",
            "Each further redelivery of one message waits this many percent of the pause before; 100: always the same, "
            "200: twice as long each time.", unit="%", low=100, high=10000, reload=_LIVE),
    Setting("redeliveryDelayMax", "millis", 60000, "destination",
            "Longest pause that redeliveryBackoffPercent leads to.", unit="ms", low=0, high=INT_MAX, reload=_LIVE),
    Setting("timeToLiveOverride", "millis", UNLIMITED, "destination",
            "Life of every message that arrives, whatever its producer says; 0: it never expires.",
            unit="ms", low=0, high=OVERRIDE_MS_MAX, unlimited=True, minus_one=NO_OVERRIDE, reload=_LIVE),
    Setting("timeToDeliverOverride", "millis", UNLIMITED, "destination",
            "Delay of every message that arrives before it can be received, whatever its producer says.",
            unit="ms", low=0, high=OVERRIDE_MS_MAX, unlimited=True, minus_one=NO_OVERRIDE, reload=_LIVE),
    Setting("priorityOverride", "int", UNLIMITED, "destination",
            "Priority of every message that arrives, whatever its producer says; 9 is the highest.",
            unit="priority", low=0, high=PRIORITY_MAX, unlimited=True, minus_one=NO_OVERRIDE, reload=_LIVE),
    Setting("deliveryModeOverride", "enum", "No-Delivery", "destination",
            "Whether every message that arrives is stored, whatever its producer says; No-Delivery: no override.",
            choices=("No-Delivery", *DELIVERY_MODES), reload=_LIVE),
    Setting("productionPausedAtStartup", "bool", False, "destination",
            "Refuse producers and their messages from the host's start until production is resumed. Takes effect at "
            "the next start."),
    Setting("insertionPausedAtStartup", "bool", False, "destination",
            "Hide arriving, committed and redelivered messages from the host's start until insertion is resumed. Takes "
            "effect at the next start."),
    Setting("consumptionPausedAtStartup", "bool", False, "destination",
            "Deliver nothing from the host's start until consumption is resumed. Takes effect at the next start."),
    Setting("duplicateWindowMs", "millis", 0, "destination",
            "How long the deduplication ids of messages are remembered; one that comes again meanwhile is taken once. "
            "An id is taken when its message is stored, in a transaction with the commit: of messages with one id that "
            "are sent meanwhile, the one that is stored or committed first stays. The id of a non-persistent message "
            "is forgotten when its host restarts, and does not stand for a persistent one: that is stored as well, so "
            "that both may be delivered. In a cluster "
            "the hash of an id over all brokers, or the message's unit of order, names the broker that stores it: "
            "while that one is down the send fails, and after a broker was added or removed an id may be taken again. "
            "0: off; of a cluster's destination it is switched on when that is created.",
            unit="ms", low=0, high=7 * DAY_MS, reload=_LIVE),
    Setting("duplicateIdsMax", "int", 20000, "destination",
            "Most deduplication ids remembered; the oldest goes first, also before its duplicateWindowMs.",
            unit="ids", low=1, high=10_000_000, reload=_LIVE),
    Setting("unitOfOrder", "bool", False, "destination",
            "true: messages that have no unit of order get the destination's own, so that they are processed one after "
            "the other in the order of their arrival, whichever consumers serve it.", reload=_LIVE),
    Setting("unitOfOrderRouting", "enum", "Hash", "destination",
            "Which broker gets a unit of order: Hash, the one that a hash over all brokers of the cluster gives; "
            "PathService, the one that got its first message, for as long as the unit is used.",
            choices=("Hash", "PathService"), reload=_LIVE),
    Setting("distributed", "bool", False, "destination",
            "true: producers share its messages out over the members on all brokers (loadBalancingPolicy), and each "
            "consumer of a queue is attached to one member, chosen when it is opened. false: messages stay with the "
            "home broker of their producer, and every consumer gets those of all members.", reload="fixed"),
    Setting("loadBalancingPolicy", "enum", "Round-Robin", "destination",
            "How producers of a distributed destination choose among equally good members. Producers learn of a "
            "change when they are opened or connected again.", choices=POLICIES, reload=_LIVE),
    Setting("forwardDelay", "seconds", UNLIMITED, "destination",
            "How long the member of a distributed queue may have messages and no consumers before it forwards them to "
            "members that have some. Messages with a unit of order stay.",
            unit="s", low=0, high=INT_MAX, unlimited=True, minus_one="they are never forwarded", reload=_LIVE,
            only="queue"),
    Setting("resetDeliveryCountOnForward", "bool", True, "destination",
            "Whether a message that is forwarded to another member (forwardDelay) begins anew with its delivery count. "
            "false: it goes on counting there, and is redelivered if it was before; redeliveryLimit counts anew either "
            "way.", reload=_LIVE, only="queue"),
    Setting("forwardingPolicy", "enum", "Replicated", "destination",
            "Replicated: a subscriber of a distributed topic gets what was published on any member. Partitioned: it is "
            "attached to one member, and gets what was published there.",
            choices=("Replicated", "Partitioned"), reload="fixed", only="topic"),
    Setting("destinationKeys", "string", "", "destination",
            "What waiting messages are ordered by, most significant first, instead of priority and arrival: "
            "headers (JMSPriority, JMSTimestamp, JMSCorrelationID, JMSType, JMSExpiration, JMSDeliveryTime, "
            "JMSDeliveryMode, JMSReplyTo, JMSRedelivered) and properties with ascending or descending, and commas "
            "between: 'JMSPriority descending, region'. JMSMessageID is the order of arrival; it is the last key "
            "whether it is named or not, and 'JMSMessageID descending' is last in, first out. A message without "
            "the property is the smallest. Nothing is reordered inside a unit of order, nor what a consumer has been "
            "sent. Costs about 0.3 KB of memory a message; after a restart the headers of all messages are read "
            "before the first is delivered. Empty: none.", reload="fixed"),
    Setting("affinityKey", "string", "", "destination",
            "The property of messages that names what they need at hand, such as a model; consumers say with labels= "
            "what they have. A message is for those who have it until affinityWait is over, and then for anybody; so "
            "are at once those whose label nobody has. RAYBROKER_NODE is the node of a body that was sent with "
            "rb.ref; consumers in Ray have their node among their labels. Nothing is recalled for idle consumers "
            "then, and units of order go before it. Empty: none.", reload="fixed"),
    Setting("versionKey", "string", "", "destination",
            "The property of messages that has the version of the model or data that they were made with, a whole "
            "number from 0. Against the version that publish version says, those further behind than maxStaleness are "
            "stale, and stalenessPolicy says what becomes of them; one without the property never is. A unit of work "
            "has the lowest version of its messages. Messages with a unit of order are refused. Empty: none.",
            reload="fixed", only="queue"),
    Setting("maxStaleness", "int", 0, "destination",
            "How many versions a message may be behind the published one: see versionKey. 0: it has to have that "
            "version, or a later one.",
            unit="versions", low=0, high=STALENESS_MAX, unlimited=True, reload=_LIVE, only="queue"),
    Setting("stalenessPolicy", "enum", "Default", "destination",
            "What becomes of a stale message (versionKey): Default goes by useDMQ, with the reason STALE; Discard "
            "removes it; Last delivers it when nothing else waits. All are counted. What a consumer has been given is "
            "not taken from it, and is judged again when it comes back.",
            choices=STALENESS_POLICIES, reload=_LIVE, only="queue"),
    Setting("starvationTime", "millis", UNLIMITED, "destination",
            "How long a consumer that has nothing may wait for a message before a queue with versionKey starves: a "
            "line in the log, a metric, and a warning of check dst, until it gets one. A pause of consumers does not "
            "count.",
            unit="ms", low=0, high=OVERRIDE_MS_MAX, unlimited=True, minus_one="never", reload=_LIVE, only="queue"),
    Setting("unitOfWorkHandlingPolicy", "enum", "PassThrough", "destination",
            "SingleMessageDelivery: messages with the property JMS_BEA_UnitOfWork are held until their unit is "
            "complete, and received as one message with the list of their bodies. PassThrough: the properties mean "
            "nothing here.", choices=("PassThrough", "SingleMessageDelivery"), reload="fixed"),
    Setting("incompleteWorkExpirationTime", "millis", UNLIMITED, "destination",
            "How long after its first message an incomplete unit of work expires (expirationPolicy).",
            unit="ms", low=0, high=OVERRIDE_MS_MAX, unlimited=True, minus_one="never", reload=_LIVE),
    Setting("maxNumSchedules", "int", 100, "destination",
            "Most recurring schedules that send here; making one more is refused. Each one costs a stored message, and "
            "a sync at every occurrence.", unit="schedules", low=0, high=100_000, unlimited=True, reload=_LIVE),
    Setting("messagingPerformancePreference", "int", 25, "destination",
            "Whether messages wait for others before they go to a consumer in a batch that does not fill its limit. 0: "
            "no, and each consumer that comes from now on has one message at a time. 25: no. 50, 75, 100: for 5, 20 "
            "and 100 ms at most; not for consumers with a limit below 10, nor for those that are served by several "
            "brokers. Fewer and larger batches cost less and come later.", unit="steps", low=0, high=100, reload=_LIVE),
    Setting("consumersBeforeDispatch", "int", 0, "destination",
            "Consumers, backups included, that a queue waits for before it delivers to any. It then delivers until the "
            "last one has left; a restart waits anew. 0: it does not wait.",
            unit="consumers", low=0, high=INT_MAX, reload=_LIVE, only="queue"),
    Setting("delayBeforeDispatch", "millis", UNLIMITED, "destination",
            "How long after the first consumer came a queue waits for consumersBeforeDispatch consumers; then it "
            "delivers to those that are there.",
            unit="ms", low=0, high=OVERRIDE_MS_MAX, unlimited=True, minus_one="as long as it takes", reload=_LIVE,
            only="queue"),
    Setting("validateXMLSchemaEnabled", "bool", False, "destination",
            "Whether producers check the XML of text messages before they send them; one that is not valid is refused "
            "with MessageFormatError and not sent. Bodies that are no text are not looked at. Producers learn of a "
            "change when they are opened or connected again. Needs: pip install 'raybroker[xml]' where they run.",
            reload=_LIVE),
    Setting("XMLSchemaURIList", "string", "", "destination",
            "Where the schemas (XSD) are that a text has to be valid by, as one set: files, file:, http: or https: "
            "URIs with spaces between, read by the producers. Empty: a text has to be well formed, and valid by the "
            "DTD inside it if it has one.", reload=_LIVE),
    Setting("reloadXMLSchemaOnFailure", "bool", False, "destination",
            "Read the schemas again when a text is not valid, and check it once more.", reload=_LIVE),
    Setting("messageLoggingEnabled", "bool", False, "destination",
            "Whether the lives of its messages go to messages.log of its host: produced, consumed, removed, expired, "
            "over their redelivery limit; and consumers that come and go. A line a message and event.", reload=_LIVE),
    Setting("messageLoggingFormat", "string", "", "destination",
            "What a line of messages.log has beside the message's ids, as expirationLoggingPolicy.", reload=_LIVE),
    Setting("quota", "string", "", "destination",
            "The quota (create quota) that bounds what the destination holds, beside its own limits. It then does not "
            "count for imq.system.max_count and imq.system.max_size. Another one, from one moment to the next: sends "
            "that wait for room are refused. Empty: the broker's own limits hold.", reload=_LIVE),
    Setting("template", "string", "", "destination",
            "The template that supplies the attributes which are not given when the destination is created.",
            reload="fixed"),
)  # fmt: skip

ALL: Final[tuple[Setting, ...]] = (
    BROKER
    + THRESHOLDS
    + STORE
    + MEMORY
    + CLUSTER
    + SERVICE_SETTINGS
    + LISTENER_SETTINGS
    + SECURITY_SETTINGS
    + TLS_SETTINGS
    + OBSERVING
    + DESTINATION
    + FACTORY
)

LATER: Final = frozenset(
    {
        "imq.txn.reapInterval",
    }
)
"""Properties of MQ and WebLogic that this version does not have."""

_JOURNAL: Final = "there is no choice: transactions are in the journal, which "
_BY_RAY: Final = (
    "brokers reach each other through Ray, whose addresses and ports 'ray start' names (--node-ip-address,"
    " --node-manager-port, --min-worker-port); messages and heartbeats have the ports of raybroker.data.ports"
)
_SENDER: Final = (
    "no sender says of itself who it is, and brokers refuse messages that do; the user and the client id of a"
    " connection are in list cxn, and what a receiver shall know goes into a property of the application's own"
)
_TRANSACTIONS: Final = (
    "transactions have no id here that means something outside of the session that has them; what a receiver shall know"
    " goes into a property of the application's own"
)
INSTEAD: Final[Mapping[str, str]] = {
    "imqSetJMSXUserID": _SENDER,
    "imqSetJMSXAppID": _SENDER,
    "imqSetJMSXProducerTXID": _TRANSACTIONS,
    "imqSetJMSXConsumerTXID": _TRANSACTIONS,
    "imqSetJMSXRcvTimestamp": "a message has no property for when it was received; its consumer knows the time",
    "imqLoadMaxToServerSession": (
        "there are no server sessions of an application server: rb.deploy and rb.pool make the consumers of a pool, and"
        " imqConsumerFlowLimit says how many messages each of them has"
    ),
    "imq.persist.file.newTxnLog.enabled": _JOURNAL + "is a log of all changes already",
    "imq.persist.file.transaction.memorymappedfile.enabled": _JOURNAL + "is written and synced, and not mapped",
    "imq.persist.file.txnLog.groupCommit": _JOURNAL + "always commits in groups",
    "imq.persist.file.txnLog.logNonTransactedMsgSend": _JOURNAL + "has every persistent message that was sent",
    "imq.persist.file.txnLog.logNonTransactedMsgAck": _JOURNAL + "has every acknowledgement of those",
    "StoreMessageCompressionEnabled": "it is raybroker.store.message_compression_enabled",
    "PagingMessageCompressionEnabled": "it is raybroker.paging.message_compression_enabled",
    "imq.cluster.port": _BY_RAY,
    "imq.cluster.heartbeat.hostname": _BY_RAY,
    "imq.cluster.heartbeat.port": _BY_RAY,
    "imq.cluster.heartbeat.interval": "it is raybroker.cluster.heartbeat_ms, in milliseconds",
    "imq.cluster.heartbeat.threshold": (
        "it is raybroker.cluster.suspect_ms and raybroker.cluster.down_ms: silence counts in milliseconds, and not in"
        " heartbeats that are missed"
    ),
    "imq.cluster.hostname": _BY_RAY,
    "imq.shared.connectionMonitor_limit": (
        "connections are served by event loops, not by threads that watch them; imq.<service>.max_threads bounds them"
    ),
    "MaximumMessageSize": "it is the destination attribute maximumMessageSize",
}
"""Properties of MQ and WebLogic that this broker will not have → what there is in their place."""
