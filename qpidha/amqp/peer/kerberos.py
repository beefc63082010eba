"""Kerberos: what both sides of the SASL mechanism GSSAPI say to each other.

A side makes one step for each token that it gets; all of Kerberos is done by the package gssapi and
the library of the system that it calls. A step may read a keytab, and the first one of who logs in
asks the key distribution centre and the name service: so steps are made in threads. A step raises
nothing; what is wrong is in it. No security layer is offered and none is taken: TLS is there for
that. Must not know SASL's frames. Source: RFC 4752, RFC 4121.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

SERVICE = "amqp"
"""The usual name of the service, as in `amqp/host@REALM`."""
LONGEST_TOKEN = 48_000
"""Bytes of a token: tickets of Active Directory name groups, and it makes none that are longer."""
MOST_STEPS = 10
"""Kerberos needs three of each side."""
NO_LAYER = 1
"""The bit of the security layer that is none."""
NOBODY = "WELLKNOWN/ANONYMOUS@"
"""How the name of a ticket begins that is for whoever asks."""
INSTALL = "pip install 'qpidha[kerberos]', which needs libkrb5-dev to be built"
_CONTEXT, _OFFER, _ANSWER = range(3)
"""What a side is at: the tokens of Kerberos, the offer of security layers, the choice."""


class Step(NamedTuple):
    """What comes of a step: a token to send, who the other side is when that is proved, or what is
    wrong.
    """

    token: bytes = b""
    name: str = ""
    is_last: bool = False
    trouble: str = ""


class Trouble(Exception):
    """A step cannot be made."""


def missing() -> str:
    """Say why there is no Kerberos here; empty if there is."""
    try:
        _library()
    except Trouble as error:
        return str(error)
    return ""


def unfit(service: str, keytab: str) -> str:
    """Say why this side could let nobody in by Kerberos; empty if it could."""
    try:
        _key_of(service, keytab)
    except Exception as error:  # noqa: BLE001  # gssapi has many.
        return _said(error)
    return ""


class Side(ABC):
    """What both sides share."""

    __slots__ = ("_context", "_phase", "_steps")

    def __init__(self) -> None:
        self._context: Any = None
        self._phase = _CONTEXT
        self._steps = 0

    def step(self, token: bytes) -> Step:
        """Go on with a token of the other side."""
        self._steps += 1
        try:
            if self._steps > MOST_STEPS:
                raise Trouble("the login takes more steps than Kerberos has")
            return self._go_on(token)
        except Exception as error:  # noqa: BLE001  # gssapi has many.
            return Step(trouble=_said(error))

    @abstractmethod
    def _go_on(self, token: bytes) -> Step:
        """Make the step, or raise what is wrong."""


class Acceptor(Side):
    """The side that checks, with the keys of the service in a keytab; empty is that of
    KRB5_KTNAME, or the system's.
    """

    __slots__ = ("_keytab", "_service")

    def __init__(self, service: str, keytab: str) -> None:
        super().__init__()
        self._service, self._keytab = service, keytab

    def _go_on(self, token: bytes) -> Step:
        if self._phase == _CONTEXT:
            if self._context is None:
                key = _key_of(self._service, self._keytab)
                self._context = _library().SecurityContext(creds=key, usage="accept")
            answer = self._context.step(token)
            if not self._context.complete:
                return Step(answer or b"")
            self._phase = _OFFER
            if answer:
                return Step(answer)
            token = b""
        if self._phase == _OFFER:
            if token:
                raise Trouble("a token came where none is left to come")
            self._phase = _ANSWER
            return Step(_wrapped(self._context, bytes([NO_LAYER, 0, 0, 0])))
        return self._chosen(token)

    def _chosen(self, token: bytes) -> Step:
        """Look at the choice of the other side, which ends with the name that it wants to have."""
        context = self._context
        choice = context.unwrap(token).message
        if len(choice) < 4 or choice[0] != NO_LAYER:
            raise Trouble("a security layer was chosen that is not offered")
        name = "" if context.initiator_name is None else str(context.initiator_name)
        if not name or name.startswith(NOBODY):
            raise Trouble("the ticket is for nobody")
        wanted = choice[4:].decode()
        if wanted not in ("", name, name.rpartition("@")[0]):
            raise Trouble(f"the ticket is for {name}, and another identity was asked for")
        return Step(name=name, is_last=True)


class Initiator(Side):
    """The side that logs in, with a ticket of `user` (empty: of whom the ticket cache is), or one
    that is got by the key of `user` in a keytab.
    """

    __slots__ = ("_first", "_hostname", "_keytab", "_service", "_user")

    def __init__(self, service: str, hostname: str, *, user: str = "", keytab: str = "") -> None:
        super().__init__()
        self._service, self._hostname = service or SERVICE, hostname
        self._user, self._keytab = user, keytab
        self._first: Step | None = None

    def begin(self) -> None:
        """Make the first step, which asks the network, beforehand."""
        if self._first is None:
            self._first = super().step(b"")

    def step(self, token: bytes) -> Step:
        """Go on with a token of the other side."""
        first, self._first = self._first, None
        return super().step(token) if first is None else first

    def _go_on(self, token: bytes) -> Step:
        library = _library()
        if self._context is None:
            self._context = self._new_context(library)
        context = self._context
        if self._phase == _CONTEXT:
            answer = context.step(token or None)
            if context.complete:
                if not context.actual_flags & library.RequirementFlag.mutual_authentication:
                    raise Trouble("the broker did not prove who it is")
                self._phase = _ANSWER
            return Step(answer or b"")
        offer = context.unwrap(token).message
        if len(offer) != 4 or not offer[0] & NO_LAYER:
            raise Trouble("the broker insists on a security layer of SASL; use TLS")
        name = str(context.target_name)
        return Step(_wrapped(context, bytes([NO_LAYER, 0, 0, 0])), name, is_last=True)

    def _new_context(self, library: Any) -> Any:
        named = library.NameType
        credentials = None
        if self._user or self._keytab:
            store = {"client_keytab": self._keytab, "ccache": "MEMORY:"} if self._keytab else None
            credentials = library.Credentials(
                name=library.Name(self._user, named.user) if self._user else None,
                usage="initiate",
                mechs=[library.MechType.kerberos],
                store=store,
            )
        flags = library.RequirementFlag
        return library.SecurityContext(
            name=library.Name(f"{self._service}@{self._hostname}", named.hostbased_service),
            creds=credentials,
            mech=library.MechType.kerberos,
            flags=[
                flags.mutual_authentication,
                flags.integrity,
                flags.out_of_sequence_detection,
                flags.replay_detection,
            ],
            usage="initiate",
        )


def _library() -> Any:
    try:
        import gssapi
    except (ImportError, OSError) as error:
        raise Trouble(f"the package gssapi is not there ({error}): {INSTALL}") from None
    return gssapi


def _key_of(service: str, keytab: str) -> Any:
    library = _library()
    return library.Credentials(
        name=library.Name(service, library.NameType.hostbased_service),
        usage="accept",
        mechs=[library.MechType.kerberos],
        store={"keytab": keytab} if keytab else None,
    )


def _wrapped(context: Any, message: bytes) -> bytes:
    return bytes(context.wrap(message, False).message)


def _said(error: Exception) -> str:
    """Say what went wrong as Kerberos says it, which is behind what GSSAPI says."""
    if isinstance(error, Trouble):
        return str(error)
    statuses: Any = getattr(error, "get_all_statuses", None)
    for name, is_major in (("min_code", False), ("maj_code", True)):
        code = getattr(error, name, 0)
        said = "; ".join(statuses(code, is_major)) if code and statuses is not None else ""
        if said and said != "Success":  # Not each error of GSSAPI is one of Kerberos.
            return said
    return str(error) or type(error).__name__
