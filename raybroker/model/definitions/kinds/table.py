"""The table of the kinds of definitions, each after those that it needs.

Reading and writing of definition files, the plan of an import, the configuration change record, and what a broker
carries out are made from it.  To add a kind: declare it in a module of its own, put it here, give it a field of
``Definitions`` (model.definitions.values) and, when it is recorded, one of ``RecordState`` (cluster.change_record) and
what applies it in broker.cluster.record_application.
"""

from __future__ import annotations

from typing import Final

from raybroker.model.definitions.kinds.agent import AGENT
from raybroker.model.definitions.kinds.destination import QUEUE, TOPIC
from raybroker.model.definitions.kinds.kind import Kind, Recorded
from raybroker.model.definitions.kinds.pause import PAUSE
from raybroker.model.definitions.kinds.policy import POLICY
from raybroker.model.definitions.kinds.properties import OWN_PROPERTY, PROPERTY
from raybroker.model.definitions.kinds.quota import QUOTA
from raybroker.model.definitions.kinds.subscription import SUBSCRIPTION
from raybroker.model.definitions.kinds.template import TEMPLATE
from raybroker.model.definitions.kinds.user import USER

KINDS: Final[tuple[Kind, ...]] = (
    PROPERTY,
    OWN_PROPERTY,
    QUOTA,
    TEMPLATE,
    POLICY,
    QUEUE,
    TOPIC,
    SUBSCRIPTION,
    AGENT,
    PAUSE,
    USER,
)
BROKER: Final = Recorded("added", "broker", "add_broker", "remove_broker")
SERVICE: Final = Recorded("services", "service", "place_service", "drop_service")
COPIES: Final = Recorded("copies", "copies of", "place_copies", "drop_copies", "move_copies", later=True, seldom=True)
DRAIN: Final = Recorded("drains", "drain of", "begin_drain", "end_drain", "begin_drain", later=True, seldom=True)
RECORDED: Final = (
    *dict.fromkeys(kind.recorded for kind in KINDS if kind.recorded is not None),
    BROKER,
    SERVICE,
    COPIES,
    DRAIN,
)
"""What is in the configuration change record: those of the kinds, and four tables of the cluster itself."""
