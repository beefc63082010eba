"""Specs of queues."""

from __future__ import annotations

from typing import Any

from qpidha.broker.queues.defaults import QueueDefaults
from qpidha.broker.queues.spec import QueueSpec, compile_spec
from qpidha.model.records import QueueDeclared
from qpidha.model.replication_level import HA_UUID, REPLICATE


def test_queues_that_are_declared_alike_share_one_spec() -> None:
    def compiled(uuid: str = "u", durable: bool = True, **arguments: Any) -> QueueSpec:
        given = {**arguments, HA_UUID: uuid, REPLICATE: "all"}
        return compile_spec(QueueDeclared("q", "", durable, arguments=given), QueueDefaults(5000))

    spec = compiled(**{"qpid.max_count": 1})
    assert compiled("other", **{"qpid.max_count": 1}) is spec
    assert (
        compiled(**{"qpid.max_count": 2})
        != spec
        != compiled(durable=False, **{"qpid.max_count": 1})
    )
    listed: dict[str, Any] = {"qpid.max_count": 1, "mine": ["a", "list"]}
    assert compiled(**listed) == spec
