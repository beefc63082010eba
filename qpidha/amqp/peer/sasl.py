"""SASL: both sides of the security layer that comes before AMQP, and who may log in.

A side takes bytes and keeps what it has to say in `output`; when it is `done` its owner takes
`leftover` and goes on with AMQP. The arithmetic of SCRAM is scramp's. What of it takes long is for
the owner to do, or to have done elsewhere; until then a side keeps what comes. Randomness comes
from outside, so that a history can be played again. Passwords are never kept: a users file holds
SCRAM verifiers, and PLAIN is checked against the same. Kerberos is in `kerberos.py`. Source: AMQP
1.0 section 5.3, RFC 4616, RFC 7677.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from itertools import islice
from typing import Any

from qpidha.amqp.peer.kerberos import LONGEST_TOKEN, Acceptor, Initiator, Step
from qpidha.model.encoding import Array, Described, Symbol, UByte, ULong, decode, encode
from qpidha.model.errors import InvalidArgument, ProtocolViolation, Unauthorized
from qpidha.model.principal import ANONYMOUS, without_realm
from qpidha.model.settings import GSSAPI

SASL_HEADER = b"AMQP\x03\x01\x00\x00"
AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
MAX_FRAME = 4096
"""Bytes of a SASL frame we take; the specification allows 512, and nobody's SCRAM message needs
more than this.
"""
MAX_LEFTOVER = 65536
"""Bytes that may come behind a SASL frame before there is an answer to it; more means that the peer
does not wait for one.
"""
MECHANISMS, INIT, CHALLENGE, RESPONSE, OUTCOME = 0x40, 0x41, 0x42, 0x43, 0x44
OK, AUTH, SYSTEM = 0, 1, 2
"""Codes of an outcome."""
WRONG_PASSWORD = "wrong user or password"
HASHES = {"SCRAM-SHA-512": "sha512", "SCRAM-SHA-256": "sha256"}
"""SCRAM mechanism -> its hash; the strongest first."""
SCRAM = "SCRAM-SHA-256"
"""The one that every users file has."""
ITERATIONS, LEAST_SALT = 4096, 12
"""The least work, and bytes of salt, of a verifier."""
USER_ITERATIONS = 15_000
"""The work of a new verifier, for each client and for whoever guesses: RFC 7677 recommends as many
at least.
"""
MOST_ITERATIONS = 10_000_000
"""The most work of a verifier: seconds. scramp does no more for a peer either."""
SALT = 16
"""Bytes of salt of a new verifier, and of one that is made up where there is none to be like."""
SECRET, LEAST_SECRET = 32, 16
"""Random bytes of a new secret, and the least of one."""
SECRET_NAME = "secret"
"""Before the secret in a users file."""


def scram() -> Any:
    """Return scramp, which the first call loads: only passwords need it, and with its 70 modules it
    takes a third of the start of a broker, half that of a client.
    """
    from scramp import core

    return core


def protocol(header: bytes) -> str:
    """Name the protocol that begins with a header, as AMQP 0-9-1 and 0-10 do too."""
    if header[:4] != b"AMQP" or len(header) < 8:
        return repr(bytes(header[:8]))
    kind, *numbers = header[4:8]
    if [kind, *numbers] == [0, 0, 9, 1]:
        return "that of AMQP 0-9-1"
    if kind == 1 and numbers[0] == 1:
        return f"that of AMQP {numbers[1]}-{numbers[2]}"
    name = {0: "AMQP", 2: "TLS", 3: "SASL"}.get(kind, f"protocol {kind}")
    return f"that of {name} {'.'.join(map(str, numbers))}"


class Verifier:
    """What is kept of a password, for one SCRAM mechanism."""

    __slots__ = ("iterations", "mechanism", "salt", "server_key", "stored_key")

    def __init__(
        self, mechanism: str, iterations: int, salt: bytes, stored_key: bytes, server_key: bytes
    ) -> None:
        self.mechanism = mechanism
        self.iterations = iterations
        self.salt = salt
        self.stored_key = stored_key
        self.server_key = server_key

    def accepts(self, password: str) -> bool:
        """Tell whether this is the password."""
        kind = HASHES[self.mechanism]
        try:
            prepared: str = scram().saslprep(password)
        except scram().ScramException:
            return False
        salted = hashlib.pbkdf2_hmac(kind, prepared.encode(), self.salt, self.iterations)
        client_key = hmac.digest(salted, b"Client Key", kind)
        return hmac.compare_digest(hashlib.new(kind, client_key).digest(), self.stored_key)


def make_verifier(
    password: str, salt: bytes, iterations: int = ITERATIONS, mechanism: str = SCRAM
) -> str:
    """Make the part of a users-file line behind the name; raise InvalidArgument for what cannot be
    a password.
    """
    if not password:
        raise InvalidArgument("the password is empty", hint="give one of a few characters at least")
    try:
        _, stored_key, server_key, _ = (
            scram()
            .ScramMechanism(mechanism)
            .make_auth_info(password, iteration_count=iterations, salt=salt)
        )
    except scram().ScramException as error:
        raise InvalidArgument(
            f"this cannot be a password: {error}",
            hint="use letters, digits, punctuation and spaces",
        ) from None
    encoded = [base64.b64encode(part).decode() for part in (salt, stored_key, server_key)]
    return f"{mechanism}${iterations}:{encoded[0]}${encoded[1]}:{encoded[2]}"


def lines_of_user(name: str, password: str, random: Callable[[int], bytes]) -> list[str]:
    """Make the lines of a users file for one user: a verifier for each mechanism, whose salt is so
    many random bytes. Raises InvalidArgument for what cannot be a password.
    """
    return [
        f"{name}:{make_verifier(password, random(SALT), USER_ITERATIONS, mechanism)}"
        for mechanism in sorted(HASHES)
    ]


def line_of_secret(random: Callable[[int], bytes]) -> str:
    """Make the line of a users file of which is made what strangers are told of unknown users; it
    is so many random bytes.
    """
    return f"{SECRET_NAME}:{base64.b64encode(random(SECRET)).decode()}"


def is_of_user(line: str) -> bool:
    """Tell whether a line of a users file is that of a user, and no comment nor the secret."""
    return "$" in line and not line.lstrip().startswith("#")


def _verifier_in(line: str) -> tuple[str, Verifier]:
    """Read a line of a users file: a name, and a verifier. Raises ValueError."""
    head, numbers, keys = line.split("$")
    name, _, mechanism = head.rpartition(":")
    iterations, salt = numbers.split(":")
    parts = (base64.b64decode(part, validate=True) for part in (salt, *keys.split(":")))
    salted, stored_key, server_key = parts
    return name, Verifier(mechanism, int(iterations), salted, stored_key, server_key)


class Users:
    """The users file: one `name:MECHANISM$iterations:salt$StoredKey:ServerKey` a line, with a line
    for each SCRAM mechanism that a user may use; `#` begins a comment. A line `secret:` with random
    bytes in base64 is what answers for unknown names are made of, by each broker with this file and
    whatever users come and go.
    """

    __slots__ = ("_realm", "_secret", "has_secret", "verifiers")

    def __init__(
        self,
        verifiers: dict[str, dict[str, Verifier]] | None = None,
        *,
        realm: str = "",
        secret: bytes = b"",
    ) -> None:
        """Where strangers log in, `secret` is random and told to nobody: what is answered for names
        that do not exist is made with it, if the file has none.
        """
        self.verifiers = verifiers or {}
        """Name -> mechanism -> verifier."""
        self._realm = realm
        self._secret = secret
        self.has_secret = False

    @classmethod
    def parse(cls, text: str, *, realm: str = "", secret: bytes = b"") -> Users:
        """Read a users file; a name may be written, there and at login, with or without
        `@realm`.
        """
        scram()  # A broker with users loads it now, and not while it serves.
        users = cls(realm=realm, secret=secret)
        for number, line in enumerate(text.splitlines(), 1):
            line = line.strip()
            if line.startswith(f"{SECRET_NAME}:") and not is_of_user(line):
                users._take_secret(number, line)
            elif line and not line.startswith("#"):
                users._take_line(number, line)
        return users

    def _take_secret(self, number: int, line: str) -> None:
        try:
            secret = base64.b64decode(line.partition(":")[2], validate=True)
        except ValueError:
            secret = b""
        if len(secret) < LEAST_SECRET or self.has_secret:
            raise InvalidArgument(
                f"users file line {number}: the secret "
                + ("is there before it" if self.has_secret else f"is {LEAST_SECRET} bytes or more"),
                hint="delete the line: qpid-ha user add makes one where there is none",
            )
        self._secret, self.has_secret = secret, True

    def _take_line(self, number: int, line: str) -> None:
        try:
            name, verifier = _verifier_in(line)
        except ValueError:
            raise InvalidArgument(
                f"users file line {number} is not "
                f"'name:{SCRAM}$iterations:salt$StoredKey:ServerKey'",
                hint="make the line with: qpid-ha user add NAME --users-file FILE",
            ) from None
        bare, mechanism = self.bare(name), verifier.mechanism
        is_fit = ITERATIONS <= verifier.iterations <= MOST_ITERATIONS
        if mechanism not in HASHES or not bare or not is_fit or len(verifier.salt) < LEAST_SALT:
            raise InvalidArgument(
                f"users file line {number}: needs {' or '.join(HASHES)}, a name, {ITERATIONS} to "
                f"{MOST_ITERATIONS} iterations and {LEAST_SALT} bytes of salt or more"
            )
        if bare == ANONYMOUS:
            raise InvalidArgument(
                f"users file line {number}: {ANONYMOUS} is the name of who does not log in",
                hint="give the user another name",
            )
        own = self.verifiers.setdefault(bare, {})
        if mechanism in own:
            raise InvalidArgument(
                f"users file line {number}: {bare} has a line for {mechanism} before it",
                hint="delete the one with the former password",
            )
        own[mechanism] = verifier

    @property
    def mechanisms(self) -> list[str]:
        """The SCRAM mechanisms that every user may use, the strongest first. Clients take the
        strongest that is offered, so that what one user cannot use is not offered.
        """
        every = self.verifiers.values()
        return [name for name in HASHES if every and all(name in own for own in every)]

    def bare(self, name: str) -> str:
        """Give a name without the realm."""
        return without_realm(name, self._realm)

    def check(self, name: str, password: str) -> bool:
        """Tell whether `name` exists and has this password, by as much work if it does not."""
        accepts = self._verifier(name, "").accepts(password)
        return accepts and self.bare(name) in self.verifiers

    def auth_info(self, name: str, mechanism: str) -> tuple[bytes, bytes, bytes, int]:
        """Give what a SCRAM mechanism needs."""
        verifier = self._verifier(name, mechanism)
        return verifier.salt, verifier.stored_key, verifier.server_key, verifier.iterations

    def _verifier(self, name: str, mechanism: str) -> Verifier:
        """Return the verifier of a name for a mechanism, or for any; of a name that does not exist
        one that is made up, so that it cannot be told from one that does.
        """
        bare = self.bare(name)
        made_up = self._made_up(bare, mechanism)  # Always: the time it takes tells nothing.
        return self._one_of(bare, mechanism) or made_up

    def _one_of(self, name: str, mechanism: str) -> Verifier | None:
        own = self.verifiers.get(name, {})
        return own.get(mechanism) if mechanism else next(iter(own.values()), None)

    def _made_up(self, name: str, mechanism: str) -> Verifier:
        """Make a verifier that no password is known for: always the same one for a name, with as
        many iterations and as long a salt as one of the users has.
        """

        def random(use: str, size: int) -> bytes:
            key = hmac.digest(self._secret, f"{use} {name}".encode(), "sha256")
            return hashlib.shake_256(key).digest(size)

        like: Verifier | None = None
        if self.verifiers:
            place = int.from_bytes(random("like", 8), "big") % len(self.verifiers)
            like = self._one_of(next(islice(self.verifiers, place, None)), mechanism)
        if like is None:
            like = Verifier(mechanism or SCRAM, ITERATIONS, bytes(SALT), b"", b"")
        size = hashlib.new(HASHES[like.mechanism]).digest_size
        salt = random(f"salt {like.mechanism}", len(like.salt))
        keys = random("stored", size), random("server", size)
        return Verifier(like.mechanism, like.iterations, salt, *keys)


class SaslSide:
    """What both sides share: frames in, frames out."""

    __slots__ = (
        "_buffer",
        "_header_seen",
        "_waits",
        "_work",
        "blocks",
        "by_password",
        "done",
        "failed",
        "mechanism",
        "output",
        "reason",
        "user",
    )

    def __init__(self) -> None:
        self.output = bytearray(SASL_HEADER)
        self.done = False
        self.failed = False
        self.reason = ""
        self.by_password = False
        """Whether the peer has shown, as the side that checks saw it, what may be a guess."""
        self.mechanism = ""
        self.user = ""
        self._buffer = b""
        self._header_seen = False
        self._waits = False
        self.blocks = False
        """Whether the work that is taken asks the network, and is no arithmetic."""
        self._work: Callable[[], Any] | None = None

    @property
    def leftover(self) -> bytes:
        """What came behind the last frame, once this side is done."""
        return self._buffer if self.done else b""

    def receive(self, data: bytes) -> None:
        """Take bytes from the peer, or go on with those that are there; faults of the peer raise
        ProtocolViolation.
        """
        self._buffer += data
        if len(self._buffer) > MAX_LEFTOVER:
            raise ProtocolViolation("too much data before the end of SASL negotiation")
        if not self._header_seen:
            if len(self._buffer) < 8:
                return
            if self._buffer[:8] != SASL_HEADER:
                raise ProtocolViolation(
                    f"expected the SASL protocol header but got {protocol(self._buffer)}"
                )
            self._buffer = self._buffer[8:]
            self._header_seen = True
        while not (self.done or self.failed or self._waits) and len(self._buffer) >= 8:
            size, offset = int.from_bytes(self._buffer[:4], "big"), 4 * self._buffer[4]
            if self._buffer[5] != 1 or not 8 <= offset <= size or size > self._most:
                raise ProtocolViolation(
                    f"faulty SASL frame of {size} bytes and type {self._buffer[5]}"
                )
            if len(self._buffer) < size:
                return
            body, self._buffer = self._buffer[offset:size], self._buffer[size:]
            self._take_frame(body)

    @property
    def _most(self) -> int:
        """Bytes of a frame that is taken."""
        return MAX_FRAME

    def take_work(self) -> Callable[[], Any] | None:
        """Give arithmetic that is to be done before this side goes on, once; `worked` hears what
        comes of it.
        """
        work, self._work = self._work, None
        return work

    def worked(self, result: Any) -> None:
        """Take the result of the arithmetic; `receive` then goes on with what came meanwhile."""
        self._waits = False
        self.use(result)

    def use(self, result: Any) -> None:
        """Go on with what the arithmetic has given."""

    def wait_for(self, work: Callable[[], Any], *, blocks: bool = False) -> None:
        """Take no frame until `work` is done, which may ask the network if it `blocks`."""
        self._work, self._waits, self.blocks = work, True, blocks

    def _take_frame(self, body: bytes) -> None:
        value, end = decode(body)
        code = value.descriptor if isinstance(value, Described) else None
        if not isinstance(code, int) or not isinstance(value.value, list) or end != len(body):
            raise ProtocolViolation("SASL frame without a performative")
        self.performed(int(code), value.value + [None] * 4)

    def performed(self, code: int, fields: list[Any]) -> None:
        """React to one frame."""
        raise ProtocolViolation(f"SASL performative {code:#x} is out of place")

    def say(self, code: int, *fields: Any) -> None:
        """Put one frame into the output."""
        body = encode(Described(ULong(code), list(fields)))
        self.output += (len(body) + 8).to_bytes(4, "big") + b"\x02\x01\x00\x00" + body

    def take_output(self) -> bytes:
        """Give what is to be sent."""
        data = bytes(self.output)
        self.output.clear()
        return data


class SaslServer(SaslSide):
    """The side that checks."""

    __slots__ = (
        "_acceptor",
        "_identity",
        "_make_nonce",
        "_scram",
        "_takes_any",
        "_users",
        "offered",
    )

    def __init__(
        self,
        offered: list[str],
        users: Users,
        *,
        identity: str,
        make_nonce: Callable[[], str],
        takes_any: bool = False,
        acceptor: Acceptor | None = None,
    ) -> None:
        """With `takes_any` every password is right for PLAIN, and the name that comes with it is
        not believed: some clients know no other mechanism. `acceptor` is for GSSAPI.
        """
        super().__init__()
        self._takes_any = takes_any
        self._acceptor = acceptor
        self.offered = offered
        self._users = users
        self._identity = identity
        self._make_nonce = make_nonce
        self._scram: Any = None
        self.say(MECHANISMS, Array(0xA3, [Symbol(name) for name in offered]))

    def performed(self, code: int, fields: list[Any]) -> None:
        """React to init or response."""
        if code == INIT and not self.mechanism:
            self.mechanism = str(fields[0])
            if self.mechanism not in self.offered:
                self._finish(AUTH, f"mechanism '{self.mechanism[:40]}' is not offered")
                return
            self._step(fields[1] if isinstance(fields[1], bytes) else None)
        elif code == RESPONSE and self.mechanism:
            self._step(fields[0] if isinstance(fields[0], bytes) else b"")
        else:
            raise ProtocolViolation(f"SASL performative {code:#x} is out of place")

    def _step(self, response: bytes | None) -> None:
        if self.mechanism == "ANONYMOUS":
            self.user = ANONYMOUS
            self._finish(OK)
        elif response is None:
            self.say(CHALLENGE, b"")
        elif self.mechanism == "EXTERNAL":
            claimed = response.decode(errors="replace")
            self.user = self._identity
            self._finish(
                OK if claimed in ("", self._identity) else AUTH,
                "another identity than the certificate's was asked for",
            )
        elif self.mechanism == "PLAIN":
            self._plain(response)
        elif self.mechanism == GSSAPI:
            acceptor = self._acceptor
            assert acceptor is not None
            self.by_password = True  # Who fails again and again is to wait as well.
            self.wait_for(lambda: acceptor.step(response))
        else:
            self._scram_step(response)

    def _plain(self, response: bytes) -> None:
        parts = response.split(b"\0")
        if len(parts) != 3:
            self._finish(AUTH, "malformed PLAIN response")
            return
        if self._takes_any:
            self.user = ANONYMOUS
            self._finish(OK)
            return
        self.by_password = True
        authorization, name, password = (part.decode(errors="replace") for part in parts)
        users = self._users
        self.user = users.bare(name)
        if authorization in ("", name):
            self.wait_for(lambda: users.check(name, password))
        else:
            self._finish(AUTH, WRONG_PASSWORD)

    def use(self, result: Any) -> None:
        """Hear whether the password is right, or what comes of a ticket."""
        if isinstance(result, Step):
            self._use_step(result)
        else:
            self._finish(OK if result else AUTH, WRONG_PASSWORD)

    def _use_step(self, step: Step) -> None:
        if step.trouble:
            self._finish(AUTH, f"Kerberos: {step.trouble}")
        elif not step.is_last:
            self.say(CHALLENGE, step.token)
        else:
            self.user = self._users.bare(step.name)
            is_somebody = self.user not in ("", ANONYMOUS)
            self._finish(OK if is_somebody else AUTH, f"{self.user} is no name of a user")

    @property
    def _most(self) -> int:
        return LONGEST_TOKEN if self._acceptor is not None else MAX_FRAME

    def _scram_step(self, response: bytes) -> None:
        try:
            message = response.decode()
            if self._scram is None:
                nonce = self._make_nonce().replace("-", "")
                mechanism = scram().ScramMechanism(self.mechanism)
                self._scram = mechanism.make_server(self._auth_info, s_nonce=nonce)
                self._scram.set_client_first(message)
                self.say(CHALLENGE, self._scram.get_server_first().encode())
                return
            self.by_password = True
            self._scram.set_client_final(message)
            if self.user not in self._users.verifiers:
                self._finish(AUTH, WRONG_PASSWORD)
                return
            self._finish(OK, data=self._scram.get_server_final().encode())
        except (scram().ScramException, ValueError):
            self._finish(AUTH, WRONG_PASSWORD)

    def _auth_info(self, name: str) -> tuple[bytes, bytes, bytes, int]:
        self.user = self._users.bare(name)
        return self._users.auth_info(name, self.mechanism)

    def _finish(self, code: int, reason: str = "", *, data: bytes | None = None) -> None:
        if code == OK:
            self.done = True
            self.say(OUTCOME, UByte(OK), *([data] if data else []))
        else:
            self.failed = True
            self.reason = reason
            self.say(OUTCOME, UByte(code))


class SaslClient(SaslSide):
    """The side that logs in."""

    __slots__ = (
        "_encrypted",
        "_has_begun",
        "_hostname",
        "_initiator",
        "_is_proven",
        "_mutual",
        "_nonce",
        "_password",
        "_scram",
        "_username",
        "_wanted",
    )

    def __init__(
        self,
        wanted: str,
        *,
        username: str,
        password: str,
        hostname: str,
        nonce: str,
        encrypted: bool = False,
        mutual: bool = False,
        initiator: Initiator | None = None,
    ) -> None:
        """`wanted` names the mechanisms that may be used, separated by spaces; empty is whatever
        fits, where PLAIN, which shows the password to whoever listens, fits only under TLS.
        `mutual` takes only what also proves who the server is: TLS does, and SCRAM, and GSSAPI,
        which is for who asks for it by name and for which `initiator` is.
        """
        super().__init__()
        self._wanted = wanted.upper().split()
        self._username = username
        self._password = password
        self._hostname = hostname
        self._nonce = nonce.replace("-", "")
        self._encrypted = encrypted
        self._mutual = mutual
        self._initiator = initiator
        self._is_proven = self._has_begun = False
        self._scram: Any = None

    @property
    def _most(self) -> int:
        return LONGEST_TOKEN if self._initiator is not None else MAX_FRAME

    def performed(self, code: int, fields: list[Any]) -> None:
        """React to mechanisms, challenge or outcome."""
        if code == MECHANISMS and not self.mechanism:
            self._choose(fields[0])
        elif code == CHALLENGE and self.mechanism:
            self._answer(fields[0] if isinstance(fields[0], bytes) else b"")
        elif code == OUTCOME and self.mechanism:
            self._conclude(fields[0], fields[1])
        else:
            raise ProtocolViolation(f"SASL performative {code:#x} is out of place")

    def _choose(self, offered: Any) -> None:
        names = (
            [str(name) for name in offered.items] if isinstance(offered, Array) else [str(offered)]
        )
        safe = [*HASHES, "PLAIN"] if self._encrypted else [*HASHES]
        suitable = safe if self._username else ["EXTERNAL", "ANONYMOUS"]
        # With a name and no mechanism wanted, a broker without authentication is still good enough.
        order = self._wanted or [*suitable, *(["EXTERNAL", "ANONYMOUS"] if self._username else [])]
        if self._mutual:
            order = [name for name in order if self._proves_both(name)]
        self.mechanism = next((name for name in order if name in names), "")
        if not self.mechanism:
            fails_to = "proves who is at either end" if self._mutual else "is usable here"
            raise Unauthorized(
                f"the broker offers SASL mechanisms {' '.join(names)}, none of which {fails_to} "
                f"({' '.join(order) or 'none does without a password, nor without TLS'})"
            )
        self.user = self._username
        if self.mechanism == GSSAPI:
            self._step(b"")
        else:
            self._begin(self._first())

    def _begin(self, response: bytes) -> None:
        self.say(INIT, Symbol(self.mechanism), response, self._hostname or None)

    def _step(self, token: bytes) -> None:
        initiator = self._initiator
        if initiator is None:
            raise Unauthorized("there is nothing here to log in with by GSSAPI")
        self.wait_for(lambda: initiator.step(token), blocks=True)

    def _proves_both(self, name: str) -> bool:
        """Whether a mechanism shows that both sides are who they say. PLAIN without TLS does not,
        and is for who asks for it by name.
        """
        if name in (*HASHES, "PLAIN"):
            return bool(self._password)
        return name == GSSAPI or (name == "EXTERNAL" and self._encrypted)

    def _first(self) -> bytes:
        if self.mechanism == "PLAIN":
            return b"\0" + self._username.encode() + b"\0" + self._password.encode()
        if self.mechanism in HASHES:
            self._scram = scram().ScramClient(
                [self.mechanism], self._username, self._password, c_nonce=self._nonce
            )
            return bytes(self._scram.get_client_first().encode())
        return b"" if self.mechanism == "EXTERNAL" else b"anonymous"

    def _answer(self, challenge: bytes) -> None:
        if self.mechanism == GSSAPI:
            self._step(challenge)
            return
        if self.mechanism not in HASHES:
            self.say(RESPONSE, self._first())
            return
        try:
            self._scram.set_server_first(challenge.decode())
        except (scram().ScramException, ValueError) as error:
            raise ProtocolViolation(f"the broker's SCRAM challenge is faulty: {error}") from None
        self.wait_for(self._scram.get_client_final)

    def use(self, result: Any) -> None:
        """Prove that the password is known, or show a ticket."""
        if not isinstance(result, Step):
            self.say(RESPONSE, result.encode())
            return
        if result.trouble:
            raise Unauthorized(f"there is no login by Kerberos: {result.trouble}")
        self._is_proven = result.is_last
        if self._has_begun:
            self.say(RESPONSE, result.token)
        else:
            self._has_begun = True
            self._begin(result.token)

    def _conclude(self, code: Any, data: Any) -> None:
        if code != OK:
            self.failed = True
            self.reason = (
                f"the broker refused user '{self._username}' with SASL mechanism {self.mechanism}"
            )
            return
        if self.mechanism == GSSAPI and not self._is_proven:
            raise Unauthorized("the broker let us in before it proved who it is")
        if self._scram is not None:
            # The broker must know the password's verifier too, else it only pretends to be the
            # broker.
            try:
                self._scram.set_server_final(data.decode() if isinstance(data, bytes) else "")
            except (scram().ScramException, ValueError) as error:
                raise Unauthorized(
                    f"the broker could not prove that it knows user '{self._username}': {error}"
                ) from None
        self.done = True
