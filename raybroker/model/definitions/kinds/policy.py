"""Policies as definitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from raybroker.model.definitions.kinds.kind import (
    Kind,
    Planning,
    Reading,
    Recorded,
    checked_table,
    in_attributes,
    verbs_of,
)
from raybroker.model.definitions.policy import POLICIES_MAX, policy_of
from raybroker.model.definitions.values import Attributes, Changes, changed
from raybroker.model.errors import ConfigError

_FIELDS: Final = {"pattern": "pattern", "applyTo": "apply_to", "priority": "priority", "operator": "operator"}
"""Field of a policy → argument of its verbs."""


class PolicyKind(Kind):
    name = "policy"
    section = "policies"
    verbs = verbs_of("policy")
    said: ClassVar = {"applyTo": "all", "priority": 0, "operator": False}
    recorded = Recorded(
        "policies",
        "policy",
        "create_policy",
        "destroy_policy",
        "update_policy",
        naming=in_attributes,
        later=True,
    )
    path = "/policies"
    lists = "list_policies"

    def entry(self, name: str, given: Any, reading: Reading) -> Attributes:
        return policy_of(name, checked_table(given)).fields()

    def read(self, given: Any, reading: Reading) -> dict[Any, Any]:
        found = super().read(given, reading)
        if len(found) > POLICIES_MAX:
            raise ConfigError(f"there are {len(found)} policies; there can be {POLICIES_MAX}")
        return found

    def listed(self, row: Attributes, reading: Reading) -> Iterator[tuple[Any, Any]]:
        fields = {key: value for key, value in row.items() if key not in ("name", "conflicts")}
        yield row["name"], self.entry(row["name"], fields, reading)

    def compared(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> Changes:
        return changed(_flat(before), _flat(after))

    def plan(self, planning: Planning) -> None:
        table = planning.now.policies
        for name, wanted in planning.wanted.policies.items():
            there, attributes = table.get(name), wanted["attributes"]
            planning.require_quota(attributes, f"policy {name!r}")
            found = self.compared(there or {}, wanted)
            if there is None:
                fields = {argument: wanted[key] for key, argument in _FIELDS.items()}
                planning.step("create", self, name, found, **fields, attributes=attributes)
            elif there != wanted:
                before = there["attributes"]
                planning.step(
                    "update",
                    self,
                    name,
                    found,
                    **{argument: wanted[key] for key, argument in _FIELDS.items() if there[key] != wanted[key]},
                    unset=[key for key in before if key not in attributes],
                    changes={key: new for key, new in attributes.items() if before.get(key) != new},
                )
            table[name] = wanted


def _flat(policy: Mapping[str, Any]) -> dict[str, Any]:
    return {**{key: value for key, value in policy.items() if key != "attributes"}, **policy.get("attributes", {})}


POLICY: Final = PolicyKind()
