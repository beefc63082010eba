"""What a broker that does not know a feature of the log is kept from."""

from __future__ import annotations

from qpidha.ha.cluster import InboundPeer
from qpidha.model.effects import Disconnect
from qpidha.model.features import FEATURES
from qpidha.model.records import FeatureEnabled
from qpidha.model.url import parse_url
from qpidha.store.codec import encode_record
from tests.amqp.builders import a_node


def test_a_broker_that_learns_of_a_feature_leaves_those_that_do_not_know_it() -> None:
    """They were let in before; they dial again, and are told what to upgrade."""
    node = a_node(address="a:1", ha_cluster=True, ha_brokers_url=parse_url("a:1,b:2,c:3"))
    assert node.cluster is not None
    node.cluster.inbound[5] = InboundPeer("old", "b:2", frozenset())
    node.cluster.inbound[6] = InboundPeer("new", "c:3", frozenset(FEATURES))
    node.effects.clear()
    node.apply(encode_record(1, FeatureEnabled(next(iter(FEATURES)))))
    assert [one for one in node.effects if isinstance(one, Disconnect)] == [Disconnect(5)]


def test_a_feature_is_enabled_when_its_record_is_committed() -> None:
    node = a_node(address="a:1", ha_cluster=True, ha_brokers_url=parse_url("a:1,b:2,c:3"))
    name = next(iter(FEATURES))
    node.broker.committed = 0
    node.apply(encode_record(1, FeatureEnabled(name)))
    assert node.status()["features"]["enabled"] == []
    node.broker.committed = 1
    assert node.status()["features"]["enabled"] == [name]
