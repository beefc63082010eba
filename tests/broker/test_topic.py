"""Topic matching against a plain oracle."""

from __future__ import annotations

from functools import cache
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qpidha.broker import topic
from qpidha.broker.queues.arguments import LONGEST_KEY
from qpidha.broker.topic import MOST_STEPS, Steps, TooManyKeys, TooManyWays, TopicTree, split


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


def shape(place: topic._Place[str]) -> object:
    """What leads on from a place, and its values."""
    following = [shape(one) for _, one in sorted(place.following.items())]
    return tuple(place.words), {*place.values}, following


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
    fresh: TopicTree[str] = TopicTree()
    for pattern in left:
        fresh.add(pattern, pattern)
    assert shape(tree._root) == shape(fresh._root)
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

    def counted(place: object, at: int, places: object) -> None:
        nonlocal steps
        steps += 1
        arrive(place, at, places)  # type: ignore[arg-type]

    monkeypatch.setattr(topic, "_arrive", counted)
    tree: TopicTree[int] = TopicTree()
    tree.add(".".join([*words] * (LONGEST // len(words))) + end, 1)
    tree.match(".".join(["a"] * LONGEST))
    assert 0 < steps <= 3 * LONGEST * (LONGEST + 2)


def crowd(words: int) -> TopicTree[str]:
    """Each pattern of so many `a` and `*`."""
    tree: TopicTree[str] = TopicTree()
    for wanted in product("a*", repeat=words):
        tree.add(".".join(wanted), ".".join(wanted))
    return tree


@pytest.mark.parametrize("words", [11, 12])
def test_the_steps_of_a_key_have_a_bound_from_its_first_word_to_its_last(
    words: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 0
    arrive = topic._arrive

    def counted(place: object, at: int, places: object) -> None:
        nonlocal count
        count += 1
        arrive(place, at, places)  # type: ignore[arg-type]

    tree = crowd(words)
    monkeypatch.setattr(topic, "_arrive", counted)
    with pytest.raises(TooManyWays) as refusal:
        tree.match(".".join("a" * words), Steps(0, 10_000, ""))
    assert refusal.value.reason and refusal.value.hint
    assert count <= MOST_STEPS + 3
    assert tree.match("b.b", Steps(0, 10_000, "")) == {}


def test_a_refused_key_takes_of_what_is_shared() -> None:
    tree, steps = crowd(11), Steps(0, 2 * MOST_STEPS, "")
    for _ in range(2):
        assert not steps.are_over()
        with pytest.raises(TooManyWays):
            tree.match(".".join("a" * 11), steps)
    assert steps.are_over()


def test_keys_share_what_they_take_beyond_what_each_has() -> None:
    tree, steps = crowd(7), Steps(20, 400, "less of it")
    key = ".".join("a" * 7)
    for _ in range(2):
        for _ in range(2):  # Each takes 255; the second one takes more than was left.
            assert not steps.are_over()
            assert len(tree.match(key, steps)) == 1 << 7
        assert steps.are_over()
        with pytest.raises(TooManyKeys) as refusal:
            tree.match(key, steps)
        assert refusal.value.hint == "less of it"
        assert tree.match("a.b", steps) == {}
        steps.renew()


def test_ordinary_keys_take_few_steps_however_many_bindings_there_are() -> None:
    tree: TopicTree[int] = TopicTree()
    for number in range(2500):
        for pattern in ("stock.s{}.*.#", "*.s{}.nyse.#", "stock.*.x{}.#", "#.s{}.last"):
            tree.add(pattern.format(number), number)
    steps = Steps(0, 1_000_000, "")
    for number in range(100):
        assert set(tree.match(f"stock.s{number}.nyse.a.b", steps)) == {number}
        assert set(tree.match(f"stock.s{number}.x7.last", steps)) == {number, 7}
    assert 1_000_000 - steps._left < 200 * 30


def test_words_of_one_pattern_take_one_place() -> None:
    tree: TopicTree[int] = TopicTree()

    def count(place: topic._Place[int]) -> int:
        return 1 + sum(map(count, place.following.values()))

    for number in range(100):
        tree.add(".".join([*"#" * (number % 50), f"w{number}", *"#" * 50]), number)
    assert count(tree._root) <= 2 * 100 + 1
    assert len(tree.match("w7.a", Steps(0, 1 << 60, ""))) == 1
