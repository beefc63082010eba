"""Access control: whether a principal may do something.

One question, `Access.check`, is asked at admission (for a role), at attach (consume, publish,
create, bind, access to a service), for each message on an anonymous link (publish), and for each
management method, in every window. The rules:

- A role is given to the user of `ha-username`; with `auth=no`, to every principal.
- The replication service is for brokers.
- Commands to the broker itself (update broker) are for administrators.
- The record of the in-sync set (membership) is for the cluster manager, which speaks over the admin
  socket.
- Every admitted principal may do everything else.

No rule looks at `properties` so far. Access control does not decide whether a broker serves clients
at this moment, nor which connection holds an exclusive queue. Knows no connections.
Source: Qpid qpid/acl/AclModule.h for actions and object types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from qpidha.ha.channels import REPLICATION
from qpidha.model.errors import Unauthorized
from qpidha.model.principal import Action, ObjectType, Principal, Role
from qpidha.model.settings import Settings

CLAIMS = {Role.BROKER: "qpid.ha-backup", Role.ADMINISTRATOR: "qpid.ha-admin"}
"""Role -> the connection property that claims it."""
QUEUE, EXCHANGE = ObjectType.QUEUE, ObjectType.EXCHANGE


class Access:
    """The rules of one broker."""

    __slots__ = ("_on_denied", "_settings")

    def __init__(
        self,
        settings: Settings,
        on_denied: Callable[[Principal, ObjectType, Unauthorized], None] = lambda *ignored: None,
    ) -> None:
        """`on_denied` is told of everything that is refused."""
        self._settings = settings
        self._on_denied = on_denied

    def check(
        self,
        principal: Principal,
        action: Action,
        object_type: ObjectType,
        name: str = "",
        properties: Mapping[str, object] | None = None,
    ) -> None:
        """Raise Unauthorized unless `principal` may do this to the object of that name."""
        if object_type is QUEUE or object_type is EXCHANGE:
            return  # asked for each message of an anonymous link, so it comes first
        try:
            self._check(principal, action, object_type, name)
        except Unauthorized as error:
            self._on_denied(principal, object_type, error)
            raise

    def _check(
        self, principal: Principal, action: Action, object_type: ObjectType, name: str
    ) -> None:
        if object_type is ObjectType.ROLE:
            self._check_role(principal, name)
        elif object_type is ObjectType.SERVICE:
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
        elif object_type is ObjectType.BROKER and action is Action.UPDATE:
            if not principal.is_administrator:
                raise Unauthorized(
                    f"{name} is for administrators",
                    hint=f"open the connection with the property {CLAIMS[Role.ADMINISTRATOR]}, "
                    "as qpid-ha does",
                )

    def _check_role(self, principal: Principal, role: str) -> None:
        settings = self._settings
        realm = f"@{settings.realm}"
        wanted = settings.ha_username.removesuffix(realm)
        is_his = bool(wanted) and principal.name.removesuffix(realm) == wanted
        if settings.auth and not is_his:
            raise Unauthorized(
                f"{principal} may not use {CLAIMS[Role(role)]}",
                hint="log in as the user that ha-username names",
            )
