"""Access control lists: what a file says is decided, and what is not understood is named."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qpidha.management import acl
from qpidha.management.acl import (
    MOST_DECISIONS,
    MOST_KEYS,
    MOST_READY,
    AccessList,
    Decision,
    told_of,
)
from qpidha.management.acl_file import Trouble, read, shadowed

NAMES = {"desk": ["10.0.0.7", "10.0.0.8"], "rack": ["10.0.1.0"], "v6": ["2001:db8::1"]}


def parsed(text: str) -> tuple[AccessList, list[Trouble]]:
    return read(text, realm="QPID", path="f", resolve=lambda name: NAMES.get(name, []))


def a_list(*lines: str) -> AccessList:
    found, troubles = parsed("\n".join(lines))
    assert not [str(trouble) for trouble in troubles if trouble.is_error]
    return found


def decided(rules: AccessList, user: str, question: str) -> str:
    """Ask `ACTION OBJECT [PROPERTY=VALUE ...]`, and return the decision and its line."""
    action, object_type, *words = question.split()
    given: dict[str, Any] = dict(word.split("=", 1) for word in words)
    name = given.pop("name", "")
    if (action, object_type) == ("publish", "exchange"):
        verdict = rules.publish(user, name, given.get("routingkey", ""))
    else:
        verdict = rules.decide(user, action, object_type, {"name": name, **given})
    return f"{verdict.decision} {verdict.line}"


GROUPS = ("group a ann@QPID", "group ab a bob", "group abc ab \\", "cal \\", "dan@OTHER")


@pytest.mark.parametrize(
    ("lines", "user", "question", "says"),
    [
        # Users, with and without the realm, and groups in groups.
        (("acl allow ann create queue",), "ann", "create queue", "allow 1"),
        (("acl allow ann create queue",), "ann@QPID", "create queue", "allow 1"),
        (("acl allow ann@QPID create queue",), "ann", "create queue", "allow 1"),
        (("acl allow ann create queue",), "ann@OTHER", "create queue", "deny 0"),
        (("acl allow ann create queue",), "Ann", "create queue", "deny 0"),
        (("acl allow anonymous create queue",), "", "create queue", "allow 1"),
        (("acl allow anonymous@QPID create queue",), "anonymous", "create queue", "allow 1"),
        ((*GROUPS, "acl allow abc create queue"), "ann", "create queue", "allow 6"),
        ((*GROUPS, "acl allow abc create queue"), "bob@QPID", "create queue", "allow 6"),
        ((*GROUPS, "acl allow abc create queue"), "cal", "create queue", "allow 6"),
        ((*GROUPS, "acl allow abc create queue"), "dan@OTHER", "create queue", "allow 6"),
        ((*GROUPS, "acl allow abc create queue"), "dan", "create queue", "deny 0"),
        ((*GROUPS, "acl allow a create queue"), "bob", "create queue", "deny 0"),
        (("acl allow all create queue",), "whoever", "create queue", "allow 1"),
        # Actions and objects.
        (("acl allow ann create queue",), "ann", "delete queue", "deny 0"),
        (("acl allow ann create queue",), "ann", "create exchange", "deny 0"),
        (("acl allow ann create",), "ann", "create exchange", "allow 1"),
        (("acl allow ann create all",), "ann", "create queue", "allow 1"),
        (("acl allow ann all queue",), "ann", "purge queue", "allow 1"),
        (("acl allow ann all queue",), "ann", "bind exchange", "deny 0"),
        (("acl allow ann all",), "ann", "access method name=promote", "allow 1"),
        (("acl allow ann all all",), "ann", "create link", "allow 1"),
        # The first that fits decides, the last word is for the rest.
        (("acl deny all purge", "acl allow ann all"), "ann", "purge queue", "deny 1"),
        (("acl allow ann all", "acl deny all purge"), "ann", "purge queue", "allow 1"),
        (("# no rule", "", "acl allow all all"), "ann", "purge queue", "allow 3"),
        (("acl deny-log all all",), "ann", "purge queue", "deny-log 1"),
        (("acl allow-log ann purge queue",), "ann", "purge queue", "allow-log 1"),
        # Names.
        (("acl allow ann all queue name=q",), "ann", "purge queue name=q", "allow 1"),
        (("acl allow ann all queue name=q",), "ann", "purge queue name=qq", "deny 0"),
        (("acl allow ann all queue name=q*",), "ann", "purge queue name=qq", "allow 1"),
        (("acl allow ann all queue name=q*",), "ann", "purge queue name=Qq", "deny 0"),
        (("acl allow ann all queue name=*",), "ann", "purge queue name=any", "allow 1"),
        (("acl allow ann all queue name=a*b",), "ann", "purge queue name=axb", "deny 0"),
        (("acl allow ann access exchange name=amq.default",), "ann", "access exchange", "allow 1"),
        # Every property of a rule has to be told and to be so; others do not matter.
        (
            ("acl allow ann create queue name=q durable=true",),
            "ann",
            "create queue name=q durable=true exclusive=true",
            "allow 1",
        ),
        (
            ("acl allow ann create queue name=q durable=true",),
            "ann",
            "create queue name=q durable=false",
            "deny 0",
        ),
        (("acl allow ann create queue durable=true",), "ann", "create queue name=q", "deny 0"),
        (
            ("acl allow ann create queue alternate=x*",),
            "ann",
            "create queue alternate=xy",
            "allow 1",
        ),
        (
            ("acl allow ann access method schemapackage=org.apache.qpid.ha schemaclass=habroker",),
            "ann",
            "access method name=promote schemapackage=org.apache.qpid.ha schemaclass=habroker",
            "allow 1",
        ),
        (
            ("acl allow ann access method name=promote",),
            "ann",
            "access method name=shutdown schemaclass=broker",
            "deny 0",
        ),
        # Limits: a number outside makes a no of a yes, and no other rule is looked at.
        *(
            (
                (f"acl allow ann create queue queuemaxcount{end}={limit}", "acl allow ann all"),
                "ann",
                f"create queue queuemaxcount={asked}",
                says,
            )
            for end, limit, asked, says in (
                ("upperlimit", 9, 9, "allow 1"),
                ("upperlimit", 9, 10, "deny 1"),
                ("upperlimit", 9, 0, "allow 1"),
                ("upperlimit", 0, 10, "allow 1"),
                ("upperlimit", 9, "ten", "deny 1"),
                ("upperlimit", 9, -1, "deny 1"),
                ("lowerlimit", 9, 9, "allow 1"),
                ("lowerlimit", 9, 8, "deny 1"),
                ("lowerlimit", 1, 0, "deny 1"),
                ("", 9, 10, "deny 1"),
            )
        ),
        (
            ("acl allow-log ann create queue maxqueuesize=9 maxqueuecount=1",),
            "ann",
            "create queue queuemaxsize=10 queuemaxcount=1",
            "deny-log 1",
        ),
        (
            ("acl deny ann create queue queuemaxsizeupperlimit=9", "acl allow ann all"),
            "ann",
            "create queue queuemaxsize=10",
            "deny 1",
        ),
        (
            ("acl allow ann create queue queuemaxsizeupperlimit=9 name=q", "acl allow ann all"),
            "ann",
            "create queue queuemaxsize=10 name=other",
            "allow 2",
        ),
        (
            ("acl allow ann create queue filemaxsizeupperlimit=9",),
            "ann",
            "create queue queuemaxsize=1",
            "deny 0",
        ),
        # Keys, as a topic exchange compares them.
        *(
            (
                (f"acl allow ann publish exchange name=x routingkey={pattern}",),
                "ann",
                f"publish exchange name=x routingkey={key}",
                says,
            )
            for pattern, key, says in (
                ("a.b", "a.b", "allow 1"),
                ("a.b", "a.c", "deny 0"),
                ("a.*", "a.b", "allow 1"),
                ("a.*", "a.b.c", "deny 0"),
                ("a.#", "a.b.c", "allow 1"),
                ("#", "", "allow 1"),
                ("a", "", "deny 0"),
                ("a.b", "a.*", "deny 0"),
                ("a.b", "#", "deny 0"),
            )
        ),
        (
            ("acl allow ann publish exchange name=amq.default routingkey=q",),
            "ann",
            "publish exchange routingkey=q",
            "allow 1",
        ),
        (
            ("acl allow ann publish exchange name=amq.default routingkey=q",),
            "ann",
            "publish exchange name=amq.direct routingkey=q",
            "deny 0",
        ),
        (
            ("acl allow ann bind exchange name=x queuename=ann* routingkey=a.#",),
            "ann",
            "bind exchange name=x queuename=ann1 routingkey=a.b.c",
            "allow 1",
        ),
        # The user in names and keys.
        *(
            ((f"acl allow all all queue name={pattern}",), user, f"purge queue name={name}", says)
            for pattern, user, name, says in (
                ("${user}-q", "ann", "ann-q", "allow 1"),
                ("${user}-q", "ann@QPID", "ann-q", "allow 1"),
                ("${user}-q", "bob", "ann-q", "deny 0"),
                ("${user}*", "ann", "anna", "allow 1"),
                ("${user}", "a*", "ab", "deny 0"),
                ("${domain}", "ann", "QPID", "allow 1"),
                ("${domain}", "ann@a.b", "a_b", "allow 1"),
                ("${userdomain}", "an.n", "an_n_QPID", "allow 1"),
                ("q-${userdomain}-${user}", "ann@X", "q-ann_X-ann", "allow 1"),
            )
        ),
        *(
            (
                ("acl allow all publish exchange name=x routingkey=${user}.#",),
                user,
                f"publish exchange name=x routingkey={key}",
                says,
            )
            for user, key, says in (
                ("ann", "ann.a.b", "allow 1"),
                ("bob", "ann.a.b", "deny 0"),
                ("an.n", "an_n.a", "allow 1"),
                ("*", "ann.a", "deny 0"),
                ("#", "ann.a", "deny 0"),
                ("ann", "${user}.a", "deny 0"),
            )
        ),
    ],
)
def test_qpid_4_what_is_decided(
    lines: tuple[str, ...], user: str, question: str, says: str
) -> None:
    assert decided(a_list(*lines), user, question) == says


def test_qpid_4_the_acl_of_the_originals_test_of_ha() -> None:
    rules = a_list(
        "acl allow ha@QPID access queue",
        "acl allow ha@QPID create queue",
        "acl allow ha@QPID consume queue",
        "acl allow ha@QPID delete queue",
        "acl allow ha@QPID access exchange",
        "acl allow ha@QPID create exchange",
        "acl allow ha@QPID bind exchange",
        "acl allow ha@QPID publish exchange",
        "acl allow ha@QPID delete exchange",
        "acl allow ha@QPID access method",
        "acl allow ha@QPID create link",
        "acl allow ha@QPID access query",
        "acl allow zig@QPID all all",
        "acl deny all all",
    )
    assert decided(rules, "ha", "create link") == "allow 11"
    assert decided(rules, "ha", "purge queue name=q") == "deny 14"
    assert decided(rules, "zig", "purge queue name=q") == "allow 13"
    assert decided(rules, "zag", "publish exchange routingkey=q") == "deny 14"


# -- connections and quotas -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "user", "host", "says"),
    [
        ((), "ann", "10.0.0.1", "allow 0"),
        (("acl deny all create connection host=10.0.0.1",), "ann", "10.0.0.1", "deny 1"),
        (("acl deny all create connection host=10.0.0.1",), "ann", "10.0.0.2", "allow 0"),
        (("acl deny all create connection host=10.0.0.1",), "ann", "::ffff:10.0.0.1", "deny 1"),
        (("acl deny all create connection host=10.0.0.1,10.0.0.9",), "ann", "10.0.0.5", "deny 1"),
        (("acl deny all create connection host=10.0.0.1,10.0.0.9",), "ann", "10.0.1.5", "allow 0"),
        (("acl deny all create connection host=10.0.0.1,rack",), "ann", "10.0.0.255", "deny 1"),
        (("acl deny all create connection host=10.0.0.1,10.0.0.1",), "ann", "10.0.0.1", "deny 1"),
        (("acl deny all create connection host=desk",), "ann", "10.0.0.8", "deny 1"),
        (("acl deny all create connection host=v6",), "ann", "2001:db8::1", "deny 1"),
        (("acl deny all create connection host=v6",), "ann", "2001:db8::2", "allow 0"),
        (("acl deny all create connection host=0.0.0.0,255.255.255.255",), "ann", "::1", "allow 0"),
        (("acl deny-log ann create connection host=all",), "ann", "::1", "deny-log 1"),
        (("acl deny ann create connection host=all",), "bob", "::1", "allow 0"),
        (("group g ann", "acl deny g create connection host=all"), "ann@QPID", "::1", "deny 2"),
        # First what is said of the address for all, then of the user, then of all.
        (
            (
                "acl deny all create connection host=all",
                "acl allow ann create connection host=10.0.0.1",
                "acl deny all create connection host=10.0.0.1",
            ),
            "ann",
            "10.0.0.1",
            "deny 3",
        ),
        (
            (
                "acl deny all create connection host=all",
                "acl allow ann create connection host=10.0.0.1",
                "acl deny ann create connection host=all",
            ),
            "ann",
            "10.0.0.1",
            "allow 2",
        ),
        (("acl deny all create connection host=all",), "ann", "10.0.0.1", "deny 1"),
        (("acl deny all create connection host=all",), "ann", "", "deny 1"),
        # The last word is not about connections.
        (("acl deny all all",), "ann", "10.0.0.1", "allow 0"),
        (("acl deny all create",), "ann", "10.0.0.1", "allow 0"),
    ],
)
def test_connections(lines: tuple[str, ...], user: str, host: str, says: str) -> None:
    verdict = a_list(*lines).connection(user, host)
    assert f"{verdict.decision} {verdict.line}" == says


@pytest.mark.parametrize(
    ("lines", "user", "most"),
    [
        ((), "ann", None),
        (("quota queues 3 all",), "ann", None),
        (("quota connections 3 all",), "ann", 3),
        (("quota connections 3 all", "quota connections 5 ann@QPID"), "ann", 5),
        (("quota connections 3 all", "quota connections 5 ann"), "ann@QPID", 5),
        (("quota connections 5 ann",), "bob", 0),
        (("group g ann bob", "quota connections 5 g cal"), "bob", 5),
        (("group g ann bob", "quota connections 5 g cal"), "cal", 5),
        (("quota connections 5 ann", "quota connections 65530 ann"), "ann", 65530),
        (("quota connections 0 ann", "quota connections 1 all"), "ann", 0),
    ],
)
def test_quotas(lines: tuple[str, ...], user: str, most: int | None) -> None:
    assert a_list(*lines).quota("connections", user) == most


# -- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (("allow all all",), "line 1: 'allow' is none of acl, group, quota"),
        ((" # a comment", "acl deny all all"), "line 1: '#' is none of"),
        (("acl allow all",), "line 1: a rule is: acl DECISION"),
        (("acl permit all all",), "line 1: there is no decision 'permit'"),
        (("acl allow-logs all all",), "line 1: there is no decision 'allow-logs': did you mean"),
        (("acl allow all creates queue",), "there is no action 'creates': did you mean create?"),
        (("acl allow all create Queue",), "there is no object 'Queue': did you mean queue?"),
        (("acl allow all create queue q",), "'q' is not PROPERTY=VALUE"),
        (("acl allow all create queue nam=q",), "no property 'nam': did you mean name?"),
        (("acl allow all create queue name=q name=r",), "name is given twice"),
        (("acl allow ann all all name=q",), "a rule about all objects and actions has no prop"),
        (("acl allow a$ create",), "a user cannot be called 'a$'"),
        (("acl allow all create queue durable=yes",), "durable is true or false, not 'yes'"),
        (("acl allow all create queue policytype=x",), "policytype is reject or ring"),
        (("acl allow all create queue queuemaxcount=x",), "queuemaxcount is a whole number"),
        (("acl allow all create queue queuemaxsizeupperlimit=-1",), "is a whole number"),
        ((f"acl allow all create queue queuemaxsizeupperlimit={1 << 63}",), "is a whole number"),
        (("acl deny all all", "acl allow ann all"), "line 2: line 1 has the last word"),
        (("acl allow all create queue # why",), "'#' is not PROPERTY=VALUE"),
        (("acl allow all create queue \\",), "line 1: only a group may go on"),
        (("acl allow all create queue name=ä",), "not ASCII"),
        (
            ("", f"acl allow all publish exchange routingkey={'k' * 256}"),
            "line 2: routingkey is longer than the 255 bytes",
        ),
        (("acl allow all create queue name=" + "q" * 1000,), "longer than 1024 characters"),
        (("group",), "a group has a name"),
        (("group g",), "group g has no members"),
        (("group all ann",), "a group cannot be called 'all'"),
        (("group a.b ann",), "a group cannot be called 'a.b'"),
        (("group g ann", "group g bob"), "line 2: group g is there already"),
        (("group g g",), "g cannot be a member of group g"),
        (("group g all",), "all cannot be a member of group g"),
        (("group g ann \\", "\\"), "line 2: a line of \\ alone"),
        (("group g ann \\",), "line 1: group g is to go on"),
        (("quota connections 3",), "a quota is:"),
        (("quota queue 3 all",), "there is no quota 'queue': did you mean queues?"),
        (("quota queues 65531 all",), "a number from 0 to 65530, not '65531'"),
        (("quota queues -1 all",), "a number from 0 to 65530"),
        (("acl deny all create connection",), "create connection takes host="),
        (("acl deny all create connection host=",), "create connection takes host="),
        (("acl deny all create connection host=::1 name=x",), "create connection takes host="),
        (("acl deny all create queue host=::1",), "host is for create connection"),
        (("acl deny all create connection host=nowhere",), "the host 'nowhere' is no address"),
        (("acl deny all create connection host=10.0.0.1,",), "the host '' is no address"),
        (("acl deny all create connection host=10.0.0.2,10.0.0.1",), "is no range"),
        (("acl deny all create connection host=10.0.0.2,::1",), "is no range"),
    ],
)
def test_a_line_that_is_not_understood_is_named(lines: tuple[str, ...], says: str) -> None:
    _, troubles = parsed("\n".join(lines))
    (error,) = [str(trouble) for trouble in troubles if trouble.is_error]
    assert says in error


def test_a_key_has_up_to_255_bytes() -> None:
    a_list(f"acl allow all publish exchange routingkey={'k' * 255}")


def test_a_line_has_up_to_1024_characters() -> None:
    line = "acl allow all create queue name="
    a_list(line + "q" * (1024 - len(line)))
    assert parsed(line + "q" * (1025 - len(line)))[1]


WORDS = (
    *("acl", "group", "quota", "allow", "deny-log", "all", "ann", "g", "create", "queue"),
    *("connection", "name=${user}*", "host=10.0.0.1,", "host=all", "routingkey=#.*", "=", "3", "#"),
    *("connections", "queuemaxsize=9", "durable=true", "\\", "\n", "\0", "ä", "\u2028", "\r"),
)


@given(st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=5)), max_size=40))
@settings(max_examples=200, deadline=None)
def test_whatever_stands_in_a_file_it_is_used_or_named(words: list[str]) -> None:
    found, _ = parsed(" ".join(words))
    found.report()
    found.publish("ann", "x", "a.b")
    found.connection("ann", "10.0.0.1")
    found.quota("connections", "ann")
    decided(found, "ann", "create queue name=q queuemaxsize=1 durable=true")


def test_every_line_that_is_not_understood_is_named() -> None:
    _, troubles = parsed("nonsense\nacl allow all purge queue\nacl deny\nquota x\n")
    assert [trouble.line for trouble in troubles if trouble.is_error] == [1, 3, 4]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("acl allow ann move queue", "move queue is never asked"),
        ("acl allow ann all virtualhost", "all virtualhost is never asked"),
        ("acl allow ann access route", "never asked"),
        (
            "acl allow ann publish queue name=q",
            "publish exchange name=amq.default routingkey=QUEUE",
        ),
        ("acl allow ann create queue routingkey=a", "create queue tells no more than alternate, "),
        ("acl allow ann create queue filemaxsize=1", "no property 'filemaxsize'"),
        ("acl allow ann create queue filemaxsizeupperlimit=1", "tells no more than"),
        ("acl allow ann create link name=x", ""),
        ("acl allow ann all queue durable=true", ""),
        ("acl allow ann all", ""),
    ],
)
def test_a_rule_that_can_never_fit_is_a_warning(line: str, says: str) -> None:
    _, troubles = parsed(f"\n{line}\nacl deny all all")
    texts = [str(trouble) for trouble in troubles]
    assert len(texts) == bool(says)
    assert not texts or (says in texts[0] and texts[0].startswith("line 2: "))


def test_a_rule_behind_one_that_fits_whatever_it_fits_is_found() -> None:
    found = a_list(
        "acl allow ann create queue durable=true name=q",
        "acl deny ann create queue name=q",
        "acl allow ann create queue name=q exclusive=true",
        "acl allow bob create queue name=q",
        "acl allow all create",
        "group g ann bob",
        "acl deny g create exchange",
        "acl deny g delete exchange",
    )
    assert not any(trouble.is_error for trouble in shadowed(found))
    assert [str(trouble) for trouble in shadowed(found)] == [
        "line 3: never decides, as line 2 fits whatever it fits",
        "line 7: never decides, as line 5 fits whatever it fits",
    ]


def test_a_list_shows_what_it_says() -> None:
    report = a_list(
        "group g bob ann@QPID",
        "acl allow g create queue name=q* queuemaxcountupperlimit=5 durable=true",
        "acl deny all create connection host=10.0.0.1,10.0.0.9",
        "quota queues 3 g",
        "acl deny-log all all",
    ).report()
    assert report == {
        "file": "f",
        "rules": [
            {
                "line": 2,
                "decision": "allow",
                "users": ["ann", "bob"],
                "action": "create",
                "object": "queue",
                "properties": ["name=q*", "queuemaxcountupperlimit=5", "durable=true"],
            }
        ],
        "last_word": {"line": 5, "decision": "deny-log"},
        "groups": {"g": ["ann", "bob"]},
        "hosts": [{"line": 3, "decision": "deny", "users": "all", "host": "10.0.0.1,10.0.0.9"}],
        "quotas": {"queues": {"ann": 3, "bob": 3}},
        "connections_from_one_address": 0,
    }


@pytest.mark.parametrize(
    "properties",
    [
        "name=amq.default routingkey=a.*",
        "name=x* queuemaxsizelowerlimit=1 policytype=ring",
        "name=x alternate=y*",
    ],
)
def test_properties_are_shown_as_they_are_written(properties: str) -> None:
    (rule,) = a_list(f"acl allow ann all queue {properties}").rules
    assert [str(condition) for condition in rule.conditions] == properties.split()


def test_what_was_decided_is_remembered_up_to_a_number() -> None:
    rules = a_list("acl allow all publish exchange name=x routingkey=1")
    for number in range(MOST_KEYS + 5):
        says = "allow" if number == 1 else "deny"
        assert rules.publish("ann", "x", str(number)).decision == says
    assert len(rules._published["ann"]) == 5
    for number in range(MOST_DECISIONS):
        rules.publish(f"u{number % 40}", "x", str(number))
        assert sum(map(len, rules._published.values())) == rules._decided <= MOST_DECISIONS
    assert list(rules._published) == [f"u{number}" for number in range(35, 40)]
    assert len(rules._ready) == 1 + 40, "ann's, and those of the others"
    for number in range(MOST_READY):
        rules.decide(f"v{number}", "create", "queue", {"name": "q"})
        assert len(rules._ready) <= rules._made <= MOST_READY
    assert len(rules._ready) == rules._made == MOST_READY, "no rule is for these"
    assert rules.publish("ann", "x", "1").decision is Decision.ALLOW


def test_rules_are_made_ready_up_to_a_number_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acl, "MOST_READY", 1000)
    rules = a_list(*(f"acl allow all create queue name={number}" for number in range(100)))
    for number in range(50):
        assert rules.decide(f"u{number}", "create", "queue", {"name": "7"}).line == 8
        assert sum(map(len, rules._ready.values())) < 1000 + 100
    assert [user for user, _, _ in rules._ready] == [f"u{number}" for number in range(40, 50)]


def test_what_a_rule_tests_is_kept_once_unless_it_is_about_the_user() -> None:
    rules = a_list(
        "acl allow all publish exchange routingkey=a.#",
        "acl allow all publish exchange routingkey=${user}.#",
    )
    tests = []
    for user in ("ann", "bob"):
        assert rules.publish(user, "x", "a.b").line == 1
        assert rules.publish(user, "x", f"{user}.b").line == 2
        (same,), (own,) = (ready for _, ready in rules._rules(user, "publish", "exchange"))
        tests.append((same[1], own[1]))
    assert tests[0][0] is tests[1][0] and tests[0][1] is not tests[1][1]


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ((), "deny 0"),
        (("acl allow ann publish exchange name=x",), "allow 1"),
        (("acl allow-log ann publish exchange name=x*",), "allow-log 1"),
        (("acl allow ann publish exchange name=y",), "deny 0"),
        (("acl allow ann publish exchange name=x routingkey=a.#",), "deny 0"),
        (("acl allow ann publish exchange name=x routingkey=*.#",), "deny 0"),
        (("acl allow ann publish exchange name=x routingkey=",), "deny 0"),
        (("acl allow ann publish exchange name=x routingkey=#",), "allow 1"),
        (("acl allow ann publish exchange name=x routingkey=#.#",), "allow 1"),
        (
            (
                "acl deny ann publish exchange name=x routingkey=a",
                "acl allow ann publish exchange name=x",
            ),
            "deny 1",
        ),
        (
            (
                "acl deny ann publish exchange name=y routingkey=a",
                "acl deny bob publish exchange name=x routingkey=a",
                "acl allow ann publish exchange name=x",
                "acl deny ann publish exchange name=x routingkey=a",
            ),
            "allow 3",
        ),
        (("acl allow ann publish exchange name=x routingkey=a", "acl allow all all"), "allow 2"),
        (("acl allow ann publish exchange name=x queuename=q", "acl deny all all"), "deny 2"),
    ],
)
def test_who_may_publish_with_any_key(lines: tuple[str, ...], says: str) -> None:
    verdict = parsed("\n".join(lines))[0].publish_any("ann", "x")
    assert f"{verdict.decision} {verdict.line}" == says


def test_what_is_told_of_a_queue_is_not_the_applications_own() -> None:
    given = {
        "qpid.max_count": 5,
        "durable": True,
        "alternate-exchange": "x",
        "schemaclass": "broker",
        "routingkey": "a",
        "queuemaxsize": 1,
    }
    assert told_of("create", "queue", "q", given) == {
        "name": "q",
        "durable": "true",
        "exclusive": "",
        "autodelete": "",
        "alternate": "x",
        "policytype": "",
        "queuemaxcount": "5",
        "queuemaxsize": "0",
        "paging": "false",
    }
