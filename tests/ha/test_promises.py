"""Promises: one owner, each change checked against its rule and saved before anybody is told."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qpidha.ha.in_sync import InSyncSet, SavedState
from qpidha.ha.promises import FARTHEST, Promises
from qpidha.model.errors import InvariantBroken

NO_SET = InSyncSet()


class Owner:
    """A broker's promises, and what it did about them, in order."""

    def __init__(
        self, promised: int = 0, in_sync: InSyncSet = NO_SET, *, is_new: bool = False
    ) -> None:
        self.done: list[str] = []
        self.saved = SavedState(promised, in_sync, is_new)
        port: Any = self
        self.promises = Promises(port, "me", self.saved, lambda: self.done.append("told"))

    def save(self, data: bytes) -> None:
        self.done.append("saved")
        self.saved = SavedState.decode(data)

    def assert_saved(self) -> None:
        assert self.saved.promised == self.promises.promised
        assert self.saved.in_sync.is_same(self.promises.in_sync)
        assert self.saved.is_new is self.promises.is_new


def test_an_epoch_is_promised_once_and_to_one_candidate() -> None:
    owner = Owner(promised=3)
    assert not owner.promises.grant(3, "a")
    assert owner.promises.grant(4, "a")
    assert owner.saved.promised == 4
    assert not owner.promises.grant(4, "b")
    assert owner.promises.grant(4, "a"), "the answer to the same candidate may have been lost"
    assert owner.promises.granted == (4, "a") and owner.done == ["saved"]


def test_an_epoch_that_leaves_none_for_the_next_primary_is_not_agreed_to() -> None:
    owner = Owner(promised=3)
    last = 2**63 - 1
    assert not owner.promises.grant(last, "a")
    assert not owner.promises.record(InSyncSet(last, 1, ("a",)))
    assert owner.promises.promised == 3 and not owner.done
    assert owner.promises.grant(3 + FARTHEST, "a")


def test_a_broker_promises_itself_only_a_higher_epoch() -> None:
    owner = Owner(promised=3)
    owner.promises.promise_self(4)
    assert owner.saved.promised == 4
    with pytest.raises(InvariantBroken):
        owner.promises.promise_self(4)
    assert not owner.promises.grant(4, "a")


def test_only_the_promised_epoch_is_begun_and_only_by_a_member() -> None:
    owner = Owner(promised=5)
    for first in (InSyncSet(4, 0, ("me",)), InSyncSet(6, 0, ("me",)), InSyncSet(5, 0, ("other",))):
        with pytest.raises(InvariantBroken):
            owner.promises.begin_epoch(first)
    assert not owner.promises.is_complete
    assert owner.promises.begin_epoch(InSyncSet(5, 0, ("me", "other"))) is False
    assert owner.promises.is_complete
    assert owner.promises.begin_epoch(InSyncSet(5, 0, ("me", "other"))) is True


def test_a_primary_of_a_lower_epoch_is_not_followed() -> None:
    owner = Owner(promised=5)
    assert not owner.promises.follow(4) and owner.done == []
    assert owner.promises.follow(5) and owner.done == []
    assert owner.promises.follow(6) and owner.saved.promised == 6


def test_a_set_is_recorded_unless_a_higher_epoch_is_promised() -> None:
    owner = Owner(promised=5)
    assert not owner.promises.record(InSyncSet(4, 9, ("a",))) and owner.done == []
    assert owner.promises.record(InSyncSet(6, 1, ("a",)))
    assert owner.promises.promised == 6 and owner.done == ["saved", "told"]
    assert owner.promises.record(InSyncSet(6, 1, ("a",))), "asked again: the answer was lost"
    owner.assert_saved()


def test_a_promise_that_comes_with_a_known_set_is_saved_too() -> None:
    owner = Owner(promised=5, in_sync=InSyncSet(6, 1, ("a",)))
    assert owner.promises.record(InSyncSet(6, 1, ("a",)))
    assert owner.promises.promised == 6
    owner.assert_saved()


def test_an_older_set_is_never_learned_again() -> None:
    owner = Owner(in_sync=InSyncSet(3, 2, ("a", "me")))
    owner.promises.learn(InSyncSet(3, 1, ("a",)))
    owner.promises.learn(InSyncSet(3, 2, ("a",)))
    assert owner.promises.in_sync.members == ("a", "me") and owner.done == []


def test_a_restarted_broker_is_not_complete_before_a_set_with_it_says_so() -> None:
    owner = Owner(promised=3, in_sync=InSyncSet(3, 2, ("a", "me")))
    assert not owner.promises.is_complete
    with pytest.raises(InvariantBroken):
        owner.promises.complete(InSyncSet(3, 3, ("a",)))
    owner.promises.complete(InSyncSet(3, 3, ("a", "me")))
    assert owner.promises.is_complete
    owner.promises.incomplete()
    assert not owner.promises.is_complete


def test_a_broker_writes_its_state_file_at_its_start_and_a_new_one_before_it_has_a_log() -> None:
    new, old = Owner(), Owner(promised=1)
    new.promises.start()
    old.promises.start()
    assert (new.done, old.done) == (["saved"], ["saved"])


def test_a_new_broker_follows_and_learns_and_agrees_to_nothing_before_it_recollects() -> None:
    owner = Owner(is_new=True)
    owner.promises.start()
    assert owner.promises.follow(1)
    owner.promises.learn(InSyncSet(1, 2, ("a", "me")))
    assert not owner.promises.grant(2, "a")
    assert not owner.promises.record(InSyncSet(1, 3, ("a",)))
    owner.assert_saved()
    owner.promises.recollect(4, InSyncSet(1, 1, ("a",)), ())
    assert owner.promises.promised == 4 and owner.promises.in_sync.version == 2
    assert owner.done[-2:] == ["saved", "told"]
    owner.assert_saved()
    assert not owner.promises.grant(4, "a") and owner.promises.grant(5, "a")


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("grant", "self", "follow", "record", "learn")),
        st.integers(0, 6),
        st.integers(0, 2),
        st.sampled_from(("a", "b", "me")),
    ),
    max_size=30,
)


@given(STEPS)
def test_nothing_falls_and_everything_is_saved_whatever_comes(
    steps: list[tuple[str, int, int, str]],
) -> None:
    owner = Owner()
    owner.promises.start()
    promises = owner.promises
    granted: dict[int, str] = {}
    for what, epoch, version, name in steps:
        before = (promises.promised, promises.in_sync)
        set_ = InSyncSet(epoch, version, (name,))
        if what == "grant" and promises.grant(epoch, name) and epoch:
            assert granted.setdefault(epoch, name) == name
        elif what == "self" and epoch > promises.promised:
            promises.promise_self(epoch)
            assert granted.setdefault(epoch, "me") == "me"
        elif what == "follow":
            assert promises.follow(epoch) is (epoch >= before[0])
        elif what == "record":
            assert promises.record(set_) is (epoch >= before[0])
        elif what == "learn":
            promises.learn(set_)
        assert promises.promised >= before[0] and promises.in_sync >= before[1]
        owner.assert_saved()
