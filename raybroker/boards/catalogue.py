"""The boards: what each one is for, and the queries of its panels."""

from __future__ import annotations

from typing import Any, Final

from raybroker.boards.layout import Board, BoardRow, Panel, board_json, panel, stat
from raybroker.boards.promql import (
    AGAIN,
    ARRIVALS,
    BACKLOG,
    CLOCKS,
    DRAIN_S,
    DRY,
    EPISODES,
    FULL_S,
    IN_FLIGHT,
    OF_LIMIT,
    ROUTED,
    UNITS,
    WIRE,
    B,
    D,
    R,
    mean,
    most,
    quantile,
    quantiles,
    rate,
    top,
    total,
)


def heat(title: str, metric: str, *, unit: str, labels: str = B, note: str = "") -> Panel:
    query = f"sum by (le) (increase(raybroker_{metric}_bucket{{{labels}}}{R}))"
    return panel(title, (query, "{{le}}"), unit=unit, kind="heatmap", width=12, note=note)


def by_broker(title: str, *queries: str, unit: str = "short", note: str = "", stacked: bool = True) -> Panel:
    return panel(title, *((query, "{{broker}}") for query in queries), unit=unit, note=note, stacked=stacked)


OVERVIEW = Board(
    "raybroker-overview", "raybroker / Cluster overview", "Is the cluster well, how much flows, where does it wait?",
    (
        BoardRow("Now", (
            stat("Brokers up", f'max(raybroker_brokers{{{B},state="UP"}})'),
            stat("Brokers down", f'max(raybroker_brokers{{{B},state="DOWN"}})', bad=1),
            stat("Messages held", f"sum(raybroker_messages{{{B}}})"),
            stat("Bytes held", f"sum(raybroker_message_bytes{{{B}}})", unit="bytes"),
            stat("Oldest message", f"max(raybroker_oldest_message_age_seconds{{{B}}})", unit="s"),
            stat("Fullest destination", f"max(raybroker_quota_used_ratio{{{B}}})", unit="percentunit", bad=0.9),
            stat("In", f"sum(rate(raybroker_messages_in_total{{{B}}}{R}))", unit="cps"),
            stat("Out", f"sum(rate(raybroker_messages_out_total{{{B}}}{R}))", unit="cps"),
            stat("Destinations", f"sum(max by (cluster) (sum by (cluster, broker) (raybroker_destinations{{{B}}})))",
                 note="Each destination has a member on every broker: the broker with the most of them."),
            stat("Connections", f"sum(raybroker_connections{{{B}}})"),
            stat("Halted destinations", f"sum(raybroker_halted{{{B}}})", bad=1,
                 note="A damaged message stops its destination; purge it or restore the store."),
            stat("Hosts without an answer", f"sum(raybroker_unreachable_hosts{{{B}}})", bad=1),
            stat("Host restarts in an hour", f"sum(increase(raybroker_host_restarts_total{{{B}}}[1h]))", bad=1),
            stat("Takeovers in an hour", f"sum(increase(raybroker_takeovers_total{{{B}}}[1h]))", bad=1,
                 note="Lost brokers that others took over, in a database that they share."),
        )),
        BoardRow("Flow", (
            by_broker("Messages in", rate("messages_in_total"), unit="cps"),
            by_broker("Messages out", rate("messages_out_total"), unit="cps", note="Acknowledged by consumers."),
            by_broker("Messages held", total("messages")),
            by_broker("Bytes in", rate("message_in_bytes_total"), unit="Bps"),
            by_broker("Bytes out", rate("message_out_bytes_total"), unit="Bps"),
            by_broker("Bytes held", total("message_bytes"), unit="bytes"),
        )),
        BoardRow("Time", (
            panel("Send to confirmation", *quantiles("send_to_store_seconds"), unit="s"),
            panel("Arrival to delivery", *quantiles("store_to_delivery_seconds"), unit="s"),
            panel("Delivery to acknowledgement", *quantiles("delivery_to_ack_seconds"), unit="s"),
        )),
        BoardRow("Trouble", (
            panel("Refused, expired, dead", (rate("refused_messages_total", "type"), "refused {{type}}"),
                  (rate("expired_messages_total", "type"), "expired {{type}}"),
                  (rate("dead_messages_total", "type"), "dead {{type}}"), unit="cps"),
            panel("Redelivered", (rate("redelivered_messages_total", "broker, type"), "{{broker}} {{type}}"),
                  unit="cps"),
            panel("Failed, by cause", (rate("failed_deliveries_total", "cause"), "{{cause}}"), unit="cps"),
            panel("Fullest destinations", (top(most("destination_quota_used_ratio", "destination, type", B)),
                                           "{{type}} {{destination}}"), unit="percentunit", width=12,
                  note="Part of maxNumMsgs or maxTotalMsgBytes. Needs the destination tier to be scraped."),
            panel("Moved in", (rate("moved_in_messages_total", "broker, type"), "{{broker}} {{type}}"), unit="cps",
                  note="Put here by brokers: moved, forwarded, dead elsewhere, or imported."),
            panel("Log lines", (rate("log_records_total", "level"), "{{level}}"), unit="cps"),
        )),
        BoardRow("Processes", (
            panel("Resident memory", (total("process_resident_bytes", "broker, process"), "{{broker}} {{process}}"),
                  unit="bytes", stacked=True,
                  note="Pages that processes share count in each: Memory that counts has what levels go by."),
            panel("Processors", (rate("process_cpu_seconds_total", "broker, process"), "{{broker}} {{process}}"),
                  unit="short", note="Processors in use: 1 is one of them, all the time."),
            panel("Versions", f"raybroker_info{{{B}}}", kind="table", width=4),
            panel("Up for", f"time() - raybroker_start_time_seconds{{{B}}}", unit="s", kind="table", width=4),
        )),
    ),
)  # fmt: skip

DESTINATION = Board(
    "raybroker-destination", "raybroker / Destinations",
    "One destination, or the busiest of them. Needs the destination tier to be scraped.",
    (
        BoardRow("Flow", (
            panel("Messages in", (top(rate("destination_messages_in_total", "destination, type", D)),
                                  "{{type}} {{destination}}"), unit="cps"),
            panel("Messages out", (top(rate("destination_messages_out_total", "destination, type", D)),
                                   "{{type}} {{destination}}"), unit="cps"),
            panel("Held", (top(total("destination_messages", "destination, type", D)),
                           "{{type}} {{destination}}")),
            panel("Growth", (f"topk(10, sum by (destination, type) (deriv(raybroker_destination_messages{{{D}}}[5m])))",
                             "{{type}} {{destination}}"), unit="cps", least=None,
                  note="Messages a second by which the backlog grows; below zero it shrinks."),
            panel("Time to drain", (DRAIN_S, "{{destination}}"), unit="s",
                  note="Held, by what consumers acknowledge a second; without arrivals."),
            panel("Oldest message", (most("destination_oldest_message_age_seconds", "destination, type"),
                                     "{{type}} {{destination}}"), unit="s"),
        )),
        BoardRow("Where messages are", (
            panel("Waiting", (total("destination_waiting_messages", "destination", D), "{{destination}}"),
                  stacked=True),
            panel("With consumers", (total("destination_unacknowledged_messages", "destination", D),
                                     "{{destination}}"), stacked=True),
            panel("Delayed and in transactions", (total("destination_delayed_messages", "destination", D),
                                                  "delayed {{destination}}"),
                  (total("destination_pending_messages", "destination", D), "in transactions {{destination}}")),
        )),
        BoardRow("Copies of the log", (
            panel("Entries that copies lack", (total("destination_copy_lag_entries", "destination, copy", D),
                                               "{{destination}} at {{copy}}"),
                  note="Of queues with copies. A copy that stays behind has no part in a confirmation."),
            panel("Who leads",
                  (most("destination_leader_term", "destination, broker"), "{{destination}} at {{broker}}"),
                  note="The number of the leader's term: a line of another broker begins where the leader changes."),
        )),
        BoardRow("Time", (
            panel("Send to confirmation, p99", (quantile(0.99, "destination_send_to_store_seconds", "destination", D),
                                                "{{destination}}"), unit="s"),
            panel("Arrival to delivery, p99",
                  (quantile(0.99, "destination_store_to_delivery_seconds", "destination", D), "{{destination}}"),
                  unit="s"),
            panel("Delivery to acknowledgement, p99",
                  (quantile(0.99, "destination_delivery_to_ack_seconds", "destination", D), "{{destination}}"),
                  unit="s"),
        )),
        BoardRow("Clients and limits", (
            panel("Consumers", (total("destination_consumers", "destination, state", D), "{{destination}} {{state}}")),
            panel("Producers", (total("destination_producers", "destination", D), "{{destination}}")),
            panel("Part of the quota", (most("destination_quota_used_ratio"), "{{destination}}"), unit="percentunit"),
            panel("Limits", most("destination_limit_messages", "destination, type"), kind="table"),
            panel("Limits in bytes", most("destination_limit_bytes", "destination, type"), unit="bytes", kind="table"),
            panel("Peak", (most("destination_peak_messages"), "{{destination}}")),
            panel("Peak in bytes", (most("destination_peak_message_bytes"), "{{destination}}"), unit="bytes"),
            panel("Largest message", (most("destination_largest_message_bytes"), "{{destination}}"), unit="bytes"),
        )),
    ),
    destinations=True,
)  # fmt: skip

CONSUMERS = Board(
    "raybroker-consumers", "raybroker / Consumers and prefetch",
    "Are consumers starved, or is their prefetch limit too large? Dry when they ask: raise the limit. Always nearly "
    "full and slow: lower it, so that others get the work.",
    (
        BoardRow("Work", (
            panel("Delivered", (rate("delivered_messages_total", "place"), "{{place}}"), unit="cps", stacked=True),
            panel("Acknowledged", (rate("messages_out_total", "type"), "{{type}}"), unit="cps", stacked=True),
            panel("Redelivered", (AGAIN, "{{type}}"), unit="percentunit",
                  note="Part of deliveries that are not the first of their message."),
            panel("Active and backup", (total("consumers", "type, state"), "{{type}} {{state}}")),
            panel("Idle and full", (total("idle_consumers", "type"), "idle {{type}}"),
                  (total("full_consumers", "type"), "full {{type}}"),
                  note="Idle: credit and no message. Full: messages wait and there is no credit."),
            panel("Unacknowledged", (total("unacknowledged_messages", "type"), "{{type}}"), stacked=True),
        )),
        BoardRow("Prefetch", (
            heat("What is left when they ask for more", "prefetch_occupancy_ratio", unit="percentunit",
                 note="Part of the prefetch limit that a consumer still had. Near 0: it runs dry."),
            panel("Runs dry", (DRY, "dry"), unit="percentunit", width=12,
                  note="Part of requests for more that came with nothing left."),
            panel("Limit and credit", (total("consumer_limit_messages", "type"), "limit {{type}}"),
                  (total("consumer_credit_messages", "type"), "credit {{type}}"), width=12),
            panel("Messages to have in flight", (IN_FLIGHT, "round trip / service time"), width=12,
                  note="Round trip by time for one message: with a smaller limit a consumer waits for the network."),
            panel("Batches", (rate("batches_total", "type"), "{{type}}"),
                  (rate("batched_messages_total", "type"), "messages {{type}}"),
                  (rate("due_batches_total", "type"), "not full {{type}}"), unit="cps", width=12,
                  note="Formed by brokers. Many that are not full: their deadline is short for what comes."),
            panel("Waited for batches", (rate("batch_wait_seconds_total", "type"), "{{type}}"), width=12,
                  note="Seconds that the oldest messages of batches had waited, in each second."),
            panel("Recalled", (rate("recalled_messages_total", "broker, type"), "{{broker}} {{type}}"), unit="cps",
                  width=12, note="Given back before they were begun: for an idle consumer, or to make room. Always "
                                 "many: lower the prefetch limit."),
        )),
        BoardRow("Starvation", (
            panel("Queues that starve", (total("starving", "broker, type"), "{{broker}} {{type}}"), width=12,
                  note="With versionKey: a consumer that has nothing waits for longer than starvationTime."),
            panel("Part of time that they starve",
                  (top(rate("destination_starvation_seconds_total", "destination")), "{{destination}}"),
                  unit="percentunit", width=12),
        )),
        BoardRow("Time", (
            heat("Time for one message", "service_seconds", unit="s"),
            heat("Delivery to acknowledgement", "delivery_to_ack_seconds", unit="s"),
            panel("Time for one message", *quantiles("service_seconds"), unit="s"),
            panel("Round trip", *quantiles("round_trip_seconds"), unit="s"),
            panel("Messages in a delivery", (mean("delivery_batch_messages", "type"), "{{type}}")),
        )),
        BoardRow("By destination", (
            panel("Slowest, p90", (top(quantile(0.9, "destination_service_seconds", "destination", B)),
                                   "{{destination}}"), unit="s", width=12),
            panel("Full consumers", (top(total("destination_full_consumers", "destination")),
                                     "{{destination}}"), width=12),
        )),
    ),
)  # fmt: skip

FLOW = Board(
    "raybroker-flow", "raybroker / Flow control and quotas", "Which destinations hold their producers up, and why?",
    (
        BoardRow("Now", (
            stat("Flow controlled", f"sum(raybroker_flow_controlled{{{B}}})", bad=1),
            stat("Fullest", f"max(raybroker_quota_used_ratio{{{B}}})", unit="percentunit", bad=0.9),
            stat("Paused for producers", f'sum(raybroker_paused{{{B},what="producers"}})'),
            stat("Paused for consumers", f'sum(raybroker_paused{{{B},what="consumers"}})'),
            stat("Insertion paused", f'sum(raybroker_paused{{{B},what="insertion"}})'),
            stat("Halted", f"sum(raybroker_halted{{{B}}})", bad=1),
        )),
        BoardRow("Flow control", (
            panel("Part of time under flow control",
                  (top(rate("destination_flow_control_seconds_total", "destination")), "{{destination}}"),
                  unit="percentunit"),
            panel("Episodes", (top(EPISODES), "{{destination}}")),
            panel("Flow controlled destinations", (total("flow_controlled", "broker, type"), "{{broker}} {{type}}")),
        )),
        BoardRow("Quotas", (
            panel("Fullest destinations", (top(most("destination_quota_used_ratio", "destination, type", B)),
                                           "{{type}} {{destination}}"), unit="percentunit",
                  note="Part of maxNumMsgs or maxTotalMsgBytes."),
            panel("Fullest now", top(most("destination_quota_used_ratio", "destination, type", B)),
                  unit="percentunit", kind="table"),
            panel("Time until full", (FULL_S, "{{destination}}"), unit="s",
                  note="At the growth of the last five minutes."),
            panel("Refused", (top(rate("destination_refused_messages_total", "destination")),
                              "{{destination}}"), unit="cps"),
        )),
        BoardRow("Thresholds", (
            panel("Over a threshold", (total("over_threshold", "broker, type, of"), "{{broker}} {{type}} {{of}}"),
                  note="messagesHigh and bytesHigh of destinations."),
            panel("Producers slowed by it", (total("slowed_producers", "broker, type"), "{{broker}} {{type}}")),
            panel("Part of time over a threshold",
                  (top(rate("destination_threshold_seconds_total", "destination, of")), "{{destination}} {{of}}"),
                  unit="percentunit"),
        )),
        BoardRow("What leaves without being consumed", (
            panel("Expired", (top(rate("destination_expired_messages_total", "destination")),
                              "{{destination}}"), unit="cps"),
            panel("Dead", (top(rate("destination_dead_messages_total", "destination")), "{{destination}}"),
                  unit="cps"),
            panel("Dead message queue", (total("destination_messages", "broker", B + ',destination="mq.sys.dmq"'),
                                         "{{broker}}"), stacked=True),
            panel("Stale", (top(rate("destination_stale_messages_total", "destination")), "{{destination}}"),
                  unit="cps", note="Too far behind the published version: removed, or put behind all others."),
            panel("Duplicates not taken", (top(rate("destination_duplicate_messages_total", "destination")),
                                           "{{destination}}"), unit="cps"),
            panel("Paused", (total("paused", "what"), "{{what}}")),
            panel("Recurring schedules", (total("schedules", "broker"), "{{broker}}")),
        )),
    ),
)  # fmt: skip

CLUSTER = Board(
    "raybroker-cluster", "raybroker / Cluster routing and unit-of-order",
    "Who is there, which way do messages go from broker to broker, and how are units of order spread?",
    (
        BoardRow("Brokers", (
            panel("Brokers by state, as each sees it", (total("brokers", "broker, state"), "{{broker}}: {{state}}")),
            panel("Master, seat, takes clients", (total("master"), "master {{broker}}"),
                  (total("seat"), "seat {{broker}}"), (total("operating"), "operating {{broker}}"),
                  note="The seat decides which consumers are active; it and the master are one broker each."),
            panel("Configuration change record", (total("record_entries_total"), "{{broker}}"),
                  note="Brokers whose lines stay apart do not have the same configuration."),
            panel("Brokers by state in the store that they share",
                  (total("shared_store_brokers", "broker, state"), "{{broker}}: {{state}}")),
            panel("Takeovers in an hour", (f"sum(increase(raybroker_takeovers_total{{{B}}}[1h]))", "completed"),
                  (f"sum(increase(raybroker_failed_takeovers_total{{{B}}}[1h]))", "failed, and tried again")),
            panel("Logs with copies, by state", (total("copied_logs", "broker, state"), "{{broker}}: {{state}}"),
                  (total("copied_logs_short"), "{{broker}}: too few copies there"),
                  note="Without a leader, or with too few copies, nothing of the log is confirmed."),
            panel("Drained brokers, and what they lead still", (total("drained"), "{{broker}} is drained"),
                  (total("drained_logs", "broker, state"), "{{broker}}: {{state}}"),
                  note="What is stuck has no other copy that can lead: it stops with the broker."),
            panel("Entries that copies lack",
                  (total("copy_behind_entries", "broker, copy"), "{{copy}} behind {{broker}}"),
                  (f"sum(increase(raybroker_leader_changes_total{{{B}}}[1h]))", "leader changes in an hour"),
                  note="A copy that stays behind has no part in a confirmation, and takes longer to lead."),
            panel("Processes that stand by", (total("standby_processes", "broker, process"), "{{broker}}: {{process}}"),
                  note="A lost broker without any comes back after the start of its processes."),
        )),
        BoardRow("Traffic", (
            panel("From member to home broker",
                  (f"{ROUTED} (rate(raybroker_routed_messages_total{{{B}}}{R}))", "{{broker}} to {{consumer_broker}}"),
                  unit="cps", width=12, stacked=True,
                  note="Messages go from the broker that has them to a consumer whose home broker is named."),
            panel("Local and remote", (rate("delivered_messages_total", "place"), "{{place}}"), unit="cps", width=6,
                  stacked=True),
            panel("Matrix", f"{ROUTED} (increase(raybroker_routed_messages_total{{{B}}}[1h]))", kind="table", width=6),
            panel("Share of arrivals", (ARRIVALS, "{{broker}}"), unit="percentunit", width=12, stacked=True),
            panel("Share of the backlog", (BACKLOG, "{{broker}}"), unit="percentunit", width=12, stacked=True),
        )),
        BoardRow("Unit-of-order", (
            panel("Units with messages", (total("ordered_units"), "{{broker}}"), stacked=True),
            panel("Units in the path service", ('sum by (member) (raybroker_path_units{cluster="$cluster"})',
                                                "{{member}}"), stacked=True),
            panel("Questions to the path service", (rate("path_requests_total"), "{{broker}}"), unit="cps"),
            panel("Busiest units", (top(UNITS), "{{destination}}: {{unit}}"), unit="cps", width=24,
                  note="One unit is with one consumer at a time: more consumers do not make it faster."),
        )),
    ),
)  # fmt: skip

STORE = Board(
    "raybroker-store", "raybroker / Store and durability",
    "How long does it take until a message is safe, and what does it cost?",
    (
        BoardRow("Commits", (
            heat("Commit", "commit_seconds", unit="s", note="Write and sync of one group."),
            heat("Send to confirmation", "send_to_store_seconds", unit="s"),
            panel("Commit", *quantiles("commit_seconds"), unit="s"),
            by_broker("Syncs", rate("fsyncs_total"), unit="cps"),
            panel("One sync", (f"{rate('fsync_seconds_total')} / ({rate('fsyncs_total')} > 0)", "mean {{broker}}"),
                  (f"max by (broker) (raybroker_fsync_max_seconds{{{B}}})", "longest {{broker}}"), unit="s"),
            panel("Batches in a commit", (mean("commit_batches"), "{{broker}}"),
                  note="What group commit gathers: many producers share one sync."),
            panel("Bytes in a commit", (mean("commit_bytes"), "{{broker}}"), unit="bytes"),
            by_broker("Waits for the disk", total("commit_pending_bytes"), unit="bytes"),
            panel("Messages in a block", (mean("send_batch_messages"), "{{broker}}")),
        )),
        BoardRow("Space", (
            panel("Journals", (total("store_reserved_bytes", "cluster"), "reserved"),
                  (total("store_used_bytes", "cluster"), "used"), (total("store_live_bytes", "cluster"), "live"),
                  unit="bytes"),
            panel("Live part of what is written", (f"{total('store_live_bytes')} / ({total('store_used_bytes')} > 0)",
                                                   "{{broker}}"), unit="percentunit",
                  note="Low for long: space is not given back, because little of many segments lives."),
            by_broker("Segments", total("store_segments")),
            panel("Free on the disk", (most("disk_free_bytes", "broker", B), "{{broker}}"), unit="bytes"),
            panel("Disk alarms", (total("disk_low"), "nearly full {{broker}}"),
                  (total("store_slow"), "slow {{broker}}"),
                  note="Hosts whose disk is nearly full, or slow: one of a hundred commits takes longer than 100 ms."),
        )),
        BoardRow("Memory", (
            panel("Bodies in memory", (total("block_cache_bytes"), "{{broker}}"),
                  (total("block_cache_limit_bytes"), "limit for stored ones {{broker}}"), unit="bytes"),
            by_broker("Read back from the store", rate("blocks_read_back_total"), unit="cps"),
            by_broker("Hosts that hold producers back", total("store_overloaded")),
            panel("Message buffer", (total("message_buffer_bytes"), "{{broker}}"),
                  (total("message_buffer_limit_bytes"), "paging begins {{broker}}"),
                  (total("paged_bytes"), "in paging files {{broker}}"),
                  (total("reference_bytes"), "by reference {{broker}}"), unit="bytes"),
            panel("Paging", (rate("paged_out_bytes_total"), "out {{broker}}"),
                  (rate("paged_in_bytes_total"), "in {{broker}}"), unit="Bps"),
            panel("Saved by compression", (rate("store_compression_saved_bytes_total"), "stores {{broker}}"),
                  (rate("paging_compression_saved_bytes_total"), "paging files {{broker}}"), unit="Bps"),
            panel("Paged messages", (rate("paged_out_messages_total"), "out {{broker}}"),
                  (rate("paged_in_messages_total"), "in {{broker}}"), unit="cps"),
            by_broker("Hosts that cannot write paging files", total("paging_failing")),
            panel("Memory level", (most("memory_level", "broker, process", B), "{{broker}} {{process}}"),
                  note="0 green, 1 yellow: no copies of stored messages, 2 orange: producers are slowed, 3 red: nothing"
                       " comes in."),
            panel("Memory that counts", (most("memory_used_bytes", "broker, process", B), "{{broker}} {{process}}"),
                  (most("memory_limit_bytes", "broker", B), "limit {{broker}}"), unit="bytes"),
            panel("Messages and the broker's limit", (total("system_messages"), "{{broker}}"),
                  (most("system_limit_messages", "broker", B), "limit {{broker}}")),
            panel("Bytes and the broker's limit", (total("system_message_bytes"), "{{broker}}"),
                  (most("system_limit_bytes", "broker", B), "limit {{broker}}"), unit="bytes"),
            panel("At the broker's limits", (total("blocked_sends"), "blocks that wait {{broker}}"),
                  (rate("system_refused_messages_total"), "refused {{broker}}"),
                  (most("system_over_threshold", "broker, of", B), "over {{of}} {{broker}}")),
            panel("Messages and quotas", (total("quota_messages", "broker, quota"), "{{quota}} {{broker}}"),
                  (most("quota_limit_messages", "broker, quota", B), "limit {{quota}} {{broker}}")),
            panel("Bytes and quotas", (total("quota_message_bytes", "broker, quota"), "{{quota}} {{broker}}"),
                  (most("quota_limit_bytes", "broker, quota", B), "limit {{quota}} {{broker}}"), unit="bytes"),
            panel("At quotas", (total("quota_blocked_sends", "broker, quota"), "blocks that wait {{quota}} {{broker}}"),
                  (rate("quota_refused_messages_total", "broker, quota"), "refused {{quota}} {{broker}}")),
        )),
    ),
)  # fmt: skip

CLIENTS = Board(
    "raybroker-clients", "raybroker / Clients", "Who is connected, what goes over the wire, and what transactions do.",
    (
        BoardRow("Connections", (
            by_broker("Open", total("connections")),
            panel("Opened and refused", (rate("connections_opened_total"), "opened {{broker}}"),
                  (rate("connections_refused_total"), "refused {{broker}}"), unit="cps"),
            panel("Held up", (total("congested_connections"), "client does not read {{broker}}"),
                  (total("held_connections"), "disk is behind {{broker}}")),
            panel("Producers", (total("producers", "type"), "{{type}}"), stacked=True),
            panel("Consumers", (total("consumers", "type, state"), "{{type}} {{state}}"), stacked=True),
            panel("Subscriptions", (total("subscriptions"), "{{broker}}"), stacked=True),
        )),
        BoardRow("Wire", (
            panel("Packets", (rate("packets_in_total", "cluster"), "in"), (rate("packets_out_total", "cluster"), "out"),
                  unit="cps"),
            panel("Bytes", (rate("packet_in_bytes_total", "cluster"), "in"),
                  (rate("packet_out_bytes_total", "cluster"), "out"), unit="Bps"),
            panel("Overhead", (WIRE, "in"), unit="short",
                  note="Bytes on the wire by bytes of bodies."),
            panel("Round trip", *quantiles("round_trip_seconds"), unit="s"),
            panel("Spins of hosts", (rate("spins_total", "cluster"), "all"),
                  (rate("paid_spins_total", "cluster"), "in which a frame came"), unit="cps",
                  note="Looks at the sockets before a host sleeps: raybroker.spin."),
            panel("Processors that spin", (rate("spin_seconds_total"), "{{broker}}"), unit="short"),
            panel("Messages in a block", (mean("send_batch_messages", "type"), "sent {{type}}"),
                  (mean("delivery_batch_messages", "type"), "delivered {{type}}")),
        )),
        BoardRow("AMQP", (
            by_broker("Connections", total("amqp_connections")),
            panel("Links", (total("amqp_links", "direction"), "{{direction}}"), stacked=True,
                  note="in: clients send on them; out: they receive."),
            panel("Links without credit", (total("amqp_links_without_credit", "broker, direction"),
                                           "{{direction}} {{broker}}"),
                  note="in: the destination is full; out: the client grants nothing. raybroker why says of which."),
            panel("Not settled", (total("amqp_unsettled_messages", "broker, direction"), "{{direction}} {{broker}}")),
            panel("Transfers", (rate("amqp_transfers_total", "direction"), "{{direction}}"), unit="cps"),
            panel("Refused", (rate("amqp_rejected_total", "condition"), "{{condition}}"), unit="cps"),
        )),
        BoardRow("Transactions", (
            panel("Open and prepared", (total("transactions", "state"), "{{state}}"), stacked=True),
            panel("Ended", (rate("transactions_committed_total", "cluster"), "committed"),
                  (rate("transactions_rolled_back_total", "cluster"), "rolled back"), unit="cps"),
            panel("Messages in transactions", (total("pending_messages", "type"), "{{type}}"), stacked=True),
        )),
        BoardRow("Processes", (
            panel("Threads", (total("process_threads", "broker, process"), "{{broker}} {{process}}")),
            panel("Open files", (total("process_open_files", "broker, process"), "{{broker}} {{process}}")),
            panel("Memory", (OF_LIMIT, "{{broker}}"), unit="percentunit",
                  note="What a broker and its hosts use of the memory that they may use."),
            by_broker("Hosts", total("hosts", "broker")),
            panel("Clocks", (CLOCKS, "{{broker}}"), unit="s", least=None, note="Against the clock of Prometheus."),
            panel("Collecting metrics", (f"max by (broker) (raybroker_collection_seconds{{{B}}})", "{{broker}}"),
                  unit="s"),
        )),
    ),
)  # fmt: skip

BOARDS: Final = (OVERVIEW, DESTINATION, CONSUMERS, FLOW, CLUSTER, STORE, CLIENTS)


def boards() -> dict[str, dict[str, Any]]:
    """Short name → board, as Grafana reads it."""
    return {name_of(board): board_json(board) for board in sorted(BOARDS, key=name_of)}


def name_of(board: Board) -> str:
    """The short name, which its file has too."""
    return board.uid.removeprefix("raybroker-")
