"""What an access control list says is enforced: who is asked about what, what he is told, and what
is written of it.
"""

from __future__ import annotations

from typing import Any

import pytest

from qpidha.broker.broker import Broker
from qpidha.broker.queues.delivery_limit import quarantine_of
from qpidha.management.access import Access
from qpidha.management.acl import AccessList
from qpidha.management.acl_file import read
from qpidha.management.admission import admit
from qpidha.management.methods import METHODS
from qpidha.management.requests import Requests
from qpidha.model.effects import Announce
from qpidha.model.errors import LimitExceeded, QpidHaError, Unauthorized
from qpidha.model.principal import Action, ObjectType, Principal, Role
from qpidha.model.settings import Settings
from tests.amqp.builders import a_node
from tests.management.builders import LOCAL, FakeConnection, FakeNode
from tests.management.test_access import AHost, a_connection
from tests.management.test_audit import SECOND
from tests.management.test_requests import Asker

ANN = Principal("ann", "PLAIN", "10.0.0.1:4711")
BOB = Principal("bob@QPID", "PLAIN", "10.0.0.2:4711")


def a_list(*lines: str) -> AccessList:
    found, troubles = read("\n".join(lines), realm="QPID", path="the.acl")
    assert not [str(trouble) for trouble in troubles if trouble.is_error]
    return found


class Heard:
    """What is told of decisions."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def denied(
        self,
        principal: Principal,
        object_type: ObjectType,
        error: QpidHaError,
        *,
        source: str = "",
        is_each: bool = False,
    ) -> None:
        self.lines.append(f"no: {error.text} ({source}){' each' if is_each else ''}")

    def allowed(self, principal: Principal, text: str, *, source: str) -> None:
        self.lines.append(f"yes: {principal} {text} ({source})")


class Rights:
    """Access control with a list, over a broker with the queue q, which is durable."""

    def __init__(self, *lines: str) -> None:
        self.broker = Broker(Settings(), None, lambda *_: None, lambda: "uuid")
        self.broker.declare_queue("q", durable=True)
        self.heard = Heard()
        self.access = Access(Settings(), self.heard, self.broker)
        self.access.use(a_list(*lines))

    def may(self, who: Principal, *question: Any) -> bool:
        try:
            self.access.check(who, *question)
        except Unauthorized as error:
            assert error.condition == "amqp:unauthorized-access" and error.hint
            return False
        return True


DELETE_Q = (Action.DELETE, ObjectType.QUEUE, "q")


@pytest.mark.parametrize(
    ("rule", "question"),
    [
        ("publish exchange name=amq.default routingkey=q", (Action.PUBLISH, ObjectType.QUEUE, "q")),
        (
            "publish exchange name=x routingkey=a",
            (Action.PUBLISH, ObjectType.EXCHANGE, "x", {"routingkey": "a"}),
        ),
        ("consume queue name=q", (Action.CONSUME, ObjectType.QUEUE, "q", {"browse": True})),
        ("consume queue name=q durable=true", (Action.CONSUME, ObjectType.QUEUE, "q")),
        (
            "access queue name=q durable=true exclusive=false",
            (Action.ACCESS, ObjectType.QUEUE, "q"),
        ),
        ("delete queue name=q durable=true", (*DELETE_Q, {"name": "q", "if_unused": False})),
        ("purge queue durable=true queuemaxcount=0", (Action.PURGE, ObjectType.QUEUE, "q")),
        (
            "create queue name=new queuemaxcountupperlimit=5 policytype=ring durable=false",
            (
                Action.CREATE,
                ObjectType.QUEUE,
                "new",
                {"qpid.max_count": 5, "qpid.policy_type": "ring", "durable": False},
            ),
        ),
        (
            "create exchange name=new type=topic",
            (Action.CREATE, ObjectType.EXCHANGE, "new", {"exchange-type": "topic"}),
        ),
        (
            "access exchange name=amq.topic type=topic",
            (Action.ACCESS, ObjectType.EXCHANGE, "amq.topic"),
        ),
        (
            "delete exchange type=fanout",
            (Action.DELETE, ObjectType.EXCHANGE, "amq.fanout", {"a": 1}),
        ),
        (
            "bind exchange name=x queuename=q routingkey=a.#",
            (Action.BIND, ObjectType.EXCHANGE, "x", {"queuename": "q", "routingkey": "a.b"}),
        ),
        ("create link", (Action.CREATE, ObjectType.LINK)),
        (
            "access method name=promote schemapackage=org.apache.qpid.ha schemaclass=habroker",
            (
                Action.ACCESS,
                ObjectType.METHOD,
                "promote",
                {"schemapackage": "org.apache.qpid.ha", "schemaclass": "habroker"},
            ),
        ),
        (
            "access query schemaclass=queue",
            (Action.ACCESS, ObjectType.QUERY, "q", {"schemaclass": "queue"}),
        ),
    ],
)
def test_a_rule_sees_what_is_asked(rule: str, question: tuple[Any, ...]) -> None:
    rights = Rights(f"acl allow ann {rule}")
    assert rights.may(ANN, *question) and rights.heard.lines == []
    assert not rights.may(BOB, *question) and len(rights.heard.lines) == 1
    rights.access.use(a_list(f"acl deny ann {rule}", "acl allow all all"))
    assert not rights.may(ANN, *question) and rights.may(BOB, *question)
    assert rights.access.each_message
    rights.access.use(None)
    assert rights.may(BOB, *question) and not rights.access.each_message


def test_without_a_list_nothing_is_asked_for_each_message() -> None:
    assert not Access(Settings()).each_message


def test_who_is_on_the_brokers_own_machine_is_not_asked_about() -> None:
    rights = Rights("acl deny-log all all")
    assert rights.may(LOCAL, *DELETE_Q) and rights.heard.lines == []
    assert not rights.may(ANN.with_role(Role.ADMINISTRATOR), *DELETE_Q)


def test_a_decision_is_told_with_the_line_that_made_it() -> None:
    rights = Rights(
        "acl deny ann delete queue name=q",
        "acl deny-log ann purge queue",
        "acl allow-log ann consume queue",
        "acl allow-log ann publish exchange name=amq.default",
    )
    for action in (Action.DELETE, Action.PURGE, Action.CONSUME, Action.PUBLISH, Action.ACCESS):
        rights.may(ANN, action, ObjectType.QUEUE, "q")
    rights.may(BOB, Action.PUBLISH, ObjectType.EXCHANGE, "x", {"routingkey": "a" * 1000})
    rights.may(BOB, Action.CREATE, ObjectType.LINK)
    rights.may(BOB, Action.ACCESS, ObjectType.QUERY, "q", {"schemaclass": "queue"})
    assert rights.heard.lines == [
        "no: ann may not delete queue 'q' (line 1 of the.acl)",
        "no: ann may not purge queue 'q' (line 2 of the.acl) each",
        "yes: ann consume from queue 'q' (line 3 of the.acl)",
        "yes: ann publish to queue 'q' (line 4 of the.acl)",
        "no: ann may not access queue 'q' (no rule of the.acl)",
        f"no: bob@QPID may not publish to exchange 'x' with the key '{'a' * 255}' "
        "(no rule of the.acl)",
        "no: bob@QPID may not create link (no rule of the.acl)",
        "no: bob@QPID may not look at queue 'q' (no rule of the.acl)",
    ]


def test_an_argument_of_a_wrong_type_is_no_number() -> None:
    rights = Rights(
        "acl allow ann create queue queuemaxcountlowerlimit=1 queuemaxcountupperlimit=5"
    )
    for value, may in (
        *((5, True), (6, False), ("5", True), ("x", False), (-1, False), ({}, False), ("", False)),
        *(("0" * 19 + "5", False), ("9" * 5000, False), ("\u0665", True)),
    ):
        question = (Action.CREATE, ObjectType.QUEUE, "new", {"qpid.max_count": value})
        assert rights.may(ANN, *question) is may


# -- admission and quotas -------------------------------------------------------------------------


class Door(AHost):
    """A broker that looks at who comes in."""

    def __init__(self, *lines: str, per_address: int = 0) -> None:
        super().__init__(auth=True, ha_username="ann")
        acl = a_list(*lines)
        acl.per_address = per_address
        self.access.use(acl)
        self.number = 0

    def enter(self, principal: Principal, **claims: Any) -> str:
        self.number += 1
        connection = a_connection(principal, **claims)
        connection.connection_id = self.number
        try:
            admit(self, connection)
        except QpidHaError as error:
            return error.condition
        return ""


def test_connections_are_let_in_by_address() -> None:
    door = Door("acl deny ann create connection host=10.0.0.1,10.0.0.9", "acl allow all all")
    assert door.enter(ANN) == "amqp:unauthorized-access" and door.enter(BOB) == ""
    assert door.enter(ANN, admin=True) == "amqp:unauthorized-access"


def test_brokers_need_create_link_and_administrators_do_not() -> None:
    door = Door("acl allow bob create link")
    assert door.enter(ANN, backup={}) == "amqp:unauthorized-access"
    assert door.enter(ANN, admin=True) == ""
    door.access.use(a_list("acl allow ann create link"))
    assert door.enter(ANN, backup={}) == "amqp:not-allowed", "there is no cluster"


def test_rabbitmq_row_17_connections_are_counted_for_users_and_addresses() -> None:
    full = LimitExceeded.condition
    door = Door("quota connections 2 ann", "quota connections 1 all")
    assert [door.enter(ANN) for _ in range(3)] == ["", "", full]
    assert [door.enter(BOB) for _ in range(2)] == ["", full]
    assert door.enter(ANN, admin=True) == "", "only clients are counted"
    door.access.let_out(1)
    door.access.let_out(1)
    assert [door.enter(ANN) for _ in range(2)] == ["", full]

    door = Door(per_address=1)
    assert [door.enter(ANN), door.enter(ANN), door.enter(BOB)] == ["", full, ""]
    door.access.let_out(1)
    assert [door.enter(ANN), door.enter(ANN)] == ["", full]


def test_a_network_of_ipv6_is_one_address_for_quotas() -> None:
    door = Door(per_address=1)
    near, also_near, far = (
        Principal("ann", "PLAIN", f"[2001:db8:1{rest}]:4711") for rest in ("::1", "::2", ":1::1")
    )
    assert [bool(door.enter(who)) for who in (near, also_near, far)] == [False, True, False]


def test_who_was_there_before_a_quota_counts() -> None:
    door = Door()
    assert [door.enter(ANN) for _ in range(2)] == ["", ""]
    door.access.use(a_list("quota connections 2 all"))
    assert door.enter(ANN) == LimitExceeded.condition


def test_rabbitmq_row_17_queues_are_counted_for_users() -> None:
    rights = Rights("quota queues 2 ann", "acl allow all all")

    def create(who: Principal, name: str) -> bool:
        try:
            rights.access.check(who, Action.CREATE, ObjectType.QUEUE, name, {})
        except LimitExceeded as error:
            assert error.hint and "queues" in error.text
            return False
        rights.broker.declare_queue(name, durable=name == "q")
        return True

    assert [create(ANN, name) for name in ("a", "b", "b", "q", "c")] == [True] * 4 + [False]
    assert not create(BOB, "d"), "none for who is not named"
    assert rights.may(BOB, Action.CONSUME, ObjectType.QUEUE, "d"), "who has none may use others'"
    rights.broker.delete_queue("a")
    assert create(ANN, "c") and not create(ANN, "d")
    # Asked for and not made.
    rights.broker.delete_queue("c")
    rights.access.check(ANN, Action.CREATE, ObjectType.QUEUE, "e", {})
    assert create(ANN, "f") and not create(ANN, "g")
    # Made by somebody else meanwhile.
    rights.access.use(a_list("quota queues 2 all", "acl allow all all"))
    rights.broker.delete_queue("f")
    assert create(BOB, "f") and create(ANN, "h") and not create(ANN, "i") and create(BOB, "j")
    assert rights.heard.lines[-1].startswith(
        "no: ann may have 2 queues, and they are there already"
    )


@pytest.mark.parametrize("end", ["", "q" * 250])
def test_queues_for_what_is_put_aside_count_for_who_created_the_others(end: str) -> None:
    rights = Rights("quota queues 2 ann", "acl allow all all")
    for name in (f"a{end}", f"b{end}"):
        rights.access.check(ANN, Action.CREATE, ObjectType.QUEUE, name, {})
        rights.broker.declare_queue(name)
        rights.broker.declare_queue(str(quarantine_of(name).key))
        rights.broker.delete_queue(name)
    with pytest.raises(LimitExceeded):
        rights.access.check(ANN, Action.CREATE, ObjectType.QUEUE, "more", {})
    rights.broker.delete_queue(str(quarantine_of(name).key))
    rights.access.check(ANN, Action.CREATE, ObjectType.QUEUE, "more", {})


def test_a_question_about_a_quota_walks_through_nothing() -> None:
    most = 50
    rights = Rights(f"quota queues {most} all", "acl allow all all")
    looks = 0

    class Counted(dict[str, Any]):
        def __contains__(self, name: object) -> bool:
            nonlocal looks
            looks += 1
            return super().__contains__(name)

    def create(who: Principal, name: str) -> None:
        rights.access.check(who, Action.CREATE, ObjectType.QUEUE, name, {})

    for number in range(most):
        create(ANN, f"q{number}")
        rights.broker.declare_queue(f"q{number}")
    rights.broker.queues = Counted(rights.broker.queues)
    for _ in range(3):
        with pytest.raises(LimitExceeded):
            create(ANN, "more")
    assert looks == 3


def test_a_queue_that_was_asked_for_in_vain_is_not_counted_when_somebody_else_makes_it() -> None:
    rights = Rights("quota queues 1 ann", "quota queues 2 bob", "acl allow all all")

    def ask(who: Principal, name: str, *, then: bool) -> None:
        rights.access.check(who, Action.CREATE, ObjectType.QUEUE, name, {})
        if then:
            rights.broker.declare_queue(name)

    ask(ANN, "a", then=False)
    ask(LOCAL, "a", then=True)
    ask(ANN, "b", then=False)
    ask(BOB, "b", then=True)
    ask(ANN, "c", then=False)
    rights.broker.declare_queue("of nobody here")
    ask(ANN, "c", then=True)
    with pytest.raises(LimitExceeded):
        ask(ANN, "d", then=False)
    rights.broker.delete_queue("b")
    rights.broker.reset()
    ask(ANN, "d", then=True)


# -- alternate exchanges --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [ObjectType.QUEUE, ObjectType.EXCHANGE])
def test_who_names_an_alternate_exchange_may_publish_to_it(kind: ObjectType) -> None:
    rules = ("acl allow-log ann publish exchange name=x", f"acl allow all create {kind}")
    rights = Rights(*rules)
    question = (Action.CREATE, kind, "new", {"alternate-exchange": "x"})
    assert rights.may(ANN, *question)
    assert not rights.may(BOB, *question)
    assert rights.may(BOB, Action.CREATE, kind, "new", {"alternate-exchange": ""})
    assert rights.may(LOCAL, *question)
    assert rights.heard.lines == [
        f"yes: ann create {kind} 'new' with the alternate exchange 'x' (line 1 of the.acl)",
        f"no: bob@QPID may not create {kind} 'new' with the alternate exchange 'x' "
        "(no rule of the.acl)",
    ]
    rights.access.use(a_list("acl allow ann publish exchange name=x routingkey=a.#", rules[1]))
    with pytest.raises(Unauthorized) as refusal:
        rights.access.check(ANN, *question)
    assert refusal.value.reason == (
        "messages would go there, and ann may not publish to it with any key"
    )
    rights.access.use(a_list("acl allow ann publish exchange name=x"))
    assert not rights.may(ANN, *question), "and may create it"


def test_who_binds_an_exchange_to_another_one_may_publish_to_it() -> None:
    node, replies = FakeNode(), list[Any]()
    acl = ("acl allow ann publish exchange name=amq.fanout", "acl allow all bind exchange")
    node.access.use(a_list(*acl, "acl allow all access method"))
    asked = {"exchange": "amq.topic", "destination_exchange": "amq.fanout", "key": "#"}
    for who in (BOB, ANN):
        Requests(node).call("bind", asked, replies.append, principal=who)
    assert replies[0].error is not None and replies[0].error.text == (
        "bob@QPID may not bind to exchange 'amq.topic' the exchange 'amq.fanout'"
    )
    assert node.broker.exchanges["amq.topic"].binding_count == 1


@pytest.mark.parametrize("method", ["declare_queue", "declare_exchange"])
@pytest.mark.parametrize("spelled", ["alternate", "arguments"])
def test_an_alternate_exchange_is_asked_about_however_it_is_spelled(
    method: str, spelled: str
) -> None:
    node = FakeNode()
    node.access.use(a_list("acl allow guest create", "acl allow guest access method"))
    asker = Asker(node)
    named = {"alternate": "amq.topic", "arguments": {"alternate-exchange": "amq.topic"}}
    asker.call(method, {"name": "new", spelled: named[spelled]}, FakeConnection(1))
    node.commit_all()
    assert asker.answers[0].error is not None
    assert asker.answers[0].error.condition == "amqp:unauthorized-access"
    assert "new" not in node.broker.queues and "new" not in node.broker.exchanges


def test_row_103_who_has_dead_letters_may_publish_where_they_go() -> None:
    rights = Rights(
        "acl allow ann publish exchange name=x routingkey=a",
        "acl allow ann publish exchange name=amq.default routingkey=dead",
        "acl allow all create queue",
    )

    def may(**arguments: object) -> bool:
        given = {f"x-dead-letter-{name}": value for name, value in arguments.items()}
        given = {name.replace("_", "-"): value for name, value in given.items()}
        return rights.may(ANN, Action.CREATE, ObjectType.QUEUE, "new", given)

    assert may(exchange="x", routing_key="a") and may(exchange="/exchanges/x/a")
    assert may(exchange="/queues/dead") and may(exchange="", routing_key="dead")
    assert not may(exchange="x") and not may(exchange="x", routing_key="b")
    assert not may(exchange="/queues/other") and not may(exchange="")


# -- management -----------------------------------------------------------------------------------


def test_every_method_asks_about_itself_or_is_a_query() -> None:
    questions = {each.name: each.access for each in METHODS}
    assert questions["declare_queue"] == "create queue, access method name=create"
    assert questions["status"] == "access query schemaclass=habroker"
    asked = ("access query", "access method", "acl", "membership")
    assert [name for name, access in questions.items() if not any(a in access for a in asked)] == []


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        (("access method name=create", "create queue name=new"), True),
        (("create queue name=new",), False),
        (("access method name=create",), False),
        (("access method name=create schemaclass=broker", "create queue"), True),
        (("access method name=create schemaclass=habroker", "create queue"), False),
    ],
)
def test_a_change_needs_the_right_to_the_method_and_to_the_change(
    rules: tuple[str, ...], allowed: bool
) -> None:
    node = FakeNode()
    node.access.use(a_list(*(f"acl allow guest {rule}" for rule in rules)))
    asker = Asker(node)
    asker.call("declare_queue", {"name": "new"}, FakeConnection(1))
    node.commit_all()
    assert (asker.answers[0].error is None) is allowed
    assert ("new" in node.broker.queues) is allowed


def test_who_creates_what_exists_already_needs_access_to_it() -> None:
    """As who attaches to it does: he is told of it, and an exclusive queue may become his."""
    node, owner = FakeNode(), FakeConnection(1)
    node.broker.declare_queue("q")
    node.broker.declare_queue("own", exclusive=True)
    node.broker.declare_exchange("x")
    asked = {
        "q": ("declare_queue", {"name": "q"}),
        "own": ("declare_queue", {"name": "own", "exclusive": True}),
        "x": ("declare_exchange", {"name": "x"}),
    }
    for further, allowed in (
        ([], ""),
        (["access queue name=q", "access exchange"], "q x"),
        (["access queue"], "q"),
        (["access queue", "consume queue name=own"], "q own"),
        (["access queue", "access exchange"], "q own x"),  # which is his by now
    ):
        rules = ["access method", "create all", *further]
        node.access.use(a_list(*(f"acl allow guest {rule}" for rule in rules)))
        for name, question in asked.items():
            asker = Asker(node)
            asker.call(*question, owner)
            node.commit_all()
            error = asker.answers[0].error
            assert (error is None) is (name in allowed.split()), (name, further)
            assert error is None or error.condition == "amqp:unauthorized-access"
        assert node.broker.queues["own"].owner is (owner if "own" in allowed else None)


def test_who_sends_dead_letters_back_needs_the_right_to_publish_where_they_died() -> None:
    node = FakeNode()
    node.broker.declare_queue("dead")
    for name in ("one", "two"):
        given = {"x-dead-letter-exchange": "/queues/dead"}
        queue, _ = node.broker.declare_queue(name, arguments=given)
        queue.enqueue(b"\x00\x53\x77\xa1\x01x")
        queue.reject(next(iter(queue.messages.values())))
    rules = ("access method", "consume queue", "publish exchange name=amq.default routingkey=two")
    node.access.use(a_list(*(f"acl allow guest {rule}" for rule in rules)))
    asker = Asker(node)
    asker.call("requeue_messages", {"name": "dead"}, FakeConnection(1))
    asker.call("requeue_messages", {"name": "dead", "origin": "one"}, FakeConnection(1))
    node.commit_all()
    denied, done = asker.answers  # The one that waits for nothing is answered first.
    assert done.result["messages"] == 1 and "publish" in done.result["stopped"]
    assert denied.error is not None and denied.error.condition == "amqp:unauthorized-access"
    assert [len(node.broker.queues[name].messages) for name in ("dead", "one", "two")] == [1, 0, 1]


def test_commands_need_the_role_and_the_method() -> None:
    asker = Asker(FakeNode())
    asker.target.access.use(a_list("acl allow guest access method name=promote"))
    asker.call("promote", {}, FakeConnection(1))
    asker.call("demote", {}, FakeConnection(1, is_admin=True))
    assert [reply.error.condition for reply in asker.answers if reply.error is not None] == [
        "amqp:unauthorized-access"
    ] * 2
    asker.call("promote", {}, FakeConnection(1, is_admin=True))
    assert asker.answers[-1].error is None and asker.target.promoted == 1


def test_reads_are_queries_of_a_class() -> None:
    asker = Asker(FakeNode())
    asker.target.access.use(a_list("acl allow guest access query schemaclass=queue name=a*"))
    for name, allowed in (("a1", True), ("b1", False), ("", False)):
        asker.call("list_queues", {"name": name}, FakeConnection(1))
        assert (asker.answers[-1].error is None) is allowed
    asker.call("status", {}, FakeConnection(1))
    assert asker.answers[-1].error is not None


# -- the node -------------------------------------------------------------------------------------


def test_qpid_4_a_broker_shows_its_list_and_writes_what_it_denies() -> None:
    node = a_node()
    assert node.access_list() == {"file": ""}
    node.access.use(a_list("acl deny ann delete queue", "acl allow-log all all"))
    assert node.access_list()["file"] == "the.acl"
    node.start(SECOND)
    with pytest.raises(Unauthorized):
        node.access.check(ANN, *DELETE_Q)
    node.access.check(BOB, *DELETE_Q)
    lines = [effect for effect in node.step([], SECOND) if isinstance(effect, Announce)]
    assert [(line.level, line.category, line.text, line.fields) for line in lines] == [
        (
            "notice",
            "security",
            "denied ann at 10.0.0.1:4711: ann may not delete queue 'q' (line 1 of the.acl)",
            {"user": "ann", "address": ANN.address, "rule": "line 1 of the.acl"},
        ),
        (
            "info",
            "security",
            "allowed bob@QPID at 10.0.0.2:4711: delete queue 'q' (line 2 of the.acl)",
            {"user": "bob@QPID", "address": BOB.address, "rule": "line 2 of the.acl"},
        ),
    ]
