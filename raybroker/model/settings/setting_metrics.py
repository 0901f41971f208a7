"""The properties of what can be observed: metrics, metrics messages and the log."""

from __future__ import annotations

from typing import Final

from raybroker.model.settings.setting import INT_MAX, PortRange, Setting
from raybroker.model.sizes import SIZE_BYTES_MAX

CATEGORIES: Final = ("ERROR", "WARNING", "INFO")
"""Levels of log lines, the most severe first."""
FACILITIES: Final = ("LOG_USER", "LOG_DAEMON", *(f"LOG_LOCAL{n}" for n in range(8)))

METRICS: Final[tuple[Setting, ...]] = (
    Setting("imq.metrics.enabled", "bool", True, "broker",
            "Whether metrics are written to the log; metrics messages and the endpoint are not affected."),
    Setting("imq.metrics.interval", "seconds", -1, "broker",
            "How often metrics are written to the log. -1 and 0: not at all.",
            unit="s", low=0, high=INT_MAX, unlimited=True, minus_one="not at all", reload="live"),
    Setting("imq.metrics.topic.enabled", "bool", True, "broker",
            "Whether there are metrics messages; if not, subscribing to a topic mq.metrics.* is refused."),
    Setting("imq.metrics.topic.interval", "seconds", 60, "broker",
            "How often metrics messages are sent to the topics mq.metrics.* that have a subscriber.",
            unit="s", low=1, high=INT_MAX, reload="live"),
    Setting("imq.metrics.topic.persist", "bool", False, "broker",
            "Whether metrics messages are persistent.", reload="live"),
    Setting("imq.metrics.topic.timetolive", "seconds", 300, "broker",
            "Life of a metrics message.", unit="s", low=0, high=INT_MAX, reload="live"),
    Setting("raybroker.metrics.enabled", "bool", True, "broker",
            "Whether each broker has an endpoint for Prometheus."),
    Setting("raybroker.metrics.ports", "ports", PortRange(0, 0), "broker",
            "TCP ports for the endpoints, one a broker; 0: any free port. raybroker discover writes down which."),
    Setting("raybroker.metrics.address", "string", "", "broker",
            "Address that the endpoint listens on; empty: the address of the node."),
    Setting("raybroker.metrics.authentication", "enum", "services", "broker",
            "When the endpoint asks who wants metrics: services, where imq.service.activelist names a service; always; "
            "none, nobody is asked. A scraper sends the token in the file metrics.token of raybroker.security.dir "
            "(Authorization: Bearer); users of the group admin may send their password from the broker's machine. "
            "/healthy, /health/live and /health/ready ask nobody, unless raybroker.metrics.probes is false.",
            choices=("services", "always", "none")),
    Setting("raybroker.metrics.probes", "bool", True, "broker",
            "Whether /healthy, /health/live and /health/ready ask nobody who he is: for probes that have no token. "
            "false: they ask as the other addresses do."),
    Setting("raybroker.metrics.tls", "bool", False, "broker",
            "Whether the endpoint speaks https alone, with the keystore of the broker (imq.keystore.*). Scrapers check "
            "its certificate, which needs the name or the address that they use (raybroker keytool make -n)."),
    Setting("raybroker.metrics.timing", "bool", True, "broker",
            "Whether hosts keep histograms of times and sizes. While there are few batches each is observed; of many "
            "small ones, below 2000 messages, one of eight, which counts eight times: it costs a microsecond a batch."),
    Setting("raybroker.metrics.cache_ms", "millis", 1000, "broker",
            "A scrape that comes sooner after another one gets the same values: hosts are not asked again.",
            unit="ms", low=0, high=60_000),
    Setting("raybroker.metrics.destinations_max", "int", 10_000, "broker",
            "Most destinations in one page of the destination tier; the names filter chooses.",
            unit="destinations", low=1, high=1_000_000),
)  # fmt: skip

LOGS: Final[tuple[Setting, ...]] = (
    Setting("imq.log.level", "enum", "INFO", "broker",
            "Least severe lines that are logged anywhere: each level has the more severe ones in it.",
            choices=(*CATEGORIES, "NONE"), reload="live"),
    Setting("imq.log.console.output", "string", "ERROR|WARNING", "broker",
            "What goes to the console: exactly these categories, of ERROR, WARNING and INFO with bars between, or ALL, "
            "or NONE. A category below imq.log.level is not logged whatever stands here."),
    Setting("imq.log.console.stream", "enum", "ERR", "broker",
            "Where the console's lines go.", choices=("OUT", "ERR")),
    Setting("imq.log.file.output", "string", "ALL", "broker",
            "What goes to the log file: as imq.log.console.output."),
    Setting("imq.log.file.dirpath", "string", "", "broker",
            "Directory of the log file; empty: log in the broker's directory."),
    Setting("imq.log.file.filename", "string", "log.txt", "broker",
            "Name of the log file; archives are log_1.txt to log_9.txt, the newest first."),
    Setting("imq.log.file.rolloverbytes", "size", -1, "broker",
            "Size at which the log file becomes an archive.", unit="bytes", low=1, high=SIZE_BYTES_MAX,
            unlimited=True, minus_one="whatever the size", reload="live"),
    Setting("imq.log.file.rolloversecs", "seconds", 604_800, "broker",
            "Age at which the log file becomes an archive; one week by default. Whichever of the two comes first.",
            unit="s", low=1, high=INT_MAX, unlimited=True, minus_one="whatever the age", reload="live"),
    Setting("imq.log.syslog.output", "string", "ERROR", "broker",
            "What goes to syslog, where there is one: as imq.log.console.output."),
    Setting("imq.log.syslog.facility", "enum", "LOG_DAEMON", "broker",
            "Facility of lines in syslog.", choices=FACILITIES),
    Setting("imq.log.syslog.logpid", "bool", True, "broker", "Whether lines in syslog have the process id."),
    Setting("imq.log.syslog.logconsole", "bool", False, "broker",
            "Whether what syslog cannot take goes to the console."),
    Setting("imq.log.syslog.identity", "string", "", "broker",
            "Prefix of lines in syslog; empty: imqbrokerd_ and the broker's name."),
    Setting("imq.log.timezone", "string", "local", "broker",
            "Time zone of times in the log: a name like Asia/Tokyo, or local."),
    Setting("raybroker.log.format", "enum", "text", "broker",
            "text: [time zone] [code]: text. json: an object a line, for machines.", choices=("text", "json")),
    Setting("raybroker.log.messages_bytes", "size", 64 << 20, "broker",
            "Size at which messages.log, where destinations with messageLoggingEnabled write, becomes an archive.",
            unit="bytes", low=4096, high=SIZE_BYTES_MAX),
)  # fmt: skip

OBSERVING: Final = METRICS + LOGS
