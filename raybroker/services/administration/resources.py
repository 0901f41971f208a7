"""The resources: method and path → verb.

A segment of a path in braces is the verb's argument of that name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from raybroker.admin.verbs import VERBS
from raybroker.model.definitions.kinds.table import KINDS

_DESTINATION: Final = "/destinations/{type}/{name}"
_MESSAGES: Final = f"{_DESTINATION}/messages"
_SUBSCRIPTION: Final = "/subscriptions/{name}"


class Resource(NamedTuple):
    """``graded``: the answer is of checks, with status 503 when one is critical or unknown."""

    method: str
    path: str
    verb: str
    graded: bool = False


def _named() -> Iterator[Resource]:
    """Yield for each kind of definition that goes by a name the verbs that there are for it."""
    for kind in KINDS:
        if kind.path:
            word = kind.verbs["create"].removeprefix("create_")
            yield Resource("GET", kind.path, f"list_{kind.path.removeprefix('/')}")
            yield Resource("POST", kind.path, kind.verbs["create"])
            for method, action in (("GET", "query"), ("PATCH", "update"), ("DELETE", "destroy")):
                if (verb := f"{action}_{word}") in VERBS:
                    yield Resource(method, f"{kind.path}/{{name}}", verb)


RESOURCES: Final = (
    Resource("GET", "/destinations", "list_destinations"),
    Resource("POST", "/destinations", "create_destination"),
    Resource("GET", _DESTINATION, "query_destination"),
    Resource("PATCH", _DESTINATION, "update_destination"),
    Resource("DELETE", _DESTINATION, "destroy_destination"),
    Resource("POST", f"{_DESTINATION}/adopt", "adopt_destination"),
    Resource("POST", f"{_DESTINATION}/purge", "purge_destination"),
    Resource("POST", f"{_DESTINATION}/pause", "pause_destination"),
    Resource("POST", f"{_DESTINATION}/resume", "resume_destination"),
    Resource("POST", f"{_DESTINATION}/version", "publish_version"),
    Resource("POST", f"{_DESTINATION}/reset", "reset_destination"),
    Resource("POST", f"{_DESTINATION}/compact", "compact_destination"),
    Resource("POST", f"{_DESTINATION}/replicas/{{old}}/replace", "replace_replica"),
    Resource("POST", "/destinations/pause", "pause_destination"),
    Resource("POST", "/destinations/resume", "resume_destination"),
    Resource("POST", "/destinations/reset", "reset_destination"),
    Resource("POST", "/destinations/compact", "compact_destination"),
    Resource("GET", "/stores", "query_store"),
    Resource("GET", _MESSAGES, "browse_messages"),
    Resource("POST", f"{_MESSAGES}/delete", "delete_messages"),
    Resource("POST", f"{_MESSAGES}/move", "move_messages"),
    Resource("POST", f"{_MESSAGES}/retry", "retry_messages"),
    Resource("POST", f"{_MESSAGES}/skip", "skip_messages"),
    Resource("GET", f"{_MESSAGES}/export", "export_messages"),
    Resource("POST", f"{_MESSAGES}/import", "import_messages"),
    Resource("GET", "/consumers", "list_consumers"),
    Resource("GET", "/consumers/{id}", "query_consumer"),
    Resource("GET", "/subscriptions", "list_subscriptions"),
    Resource("POST", "/subscriptions", "create_subscription"),
    Resource("DELETE", _SUBSCRIPTION, "destroy_subscription"),
    Resource("POST", f"{_SUBSCRIPTION}/purge", "purge_subscription"),
    Resource("GET", "/schedules", "list_schedules"),
    Resource("GET", "/schedules/{id}", "query_schedule"),
    Resource("DELETE", "/schedules/{id}", "destroy_schedule"),
    Resource("GET", "/transactions", "list_transactions"),
    Resource("GET", "/transactions/{id}", "query_transaction"),
    Resource("POST", "/transactions/{id}/commit", "commit_transaction"),
    Resource("POST", "/transactions/{id}/rollback", "rollback_transaction"),
    Resource("GET", "/broker", "query_broker"),
    Resource("GET", "/brokers", "list_brokers"),
    Resource("PATCH", "/brokers", "update_broker"),
    Resource("PATCH", "/brokers/{broker}", "update_broker"),
    Resource("POST", "/brokers/{broker}/shutdown", "shutdown_broker"),
    Resource("POST", "/brokers/{broker}/restart", "restart_broker"),
    Resource("GET", "/cluster", "query_cluster"),
    Resource("POST", "/cluster/reload", "reload_cluster"),
    Resource("POST", "/cluster/master", "change_master"),
    Resource("GET", "/cluster/record", "backup_record"),
    Resource("POST", "/brokers/{broker}/takeover", "takeover_broker"),
    Resource("POST", "/brokers/{broker}/drain", "drain_broker"),
    Resource("GET", "/nodes", "list_drained_nodes"),
    Resource("POST", "/nodes/{node}/drain", "drain_node"),
    Resource("GET", "/metrics", "metrics"),
    *_named(),
    Resource("GET", "/definitions", "export_definitions"),
    Resource("POST", "/definitions", "import_definitions"),
    Resource("GET", "/services", "list_services"),
    Resource("PATCH", "/services/{name}", "update_service"),
    Resource("POST", "/services/{name}/pause", "pause_service"),
    Resource("POST", "/services/{name}/quiesce", "quiesce_service"),
    Resource("POST", "/services/{name}/resume", "resume_service"),
    Resource("GET", "/connections", "list_connections"),
    Resource("DELETE", "/connections", "destroy_connections"),
    Resource("DELETE", "/connections/{id}", "destroy_connection"),
    Resource("GET", "/users", "list_users"),
    Resource("PUT", "/users/{name}", "set_user"),
    Resource("DELETE", "/users/{name}", "destroy_user"),
    Resource("GET", "/why-denied", "why_denied"),
    Resource("GET", "/why/{what}/{id}", "why"),
    Resource("GET", "/health/broker", "check_broker", graded=True),
    Resource("GET", "/health/cluster", "check_cluster", graded=True),
    Resource("GET", "/health/services", "check_services", graded=True),
    Resource("GET", "/health/destinations/{type}/{name}", "check_destination", graded=True),
)
"""A verb whose arguments are all optional has two where one path names what it is about, and the other all."""
EXCUSED: Final = {
    "decide_transaction": "transaction managers say xa.commit",
    "forget_transaction": "transaction managers say xa.forget",
}
"""Verb → why it has no resource."""
