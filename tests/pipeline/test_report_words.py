"""Words of a report: units, sentences for every kind of example and of event, and text that cannot
hide anything.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qpidha.pipeline.checks import BROKEN, CHECK
from qpidha.pipeline.events import KINDS, OPERATIONS, OUTCOMES
from qpidha.pipeline.report import text
from tests.pipeline.builders import Story


@pytest.mark.parametrize(
    ("ns", "says"),
    [
        (None, "–"),
        (0, "0 s"),
        (999, "1 µs"),
        (999_999, "1000 µs"),
        (1_000_000, "1.0 ms"),
        (16_245_282, "16.2 ms"),
        (1_088_430_732, "1.09 s"),
        (119_990_000_000, "119.99 s"),
        (125_000_000_000, "2 min 05 s"),
        (7_260_000_000_000, "2 h 01 min"),
        (-2_000_000, "−2.0 ms"),
    ],
)
def test_a_length_of_time_has_its_unit(ns: int | None, says: str) -> None:
    assert text.duration(ns) == says


def test_numbers_keep_their_digits() -> None:
    assert [text.from_microseconds(us) for us in (None, 0, 7, 5280, 36_000, 2_350_000)] == [
        "–",
        "0",
        "0.007",
        "5.28",
        "36",
        "2,350",
    ]
    assert [text.milliseconds(ns) for ns in (None, 16_245_282, -6_749_000_000)] == [
        "–",
        "16.2",
        "−6,749.0",
    ]
    assert text.number(17940) == "17,940" and text.number(None) == "–"
    assert (
        text.utc(0) == "1970-01-01 00:00:00 UTC" and text.utc(None) == text.utc(1 << 62 << 8) == "–"
    )
    assert text.shown_count("longest_ns", 2_000_000_000) == ("longest", "2.00 s")
    assert text.shown_count("client_unsafe", 3) == ("client unsafe", "3")


@given(st.text())
def test_text_from_outside_can_be_seen_whole_or_says_that_it_is_cut(raw: str) -> None:
    shown = text.plain(raw)
    assert shown.isprintable() and (shown.endswith("…") or len(shown) >= len(raw))
    assert shown.encode().decode() == shown, "no half of a pair of surrogates is left"


def test_every_number_of_the_verdict_that_is_shown_exists() -> None:
    assert set(text.NUMBERS) == set(CHECK)
    for name, numbers in text.NUMBERS.items():
        assert set(numbers) <= {count for count, _ in CHECK[name].counts}
    assert set(BROKEN) <= set(text.KINDS) | {"overlaps"}, "what can make a run invalid has a name"


def offenders() -> list[tuple[str, str, dict[str, Any]]]:
    """Return an example of every kind that the engines find, from a history that has them all."""
    story = Story()
    for number in range(1, 4):
        story.send(number)
    story.op("enqueue", "invoke", w=1, u=4)
    story.op("enqueue", "fail", w=1, u=5, o=story.op("enqueue", "invoke", w=1, u=5))
    for number in (7, 8):
        story.send(number)
    for number in (2, 1, 4, 5, 2, 8, 7):
        story.take(number)
    story.ack(1)
    for number, flag in ((1, 1), (77, 0)):
        story.take(number, d=flag)
    story.drain()
    story.send(9, q="never drained")
    for process in (1, 2):
        o = story.op("acquire", "invoke", "lock", c=process)
        story.op("acquire", "ok", "lock", o, process, e=1, p=9 - process)
    for number in (8, 7):
        o = story.op("write", "invoke", "lock", e=1, p=number)
        story.op("write", "ok", "lock", o, e=1, p=number)
    story.op("release", "ok", "lock", story.op("release", "invoke", "lock", c=1), c=1)
    story.at += 5_000_000_000
    for node, epoch in (("a", 2), ("a", 1)):
        story.add(node, "epoch", e=epoch)
    for node, epoch in (("a", 1), ("b", 1), ("b", 2)):
        story.add(node, "role", r="active", e=epoch)
    story.add("a", "insync", e=1, set="a b")
    story.add("a", "enq", q="q", e=1, p=1, i="m")
    story.add("a", "conf", e=1, p=1)
    story.send(6, q="another", i="m")
    verdict = json.loads(json.dumps(story.judged().as_json()))
    return [
        (check["name"], row.pop("what"), row)
        for check in verdict["checks"]
        for row in check["examples"]
    ]


def test_every_kind_of_example_has_a_title_and_a_sentence() -> None:
    found = offenders()
    seen = {(check, what) for check, what, _ in found}
    assert seen >= {
        ("total-queue", what)
        for what in (
            "lost",
            "missing",
            "unexpected",
            "phantom",
            "duplicated",
            "recovered",
            "resurrected",
        )
    } | {
        ("redelivery", "unflagged"),
        ("order", "violations"),
        ("availability", "windows"),
        ("mutex", "overlaps"),
        ("mutex", "lease_overlaps"),
        ("mutex", "stale"),
        ("mutex", "regressions"),
        ("accepted-before-safe", "unsafe"),
        ("accepted-before-safe", "client_unsafe"),
        ("primaries", "shared_epochs"),
        ("primaries", "epoch_regressions"),
        ("primaries", "overlaps"),
    }
    for check, what, row in found:
        assert text.kind_title(check, what) != what, (check, what)
        title = text.example_title(what, row, lambda at: f"{at} s")
        assert "None" not in title and "{" not in title and len(title) > 15, title
    titles = {
        what: text.example_title(what, row, lambda at: "T") for _, what, row in reversed(found)
    }
    assert titles["lost"] == "q, producer 1, number 3: sent once, accepted once, delivered never"
    assert (
        titles["phantom"]
        == "q, producer 1, number 5: sent once, accepted never, refused once, delivered once"
    )
    assert titles["violations"].endswith(
        "number 7: came to client 2 after number 8, which was sent later"
    )
    assert titles["epoch_regressions"] == "a promised epoch 1 at T, after epoch 2"
    assert (
        titles["unsafe"]
        == "a accepted positions 1 to 1 of epoch 1 at T, and b had not confirmed all of them"
    )


def test_every_kind_of_event_says_what_it_is() -> None:
    values: dict[str, Any] = {
        "run": "r",
        "o": 3,
        "c": 4,
        "y": "start",
        "x": "other",
        "e": 3,
        "p": 4,
        "hi": 9,
        "q": "q",
        "r": "active",
        "set": "a b",
        "cnt": 2,
        "err": "broken pipe",
        "i": "m5",
        "dt": 5_000_000,
        "d": 1,
        "w": 1,
        "u": 2,
        "fa": 0,
        "z": 1,
    }
    for kind in KINDS:
        for what in kind.words or ("memory",):
            for outcome in OUTCOMES if kind.name == "op" else ("start", "stop"):
                most = {
                    key: value
                    for key, value in (values | {"f": what, "y": outcome}).items()
                    if key in kind.needs + kind.may
                }
                least = {key: value for key, value in most.items() if key in kind.needs}
                for event in (most, least):
                    told = text.told({"k": kind.name} | event)
                    assert told and "None" not in told and "{" not in told
                if "err" in most:
                    assert "broken pipe" in text.told({"k": kind.name} | most)
    assert (
        text.told({"k": "op", "f": "dequeue", "y": "ok", "w": 1, "u": 2, "d": 3})
        == "dequeue ok, producer 1, number 2, delivery-count 3"
    )
    assert text.told({"k": "rep", "x": "b2", "e": 1, "p": 3, "hi": 9, "dt": 2_000_000}) == (
        "b2 has confirmed positions 3 to 9 of epoch 1, after 2.0 ms"
    )
    assert set(OPERATIONS) <= {word for kind in KINDS for word in kind.words}


def test_the_headline_gives_one_sentence_a_reason() -> None:
    checks = [
        {
            "name": "total-queue",
            "valid": False,
            "applies": True,
            "reasons": ["2 accepted messages were never delivered"],
        },
        {
            "name": "evidence",
            "valid": "unknown",
            "applies": True,
            "reasons": ["the evidence is incomplete in 1 ways"],
        },
        {"name": "mutex", "valid": "unknown", "applies": False, "reasons": ["nothing to judge"]},
    ]
    word, reasons = text.headline({"valid": False, "checks": checks})
    assert word == "The cluster broke a promise." and reasons == [
        "2 accepted messages were never delivered (check total-queue).",
        "The evidence is incomplete in 1 ways (check evidence).",
        "There was nothing to judge for mutex.",
    ]
    assert (
        text.headline({"valid": "unknown", "checks": checks[1:]})[0]
        == "It cannot be said whether all went well."
    )
    assert text.headline({"valid": True, "checks": [checks[0] | {"valid": True}]})[1] == [
        "All 1 check that had something to judge hold."
    ]


def test_only_what_a_check_promises_makes_a_run_invalid() -> None:
    check = {"name": "total-queue", "counts": {"lost": 0}}
    assert text.offences(check, {}) == ("lost", "unexpected", "phantom")
    assert "duplicated" in text.offences(check, {"exactly_once": True, "of_a_later_version": 1})
    slow = {"name": "availability", "counts": {"longest_ns": 5}}
    assert (
        text.offences(slow, {"max_unavailable_ns": 4}) == ("windows",)
        and text.offences(slow, {}) == ()
    )


def test_faults_meanwhile_are_those_that_were_on() -> None:
    faults = [
        {"start_ns": start, "stop_ns": stop} for start, stop in ((0, 4), (3, 6), (8, None), (9, 12))
    ]
    assert text.during(faults, 5, 8) == faults[1:3]
