"""The policy-file: policies with which a cluster begins, as a text.

It has what `qpid-ha policy list -o json` prints, and under `operator_policies` the same of
`qpid-ha operator-policy list -o json`. The first primary sets them, if there never was a policy.
Reads no file. Source: RabbitMQ's default operator policies.
"""

from __future__ import annotations

import json
from typing import Any

from qpidha.broker.policy import policy_asked_for
from qpidha.model.records import PolicySet

KINDS = {"policies": False, "operator_policies": True}
"""Key of the file -> whether what is there is for operators."""
FIELDS: dict[str, tuple[type, str]] = {
    "name": (str, "name"),
    "pattern": (str, "pattern"),
    "definition": (dict, "definition"),
    "priority": (int, "priority"),
    "apply_to": (str, "apply_to"),
    "merge": (bool, "is_layer"),
}
"""What a policy of the file has: of which type, and what that is called here."""
NEEDED = ("name", "pattern", "definition")
SHOWN = ("expires_ns", "matches", "in_effect_on", "shadowed_by", "warning")
"""What a list shows beside that; it is passed over."""


def read(text: str) -> list[PolicySet]:
    """Read policies. Raises ValueError for what has another form, RefusedRequest for policies that
    cannot be.
    """
    content = json.loads(text)
    if not isinstance(content, dict):
        raise ValueError("it is no JSON object")
    unknown = [key for key in content if key not in (*KINDS, "schema_version")]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is not one of {', '.join(KINDS)}")
    found: dict[tuple[bool, str], PolicySet] = {}
    for kind, is_operator in KINDS.items():
        rows = content.get(kind, [])
        if not isinstance(rows, list):
            raise ValueError(f"{kind} is no list")
        for row in rows:
            policy = policy_asked_for(**_values(row), is_operator=is_operator)
            if (is_operator, policy.name) in found:
                raise ValueError(f"{kind} has {policy.name} twice")
            found[is_operator, policy.name] = policy
    return list(found.values())


def _values(row: Any) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise ValueError(f"{str(row)[:40]!r} is no policy")
    title = f"the policy {str(row.get('name'))[:40]!r}"
    missing = [field for field in NEEDED if field not in row]
    if missing:
        raise ValueError(f"{title} has no {missing[0]}")
    values = {}
    for field, value in row.items():
        if field in SHOWN:
            continue
        if field not in FIELDS:
            raise ValueError(f"{title} has {field!r}, which is not known")
        kind, name = FIELDS[field]
        if type(value) is not kind:
            raise ValueError(f"{title} has {field}={json.dumps(value)[:40]}")
        values[name] = value
    return values
