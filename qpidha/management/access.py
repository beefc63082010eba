"""Access control: whether a principal may do something.

One question, `Access.check`, is asked at admission (for the connection, and for a role), at attach
(access, consume, publish, create, bind, access to a service), for each message on an anonymous
link or to an exchange by its own key (publish), and for each management method, in every window.
The rules:

- A role is given to the user of `ha-username`. Where nobody has to log in, it is also given by
  address: to who is on this machine, or at an address of `ha-brokers-url`; but a broker that takes
  local programs without a login while `auth=yes` has its administrators on its admin socket.
- The replication service is for brokers. The streams of single queues are for the user of
  `ha-username` as well, and for whom the access control list lets `access method name=replicate`;
  and each of them must be allowed to consume from that queue.
- Commands to the broker itself (update broker) are for administrators, and so are the policies of
  operators and a look at the access control list.
- The record of the in-sync set (membership) is for the cluster manager, which speaks over the admin
  socket.
- Who has logged in sends messages in no other name: their user-id is empty, the name, or the name
  with the realm. Who has a role, and the user of `ha-username`, may send those of others, as tools
  that copy messages do.
- Who makes a queue or exchange with an alternate exchange may publish to that with any key: the
  broker does so with what he rejects. So it is with dead letters, but with their key if they have
  one.
- What else there is to ask is decided by the access control list (acl.py), and without one every
  admitted principal may do it. Whoever uses the admin socket may do all of it.

Access control does not decide whether a broker serves clients at this moment, nor which connection
holds an exclusive queue. Knows no connections.
Source: Qpid qpid/acl/AclModule.h for actions and object types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn, Protocol

from qpidha.broker.declaration import properties_of
from qpidha.broker.queues.dead_letters import read_dead_letters
from qpidha.broker.state import State
from qpidha.broker.vocabulary import ALTERNATE
from qpidha.ha.channels import QUEUE_STREAMS, REPLICATION
from qpidha.management.acl import CONNECTIONS, QUEUES, AccessList, Decision, Verdict, told_of
from qpidha.management.quotas import Quotas
from qpidha.model.errors import LimitExceeded, QpidHaError, Unauthorized
from qpidha.model.event_codes import QUOTA_REACHED
from qpidha.model.ip import host_of, neighbourhood
from qpidha.model.principal import ANONYMOUS, Action, ObjectType, Principal, Role, without_realm
from qpidha.model.settings import Settings

CLAIMS = {Role.BROKER: "qpid.ha-backup", Role.ADMINISTRATOR: "qpid.ha-admin"}
"""Role -> the connection property that claims it."""
ON_THE_SPOT = {
    Role.BROKER: "list the broker in ha-brokers-url by the address it comes from, or let brokers "
    "log in: users-file, ha-username and ha-password",
    Role.ADMINISTRATOR: "ask on a machine of the cluster, or let administrators log in: users-file "
    "and ha-username",
}
"""What to do where a role is given by address, and this is none of the addresses."""
QUEUE, EXCHANGE = ObjectType.QUEUE, ObjectType.EXCHANGE
CREATE, PUBLISH, ALLOW = Action.CREATE, Action.PUBLISH, Decision.ALLOW
"""Named here because a look into an enumeration for each message costs more than the question."""
NAME = 255
"""Characters of a name that are told."""
LISTED = (
    ObjectType.CONNECTION,
    ObjectType.LINK,
    ObjectType.METHOD,
    ObjectType.POLICY,
    ObjectType.QUERY,
)
"""What the access control list alone decides about, beside queues and exchanges."""
TELLING = (CREATE, Action.BIND, Action.UNBIND)
"""Questions about queues and exchanges that tell themselves what is done."""
ONWARD = "destinationexchange"
"""What a question about a binding says of the exchange that it leads to, if it leads to one."""
VERBS = {Action.BIND: "bind to", Action.CONSUME: "consume from", Action.PUBLISH: "publish to"}
REPLICATE_METHOD = "replicate"
"""What an access control list calls it to have a replica of a queue."""
ASK = "ask who keeps the broker's acl-file"
QUOTA_HINT = f"close or delete some, or {ASK}"
"""What to do about a quota."""


class Ears(Protocol):
    """Who is told of decisions."""

    def denied(
        self,
        principal: Principal,
        object_type: ObjectType,
        error: QpidHaError,
        *,
        source: str = "",
        is_each: bool = False,
    ) -> None:
        """Hear a no, and which line of which file says so; with `is_each` each is to be told."""

    def allowed(self, principal: Principal, text: str, *, source: str) -> None:
        """Hear a yes that is to be told."""

    def done(
        self,
        principal: Principal,
        action: Action,
        object_type: ObjectType,
        name: str,
        properties: Mapping[str, object],
    ) -> None:
        """Hear what was done."""

    def asked(self, principal: Principal, method: str, values: Mapping[str, object]) -> None:
        """Hear what the broker is to do."""


class Access:
    """The rules of one broker."""

    __slots__ = ("_broker", "_ears", "_quotas", "_settings", "acl", "each_message")

    def __init__(
        self, settings: Settings, ears: Ears | None = None, broker: State | None = None
    ) -> None:
        """`broker` has the queues and exchanges that rules may say something of."""
        self._settings = settings
        self._ears = ears
        self._broker = broker
        self._quotas = Quotas()
        if broker is not None:
            broker.queue_watcher = self._quotas
        self.acl: AccessList | None = None
        self.each_message = False

    def use(self, acl: AccessList | None) -> None:
        """Decide by this list from now on."""
        self.acl = acl
        self.each_message = acl is not None

    def check(
        self,
        principal: Principal,
        action: Action,
        object_type: ObjectType,
        name: str = "",
        properties: Mapping[str, object] | None = None,
    ) -> None:
        """Raise Unauthorized unless `principal` may do this to the object of that name, and
        LimitExceeded if he has as many already as he may. To publish to an exchange without a
        `routingkey` is to publish with any key.
        """
        # Asked for each message of an anonymous link, so queues and exchanges come first.
        if object_type is QUEUE or object_type is EXCHANGE or object_type in LISTED:
            if self.acl is not None:
                self._ask(self.acl, principal, action, object_type, name, properties or {})
                return
            if object_type is not ObjectType.LINK or not name:
                return
        if object_type is ObjectType.ROUTE and self.acl is not None:
            self._ask(self.acl, principal, action, ObjectType.LINK, name, properties or {})
            return
        try:
            self._check(principal, action, object_type, name)
        except Unauthorized as error:
            self._deny(principal, object_type, error)
            raise

    def done(
        self,
        principal: Principal,
        action: Action,
        object_type: ObjectType,
        name: str,
        properties: Mapping[str, object] | None = None,
    ) -> None:
        """Tell that `principal` has done this to the object of that name."""
        if self._ears is not None:
            self._ears.done(principal, action, object_type, name, properties or {})

    def asked(self, principal: Principal, method: str, values: Mapping[str, object]) -> None:
        """Tell that `principal` may have the broker do this, and has it done now."""
        if self._ears is not None:
            self._ears.asked(principal, method, values)

    def user_ids(self, principal: Principal, *, is_link: bool = False) -> frozenset[bytes] | None:
        """Return what messages of `principal` may have in their user-id; None if anything. A link
        of another broker that the list allows passes on what others have sent there.
        """
        if is_link and self.acl is not None:
            told = told_of(CREATE, ObjectType.LINK, "", {})
            verdict = self.acl.decide(principal.name, CREATE, ObjectType.LINK, told)
            if verdict.decision.allows:
                return None
        is_known = self._settings.auth and principal.name not in ("", ANONYMOUS)
        if not is_known or principal.roles or self._is_of_brokers(principal):
            return None
        realm, name = self._settings.realm, self._bare(principal.name)
        names = ("", principal.name, name, f"{name}@{realm}" if realm else name)
        return frozenset(each.encode() for each in names)

    def forged(self, principal: Principal, user_id: object) -> Unauthorized:
        """Tell of a message with another user-id; return what it is refused with."""
        named = type(user_id).__name__
        if isinstance(user_id, bytes):
            named = user_id.decode(errors="replace")[:NAME]
        error = Unauthorized(
            f"{principal} may not send messages with the user-id {named!r}",
            hint=f"leave it out, or set it to {principal}; the user of ha-username may send any",
        )
        self._deny(principal, QUEUE, error)
        return error

    def let_in(self, number: int, principal: Principal) -> None:
        """Count the connection of a client. Raises LimitExceeded if there may be no other."""
        place, acl, quotas = neighbourhood(principal.address), self.acl, self._quotas
        user = self._bare(str(principal))
        if acl is not None:
            most = acl.quota(CONNECTIONS, principal.name)
            if most is not None and quotas.connections_of(user) >= most:
                self._limit(principal, ObjectType.CONNECTION, f"{user} may have {most} connections")
            if acl.per_address and quotas.connections_from(place) >= acl.per_address:
                text = f"there may be {acl.per_address} connections from {place}"
                self._limit(principal, ObjectType.CONNECTION, text)
        quotas.connected(number, user, place)

    def let_out(self, number: int) -> None:
        """Count a connection no more."""
        self._quotas.disconnected(number)

    def _ask(
        self,
        acl: AccessList,
        principal: Principal,
        action: Action,
        object_type: ObjectType,
        name: str,
        properties: Mapping[str, object],
    ) -> None:
        """Let the list decide; who is on the broker's own machine is not its business."""
        if action is CREATE:
            self._quotas.may_create("", "")  # Whoever asked last has not created it.
        if principal.roles and Role.MANAGER in principal.roles:
            return
        who = principal.name
        if action is PUBLISH:
            key = properties.get("routingkey")
            if object_type is QUEUE:
                verdict = acl.publish(who, "", name)
            elif key is None:
                verdict = acl.publish_any(who, name)
            else:
                verdict = acl.publish(who, name, str(key))
        elif object_type is ObjectType.CONNECTION:
            verdict = acl.connection(who, host_of(principal.address))
        else:
            if (object_type is QUEUE or object_type is EXCHANGE) and action not in TELLING:
                properties = self._options(object_type, name)
            told = told_of(action, object_type, name, properties)
            verdict = acl.decide(who, action, object_type, told)
        if verdict.decision is not ALLOW:
            text = _deed(action, object_type, name, properties)
            self._heed(acl, verdict, principal, object_type, text)
        if action is CREATE:
            alternate = properties.get(ALTERNATE)
            if alternate:
                text = f"create {object_type} {name[:NAME]!r} with the alternate exchange"
                self._check_onward(acl, principal, object_type, text, str(alternate))
            if object_type is QUEUE or object_type is ObjectType.POLICY:
                self._check_dead_letters(acl, principal, object_type, name, properties)
            if object_type is QUEUE:
                self._check_queues(acl, principal, name)
        elif action is Action.BIND and properties.get(ONWARD):
            text = f"bind to exchange {name[:NAME]!r} the exchange"
            self._check_onward(acl, principal, object_type, text, str(properties[ONWARD]))

    def _heed(
        self,
        acl: AccessList,
        verdict: Verdict,
        principal: Principal,
        object_type: ObjectType,
        text: str,
        reason: str = "",
    ) -> None:
        """Raise Unauthorized unless the verdict is a yes; tell of one that is to be told."""
        decision, source = verdict.decision, acl.source(verdict)
        if not decision.allows:
            error = Unauthorized(f"{principal} may not {text}", reason=reason, hint=ASK)
            self._deny(principal, object_type, error, source, is_each=decision.is_logged)
            raise error
        if self._ears is not None:
            self._ears.allowed(principal, text, source=source)

    def _check_onward(
        self,
        acl: AccessList,
        principal: Principal,
        object_type: ObjectType,
        text: str,
        exchange: str,
    ) -> None:
        """Refuse to have messages go on to an exchange to who may not publish to it whatever the
        key: he could have the broker do that, with messages that he sends, or sends and rejects.
        """
        verdict = acl.publish_any(principal.name, exchange)
        if verdict.decision is not ALLOW:
            reason = f"messages would go there, and {principal} may not publish to it with any key"
            self._heed(acl, verdict, principal, object_type, f"{text} {exchange[:NAME]!r}", reason)

    def _check_dead_letters(
        self,
        acl: AccessList,
        principal: Principal,
        object_type: ObjectType,
        name: str,
        properties: Mapping[str, object],
    ) -> None:
        """Refuse dead letters to who may not publish where they go, for the same reason."""
        target = read_dead_letters(properties)
        if target is None:
            return
        if target.key is None:
            verdict = acl.publish_any(principal.name, target.exchange)
        else:
            verdict = acl.publish(principal.name, target.exchange, target.key)
        if verdict.decision is not ALLOW:
            where = target.exchange or f"/queues/{target.key or ''}"
            text = f"create {object_type} {name[:NAME]!r} with the dead letters to {where[:NAME]!r}"
            reason = f"messages would go there, and {principal} may not publish to it"
            self._heed(acl, verdict, principal, object_type, text, reason)

    def _options(self, object_type: ObjectType, name: str) -> Mapping[str, object]:
        """Return what there is to say of a queue or exchange that exists."""
        broker = self._broker
        if broker is None:
            return {}
        if object_type is QUEUE:
            queue = broker.queues.get(name)
            return {} if queue is None else properties_of(queue.options)
        exchange = broker.exchanges.get(name)
        return {} if exchange is None else properties_of(exchange.options)

    def _check_queues(self, acl: AccessList, principal: Principal, name: str) -> None:
        """Refuse a new queue to a user who has as many as he may."""
        most = acl.quota(QUEUES, principal.name)
        if most is None or self._broker is None or name in self._broker.queues:
            return
        user = acl.bare(principal.name)
        if self._quotas.queues_of(user) >= most:
            self._limit(principal, QUEUE, f"{user} may have {most} queues")
        self._quotas.may_create(user, name)

    def _limit(self, principal: Principal, object_type: ObjectType, text: str) -> NoReturn:
        error = LimitExceeded(
            f"{text}, and they are there already", hint=QUOTA_HINT, event_code=QUOTA_REACHED
        )
        self._deny(principal, object_type, error)
        raise error

    def _deny(
        self,
        principal: Principal,
        object_type: ObjectType,
        error: QpidHaError,
        source: str = "",
        *,
        is_each: bool = False,
    ) -> None:
        if self._ears is not None:
            self._ears.denied(principal, object_type, error, source=source, is_each=is_each)

    def _check(
        self, principal: Principal, action: Action, object_type: ObjectType, name: str
    ) -> None:
        if object_type is ObjectType.ROLE:
            self._check_role(principal, name)
        elif object_type is ObjectType.SERVICE:
            if name == QUEUE_STREAMS:
                self._check_streams(principal)
            if name == REPLICATION and not principal.is_broker:
                raise Unauthorized(
                    f"{name} is for brokers",
                    hint=f"a broker says so with the connection property {CLAIMS[Role.BROKER]}",
                )
        elif object_type is ObjectType.MEMBERSHIP:
            if Role.MANAGER not in principal.roles:
                raise Unauthorized(
                    f"{name} is for the cluster manager",
                    hint="it speaks to the broker over the admin socket",
                )
        elif object_type in (ObjectType.LINK, ObjectType.ROUTE):
            if not principal.is_administrator:
                raise Unauthorized(
                    f"{principal} may not {action} {object_type} {name[:NAME]!r}",
                    reason="without an acl-file links to other brokers are for administrators",
                    hint="log in as one, or allow it in an acl-file: create link",
                )
        elif object_type is ObjectType.OPERATOR_POLICY:
            if not principal.is_administrator:
                raise Unauthorized(
                    f"{principal} may not {action} {object_type} {name[:NAME]!r}",
                    reason="operator policies are for administrators",
                    hint="log in as one, or set a policy",
                )
        elif object_type is ObjectType.ACL or (
            object_type is ObjectType.BROKER and action is Action.UPDATE
        ):
            if not principal.is_administrator:
                raise Unauthorized(
                    f"{name} is for administrators",
                    hint=f"open the connection with the property {CLAIMS[Role.ADMINISTRATOR]}, "
                    "as qpid-ha does",
                )

    def _check_streams(self, principal: Principal) -> None:
        """Refuse the streams of queues to who is no broker, unless the list says otherwise."""
        settings = self._settings
        if self._is_of_brokers(principal) or (settings.anonymous and principal.trusted_host):
            return
        if self.acl is not None:
            self._ask(self.acl, principal, Action.ACCESS, ObjectType.METHOD, REPLICATE_METHOD, {})
            return
        raise Unauthorized(
            f"{principal} may not have replicas of queues",
            reason="they are for the user of ha-username",
            hint="give both brokers the same ha-username and ha-password, of a user that the "
            "source knows",
        )

    def _is_of_brokers(self, principal: Principal) -> bool:
        """Whether it has logged in as the user of `ha-username`."""
        wanted = self._bare(self._settings.ha_username)
        return wanted not in ("", ANONYMOUS) and self._bare(principal.name) == wanted

    def _bare(self, name: str) -> str:
        """Return a name without the realm."""
        return without_realm(name, self._settings.realm)

    def _check_role(self, principal: Principal, name: str) -> None:
        settings, role = self._settings, Role(name)
        if self._is_of_brokers(principal):
            return
        reason, hint = "", "log in as the user that ha-username names"
        if settings.anonymous:
            if not principal.trusted_host:
                reason = f"{principal.address} is not on the broker's machine nor in ha-brokers-url"
                hint = ON_THE_SPOT[role]
            elif settings.auth and role is Role.ADMINISTRATOR:
                reason, hint = "this broker has no users", "use its admin socket"
            else:
                return
        who = "a broker" if role is Role.BROKER else "an administrator"
        raise Unauthorized(
            f"{principal} may not connect as {who} ({CLAIMS[role]})", reason=reason, hint=hint
        )


def _deed(
    action: Action, object_type: ObjectType, name: str, properties: Mapping[str, object]
) -> str:
    """Say what is done, as it goes on behind `may not`."""
    if object_type is ObjectType.CONNECTION:
        return "connect from there"
    if object_type is ObjectType.QUERY:
        return f"look at {properties.get('schemaclass', '')}" + f" {name[:NAME]!r}" * bool(name)
    text = f"{VERBS.get(action, action)} {object_type} {name[:NAME]!r}" if name else ""
    if "routingkey" in properties and action is Action.PUBLISH:
        text += f" with the key {str(properties['routingkey'])[:NAME]!r}"
    return text or f"{action} {object_type}"
