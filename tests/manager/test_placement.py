"""Which broker is promoted, given what is known of all."""

from __future__ import annotations

from qpidha.manager.in_sync_record import InSyncRecord
from qpidha.manager.placement import Member, choose, primary_of


def a_member(
    name: str, state: str = "ready", *, position: tuple[int, int] = (1, 10), **fields: object
) -> Member:
    member = Member(
        name, f"127.0.0.1:{name}", alive=True, healthy=True, state=state, system_id=name
    )
    member.epoch, member.sequence = position
    for field, value in fields.items():
        setattr(member, field, value)
    return member


def test_the_ready_broker_that_is_furthest_is_chosen() -> None:
    members = [
        a_member("b1", position=(1, 5)),
        a_member("b2", position=(1, 9)),
        a_member("b3", position=(1, 7)),
    ]
    assert choose(members).name == "b2"


def test_a_higher_epoch_beats_a_higher_sequence() -> None:
    assert choose([a_member("b1", position=(1, 900)), a_member("b2", position=(2, 3))]).name == "b2"


def test_a_broker_in_catchup_is_never_chosen() -> None:
    choice = choose(
        [a_member("b1", "catchup", position=(9, 9)), a_member("b2", "down", healthy=False)],
        waited=True,
    )
    assert choice.name == ""


def test_a_broker_that_does_not_answer_is_not_chosen() -> None:
    assert choose([a_member("b1", healthy=False, position=(5, 5)), a_member("b2")]).name == "b2"


def test_a_broker_dropped_from_the_newest_in_sync_set_is_not_chosen_although_it_says_ready() -> (
    None
):
    dropped = a_member("b1", position=(1, 99), in_sync_version=(1, 1), in_sync=("b1", "b2", "b3"))
    current = a_member("b2", position=(1, 50), in_sync_version=(1, 2), in_sync=("b2", "b3"))
    assert choose([dropped, current]).name == "b2"


def test_when_only_dropped_brokers_are_left_nobody_is_chosen() -> None:
    dropped = a_member("b1", in_sync_version=(1, 1), in_sync=("b1", "b2"))
    witness = a_member("b3", "catchup", in_sync_version=(1, 2), in_sync=("b2", "b3"))
    assert choose([dropped, witness], waited=True).name == ""
    gone = a_member("b2", "catchup", in_sync_version=(1, 2), in_sync=("b2", "b3"))
    choice = choose([dropped, witness, gone], waited=True)
    assert choice.name == "" and "no longer" in choice.reason


def test_a_dropped_broker_that_says_ready_does_not_keep_the_last_set_from_starting_again() -> None:
    dropped = a_member("b1", position=(1, 99), in_sync_version=(1, 1), in_sync=("b1", "b2"))
    returned = a_member("b2", "joining", position=(1, 80), in_sync_version=(1, 2), in_sync=("b2",))
    assert choose([dropped, returned]).name == "b2"


def test_a_first_start_waits_for_all_brokers() -> None:
    members = [
        a_member("b1", "joining"),
        a_member("b2", "joining"),
        a_member("b3", "starting", healthy=False),
    ]
    assert choose(members).name == ""
    assert choose(members, waited=True).name == "b1"


def test_a_first_start_never_takes_a_minority() -> None:
    members = [
        a_member("b1", "joining"),
        a_member("b2", "starting", healthy=False),
        a_member("b3", "starting", healthy=False),
    ]
    assert choose(members, waited=True).name == ""


def test_after_a_total_failure_all_members_of_the_last_set_must_be_there() -> None:
    known = {"in_sync_version": (3, 1), "in_sync": ("b1", "b2")}
    first, second = (
        a_member("b1", "joining", position=(3, 7), **known),
        a_member("b2", "joining", position=(3, 9), **known),
    )
    third = a_member("b3", "joining", position=(2, 99))
    second.healthy = False
    assert choose([first, second, third], waited=True).name == ""
    second.healthy = True
    assert choose([first, second, third]).name == "b2"


def test_a_member_that_is_at_no_address_any_more_is_for_the_brokers_to_judge() -> None:
    known = {"in_sync_version": (3, 1), "in_sync": ("b1", "b2")}
    member, new = a_member("b1", "joining", position=(3, 7), **known), a_member("b3", "joining")
    choice = choose([member, new])
    assert choice.name == "b1" and choice.compare
    new.healthy = False
    assert choose([member, new], waited=True).name == ""


def test_a_broker_that_refused_is_passed_over_until_all_refused() -> None:
    members = [a_member("b1", position=(1, 9)), a_member("b2", position=(1, 5))]
    assert choose(members, refused=("b1",)).name == "b2"
    assert choose(members, refused=("b1", "b2")).name == "b1"


def test_of_two_primaries_the_one_with_the_higher_epoch_counts() -> None:
    members = [
        a_member("b1", "active", position=(1, 9)),
        a_member("b2", "recovering", position=(2, 1)),
    ]
    found = primary_of(members)
    assert found is not None and found.name == "b2"


def test_a_primary_that_does_not_answer_does_not_count() -> None:
    assert primary_of([a_member("b1", "active", healthy=False)]) is None


def test_the_recorded_set_counts_when_it_is_newer_than_what_any_broker_knows() -> None:
    known = {"in_sync_version": (1, 1), "in_sync": ("b1", "b2", "b3")}
    dropped, current = (
        a_member("b1", position=(1, 99), **known),
        a_member("b2", position=(1, 50), **known),
    )
    assert choose([dropped, current]).name == "b1"
    assert choose([dropped, current], recorded=InSyncRecord(1, 2, ("b2", "b3"))).name == "b2"
    assert choose([dropped, current], recorded=InSyncRecord(1, 0, ("b3",))).name == "b1"
    assert choose([dropped], recorded=InSyncRecord(1, 2, ("b2",)), waited=True).name == ""


def test_after_a_total_failure_what_the_brokers_have_is_to_be_compared() -> None:
    known = {"in_sync_version": (3, 1), "in_sync": ("b1", "b2")}
    members = [
        a_member("b1", "joining", position=(3, 7), **known),
        a_member("b2", "joining", position=(3, 9), **known),
    ]
    assert choose(members).compare
    assert (
        not choose([a_member("b1", **known)]).compare
        and not choose([a_member("b1", "joining")]).compare
    )
