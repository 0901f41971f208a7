"""The properties of what can be observed: metrics, metrics messages and the log (M-01 … M-13)."""

from __future__ import annotations

from typing import Final

from raybroker.model.setting import INT_MAX, PortRange, Setting
from raybroker.model.sizes import SIZE_BYTES_MAX

CATEGORIES: Final = ("ERROR", "WARNING", "INFO")
"""What log lines are, the most severe first (M-02)."""
FACILITIES: Final = ("LOG_USER", "LOG_DAEMON", *(f"LOG_LOCAL{n}" for n in range(8)))

METRICS: Final[tuple[Setting, ...]] = (
    Setting("imq.metrics.enabled", "bool", True, "broker", "M-01",
            "Whether metrics are written to the log; metrics messages and the endpoint are not affected."),
    Setting("imq.metrics.interval", "seconds", -1, "broker", "M-01",
            "How often metrics are written to the log. -1 and 0: not at all.",
            unit="s", low=0, high=INT_MAX, unlimited=True, minus_one="not at all", reload="live"),
    Setting("imq.metrics.topic.enabled", "bool", True, "broker", "M-09",
            "Whether there are metrics messages; if not, subscribing to a topic mq.metrics.* is refused."),
    Setting("imq.metrics.topic.interval", "seconds", 60, "broker", "M-09",
            "How often metrics messages are sent to the topics mq.metrics.* that have a subscriber.",
            unit="s", low=1, high=INT_MAX, reload="live"),
    Setting("imq.metrics.topic.persist", "bool", False, "broker", "M-09",
            "Whether metrics messages are persistent.", reload="live"),
    Setting("imq.metrics.topic.timetolive", "seconds", 300, "broker", "M-09",
            "Life of a metrics message.", unit="s", low=0, high=INT_MAX, reload="live"),
    Setting("raybroker.metrics.enabled", "bool", True, "broker", "own",
            "Whether each broker has an endpoint for Prometheus."),
    Setting("raybroker.metrics.ports", "ports", PortRange(0, 0), "broker", "own",
            "TCP ports for the endpoints, one a broker; 0: any free port. raybroker discover writes down which."),
    Setting("raybroker.metrics.address", "string", "", "broker", "own",
            "Address that the endpoint listens on; empty: the address of the node. It needs no password: let only "
            "Prometheus reach it."),
    Setting("raybroker.metrics.timing", "bool", True, "broker", "own",
            "Whether hosts keep histograms of times and sizes. While there are few batches each is observed; of many "
            "small ones, below 2000 messages, one of eight, which counts eight times: it costs a microsecond a batch."),
    Setting("raybroker.metrics.cache_ms", "millis", 1000, "broker", "own",
            "A scrape that comes sooner after another one gets the same values: hosts are not asked again.",
            unit="ms", low=0, high=60_000),
    Setting("raybroker.metrics.destinations_max", "int", 10_000, "broker", "own",
            "Most destinations in one page of the destination tier; the names filter chooses.",
            unit="destinations", low=1, high=1_000_000),
)  # fmt: skip

LOGS: Final[tuple[Setting, ...]] = (
    Setting("imq.log.level", "enum", "INFO", "broker", "M-02",
            "Least severe lines that are logged anywhere: each level has the more severe ones in it.",
            choices=(*CATEGORIES, "NONE"), reload="live"),
    Setting("imq.log.console.output", "string", "ERROR|WARNING", "broker", "M-03",
            "What goes to the console: exactly these categories, of ERROR, WARNING and INFO with bars between, or ALL, "
            "or NONE. A category below imq.log.level is not logged whatever stands here."),
    Setting("imq.log.console.stream", "enum", "ERR", "broker", "M-03",
            "Where the console's lines go.", choices=("OUT", "ERR")),
    Setting("imq.log.file.output", "string", "ALL", "broker", "M-03",
            "What goes to the log file: as imq.log.console.output."),
    Setting("imq.log.file.dirpath", "string", "", "broker", "M-04",
            "Directory of the log file; empty: log in the broker's directory."),
    Setting("imq.log.file.filename", "string", "log.txt", "broker", "M-04",
            "Name of the log file; archives are log_1.txt to log_9.txt, the newest first."),
    Setting("imq.log.file.rolloverbytes", "size", -1, "broker", "M-04",
            "Size at which the log file becomes an archive.", unit="bytes", low=1, high=SIZE_BYTES_MAX,
            unlimited=True, minus_one="whatever the size", reload="live"),
    Setting("imq.log.file.rolloversecs", "seconds", 604_800, "broker", "M-04",
            "Age at which the log file becomes an archive; one week by default. Whichever of the two comes first.",
            unit="s", low=1, high=INT_MAX, unlimited=True, minus_one="whatever the age", reload="live"),
    Setting("imq.log.syslog.output", "string", "ERROR", "broker", "M-03",
            "What goes to syslog, where there is one: as imq.log.console.output."),
    Setting("imq.log.syslog.facility", "enum", "LOG_DAEMON", "broker", "M-05",
            "Facility of lines in syslog.", choices=FACILITIES),
    Setting("imq.log.syslog.logpid", "bool", True, "broker", "M-05", "Whether lines in syslog have the process id."),
    Setting("imq.log.syslog.logconsole", "bool", False, "broker", "M-05",
            "Whether what syslog cannot take goes to the console."),
    Setting("imq.log.syslog.identity", "string", "", "broker", "M-05",
            "Prefix of lines in syslog; empty: imqbrokerd_ and the broker's name."),
    Setting("imq.log.timezone", "string", "local", "broker", "M-06",
            "Time zone of times in the log: a name like Asia/Tokyo, or local."),
    Setting("raybroker.log.format", "enum", "text", "broker", "own",
            "text: [time zone] [code]: text. json: an object a line, for machines.", choices=("text", "json")),
    Setting("raybroker.log.messages_bytes", "size", 64 << 20, "broker", "W-130",
            "Size at which messages.log, where destinations with messageLoggingEnabled write, becomes an archive.",
            unit="bytes", low=4096, high=SIZE_BYTES_MAX),
)  # fmt: skip

OBSERVING: Final = METRICS + LOGS
