"""The principal: the identity of a connection, and the terms of access control.

A `Principal` is made when a connection begins, completed by the login (name, mechanism) and by
admission (roles), and never changed in place: each step replaces it. Every room asks one question,
`AccessControl.check`; the rules are in management/access.py. Actions and object types are those of
Qpid's ACL files (qpid/acl/AclModule.h), with `role`, `service`, `membership`, `acl` and policies
added.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from qpidha.model.errors import Unauthorized

ANONYMOUS = "anonymous"
"""The name of a principal that did not log in."""


def without_realm(name: str, realm: str) -> str:
    """Return a user's name without the realm: with and without it he is the same."""
    return name.removesuffix(f"@{realm}") if realm else name


class Role(StrEnum):
    """A role: it makes a principal more than an ordinary client."""

    ADMINISTRATOR = "administrator"  # a tool that looks at brokers and commands them
    BROKER = "broker"  # another broker of the cluster
    MANAGER = "manager"  # on the broker's own machine, by the admin socket


class Action(StrEnum):
    """An action that access control is asked about."""

    ACCESS = "access"
    CONSUME = "consume"
    PUBLISH = "publish"
    CREATE = "create"
    DELETE = "delete"
    PURGE = "purge"
    BIND = "bind"
    UNBIND = "unbind"
    UPDATE = "update"


class ObjectType(StrEnum):
    """The kind of object that an action is done to."""

    BROKER = "broker"
    QUEUE = "queue"
    EXCHANGE = "exchange"
    CONNECTION = "connection"
    LINK = "link"  # of another broker, or with a name one to another broker
    ROUTE = "route"  # over such a link
    METHOD = "method"  # of management, by its name in Qpid
    QUERY = "query"  # of the objects of a class, or of one
    POLICY = "policy"  # of users
    OPERATOR_POLICY = "operator-policy"
    ACL = "acl"  # the access control list itself
    ROLE = "role"  # named by the role that is claimed
    SERVICE = "service"  # an address that is neither queue nor exchange
    MEMBERSHIP = "membership"  # what the manager's store keeps of the in-sync set


@dataclass(frozen=True, slots=True)
class Principal:
    """The identity of a connection."""

    name: str = ""
    """The user that logged in; empty before the login."""
    mechanism: str = ""
    """The SASL mechanism of the login."""
    address: str = ""
    """The address of the other end; for the admin socket the process."""
    encrypted: bool = False
    """Whether the connection runs over TLS."""
    roles: frozenset[Role] = frozenset()
    trusted_host: bool = False
    """Whether it is on this machine, or at the address of a broker of ha-brokers-url."""

    def __str__(self) -> str:
        return self.name or ANONYMOUS

    @property
    def is_administrator(self) -> bool:
        """Whether it may look at a broker in any state, and command it."""
        return bool(self.roles) and Role.ADMINISTRATOR in self.roles

    @property
    def is_broker(self) -> bool:
        """Whether it is another broker of the cluster."""
        return bool(self.roles) and Role.BROKER in self.roles  # asked for each output

    @property
    def is_ordinary(self) -> bool:
        """Whether it is a client that has no role."""
        return not self.roles

    def logged_in(self, name: str, mechanism: str) -> Principal:
        """Return it with the result of a login."""
        return replace(self, name=name, mechanism=mechanism)

    def with_role(self, role: Role) -> Principal:
        """Return it with one more role."""
        return replace(self, roles=self.roles | {role})


class AccessControl(Protocol):
    """Decides what principals may do."""

    each_message: bool
    """Whether a sender to an exchange, whose messages have keys of their own, is to be asked about
    for each of them.
    """

    def check(
        self,
        principal: Principal,
        action: Action,
        object_type: ObjectType,
        name: str = "",
        properties: Mapping[str, object] | None = None,
    ) -> None:
        """Raise Unauthorized unless `principal` may do this to the object of that name."""

    def done(
        self,
        principal: Principal,
        action: Action,
        object_type: ObjectType,
        name: str,
        properties: Mapping[str, object] | None = None,
    ) -> None:
        """Hear that `principal` has done this to the object of that name."""

    def asked(self, principal: Principal, method: str, values: Mapping[str, object]) -> None:
        """Hear that `principal` has the broker do this."""

    def user_ids(self, principal: Principal, *, is_link: bool = False) -> frozenset[bytes] | None:
        """Return what messages of `principal`, or of a link of another broker that has logged in
        so, may have in their user-id; None if anything.
        """

    def forged(self, principal: Principal, user_id: object) -> Unauthorized:
        """Hear of a message with another user-id; return what it is refused with."""
