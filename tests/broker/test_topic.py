"""Topic matching against a plain oracle."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qpidha.broker import topic
from qpidha.broker.queues.arguments import LONGEST_KEY
from qpidha.broker.topic import TooManyWays, TopicTree, split


def fits(pattern: list[str], key: list[str]) -> bool:
    """Say whether a key fits a pattern, by the rule read from left to right."""

    @cache
    def rest_fits(done: int, seen: int) -> bool:
        if done == len(pattern):
            return seen == len(key)
        more = seen < len(key)
        if pattern[done] == "#":
            return rest_fits(done + 1, seen) or (more and rest_fits(done, seen + 1))
        return more and pattern[done] in ("*", key[seen]) and rest_fits(done + 1, seen + 1)

    return rest_fits(0, 0)


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


LONGEST = LONGEST_KEY // 2 + 1
"""Words of a key of one letter each."""


@settings(max_examples=50)
@given(
    st.lists(st.sampled_from(["a", "b", "*", "#"]), max_size=LONGEST).map(".".join),
    st.lists(st.sampled_from(["a", "b"]), max_size=LONGEST).map(".".join),
)
def test_long_keys_fit_what_the_rules_say(pattern: str, key: str) -> None:
    tree: TopicTree[int] = TopicTree()
    tree.add(pattern, 1)
    assert bool(tree.match(key)) is fits(split(pattern), split(key))


@pytest.mark.parametrize("words", [("#", "a"), ("#", "*"), ("#", "#"), ("a", "#", "b"), ("#",)])
@pytest.mark.parametrize("end", ["", ".c"])
def test_each_word_of_a_key_is_a_step_for_each_word_of_a_pattern_at_most(
    words: tuple[str, ...], end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = 0
    arrive = topic._arrive

    def counted(place: object, places: object) -> None:
        nonlocal steps
        steps += 1
        arrive(place, places)  # type: ignore[arg-type]

    monkeypatch.setattr(topic, "_arrive", counted)
    tree: TopicTree[int] = TopicTree()
    tree.add(".".join([*words] * (LONGEST // len(words))) + end, 1)
    tree.match(".".join(["a"] * LONGEST))
    assert 0 < steps <= 3 * LONGEST * (LONGEST + 2)


def test_the_steps_for_many_patterns_have_a_bound() -> None:
    tree: TopicTree[str] = TopicTree()
    for number in range(1 << 7):
        wanted = f"{number:07b}".translate({ord("0"): "a.", ord("1"): "*."})
        tree.add(f"#.{wanted}a.a", wanted)
    key = ".".join(["a"] * 20)
    assert len(tree.match(key)) == len(tree.match(key, 20_000)) == 1 << 7
    with pytest.raises(TooManyWays) as refusal:
        tree.match(key, 1000)
    assert refusal.value.reason and refusal.value.hint
    assert tree.match("a.b", 1000) == {}
