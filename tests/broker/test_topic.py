"""Topic matching against a plain oracle."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qpidha.broker.topic import TopicTree, split


def fits(pattern: list[str], key: list[str]) -> bool:
    if not pattern:
        return not key
    if pattern[0] == "#":
        return fits(pattern[1:], key) or (bool(key) and fits(pattern, key[1:]))
    return bool(key) and pattern[0] in ("*", key[0]) and fits(pattern[1:], key[1:])


PATTERNS = st.lists(st.sampled_from(["a", "b", "*", "#", ""]), max_size=5).map(".".join)
KEYS = st.lists(st.sampled_from(["a", "b", "c", "", "*", "#"]), max_size=5).map(".".join)


@given(
    st.lists(PATTERNS, max_size=8, unique=True), st.lists(PATTERNS, max_size=4, unique=True), KEYS
)
def test_tree_finds_what_the_rules_say(patterns: list[str], removed: list[str], key: str) -> None:
    tree: TopicTree[str] = TopicTree()
    for pattern in patterns:
        tree.add(pattern, pattern)
    for pattern in removed:
        if pattern in patterns:
            tree.remove(pattern, pattern)
    left = [pattern for pattern in patterns if pattern not in removed]
    assert sorted(tree.match(key)) == sorted(
        pattern for pattern in left if fits(split(pattern), split(key))
    )


def test_removing_everything_leaves_an_empty_tree() -> None:
    tree: TopicTree[int] = TopicTree()
    tree.add("a.b.#", 1)
    tree.add("a.b", 2)
    tree.remove("a.b.#", 1)
    tree.remove("a.b", 2)
    assert tree._root.following == {}


def test_many_wildcards_do_not_take_many_ways() -> None:
    tree: TopicTree[int] = TopicTree()
    tree.add(".".join(["#"] * 30) + ".end", 1)
    assert tree.match(".".join(["word"] * 200)) == {}
    assert tree.match(".".join(["word"] * 200) + ".end") == {1: None}
