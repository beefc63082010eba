"""`a_node()` and `nodes(3)`: nodes for one test; their brokers are killed after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.agents.node import Node


@pytest.fixture
def nodes() -> Iterator[Callable[..., list[Node]]]:
    """Return a function that makes the nodes of one cluster: `nodes(count, **broker_options)`."""
    made: list[Node] = []

    def make(count: int, **options: object) -> list[Node]:
        cluster = [Node(f"n{len(made) + i}") for i in range(1, count + 1)]
        made.extend(cluster)
        for node in cluster:
            node.configure(cluster, **options)
        return cluster

    yield make
    for node in made:
        node.close()


@pytest.fixture
def a_node(nodes: Callable[..., list[Node]]) -> Callable[..., Node]:
    """Return a function that makes a node with a cluster of its own, whose broker is promoted on
    the manager's word.
    """
    return lambda **options: nodes(1, **{"ha_safety": "trust-manager", **options})[0]
