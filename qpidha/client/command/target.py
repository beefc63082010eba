"""Targets: which brokers a command may speak to, and how.

`-b` names a UNIX admin socket, `[amqp://[user[:password]@]]host[:port]`, or a broker of the local
cluster (`b2`), or several of them with commas. Without it: the settings file of `--config`, the
context, the local cluster's primary, the daemon's admin socket, what the configuration of this
machine's broker says, then localhost:5672.
"""

from __future__ import annotations

import json
import os
import re
import stat
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from qpidha.client.admin import ask
from qpidha.client.command.arguments import Options
from qpidha.client.command.contexts import use_context
from qpidha.client.command.exits import Failure
from qpidha.client.command.passwords import USER, password_for, read_password
from qpidha.model.broker_states import PRIMARY_STATES
from qpidha.model.errors import InvalidArgument, QpidHaError
from qpidha.model.exit_codes import CONFIG, NO_INPUT, UNAVAILABLE, USAGE
from qpidha.model.options import TRUE
from qpidha.model.paths import CONFIGURATION, QPIDD_CONFIGURATION, SHARED, admin_socket
from qpidha.model.url import parse_url, read_login

DEFAULT_PORT = 5672
SECURE_PORT = 5671
LOCAL_NAME = re.compile("b[1-9]")
"""What brokers of a local cluster are called."""
WITHOUT_PASSWORD = ("ANONYMOUS", "EXTERNAL", "GSSAPI")
"""SASL mechanisms."""
QUICK = 0.5
"""Seconds allowed to each local broker while the primary is looked for."""
PLAIN_ADDRESS = "qpidha:plain-address"
"""Condition of the failure to go from a broker that is spoken to by TLS to a plain port."""


@dataclass(slots=True)
class Target:
    """Where a broker is: an admin socket, or an AMQP address with credentials."""

    socket: str = ""
    host: str = ""
    port: int = DEFAULT_PORT
    user: str = ""
    password: str = ""
    mechanism: str = ""
    service: str = ""
    """The name of the service in Kerberos."""
    encrypted: bool = False

    def __str__(self) -> str:
        return self.socket or f"{_bracketed(self.host)}:{self.port}"


def state_directory() -> str:
    """Where the local cluster lives unless told otherwise."""
    chosen = os.environ.get("QPIDHA_DIR")
    if chosen:
        return chosen
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(
        os.path.expanduser("~"), ".local", "state"
    )
    return os.path.join(base, "qpidha", "local")


def local_cluster(directory: str = "") -> dict[str, Any] | None:
    """Read the local cluster's state file, if there is one."""
    try:
        with open(
            os.path.join(directory or state_directory(), "cluster.json"), encoding="utf-8"
        ) as file:
            state: dict[str, Any] = json.load(file)
    except (OSError, ValueError):
        return None
    return state


def resolve(options: Options) -> list[Target]:
    """Decide which brokers may be meant: those that -b names, or one."""
    use_context(options)
    found = None if options.broker or options.config else _running()
    if found is None and not options.broker:
        options.config = options.config or _usual_file()
    configured = _configured(options)
    targets = named_targets(options.broker) if options.broker else [found or configured]
    log_in(targets, options, configured)
    return targets


def log_in(targets: list[Target], options: Options, configured: Target) -> None:
    """Say as whom each broker is spoken to, and with which password: as its address, else the
    options, else `configured`, else the environment has it.
    """
    for target in targets:
        target.user = target.user or options.user or configured.user or os.environ.get(USER, "")
        target.mechanism = options.sasl_mechanism or configured.mechanism
        target.service = options.sasl_service_name or configured.service
        if not target.password:
            known = configured.password if target.user == configured.user else ""
            asks = not target.socket and target.mechanism not in WITHOUT_PASSWORD
            target.password = password_for(target.user, options, known, ask=asks)


def named_targets(text: str) -> list[Target]:
    """Read one broker, or several with commas; those behind the first are spoken to as the first,
    by TLS and with its credentials, unless they say otherwise. With amqp:// or amqps:// before the
    first all are hosts, else b2 is a broker of a local cluster.
    """
    parts = [text] if os.path.exists(text) else [part.strip() for part in text.split(",")]
    are_hosts = "://" in parts[0]
    found: list[Target] = []
    for part in parts:
        if not part and len(parts) > 1:
            continue
        first = found[0] if found else None
        named = None if are_hosts else _named(part)
        target = named or parse(part, encrypted=first is not None and first.encrypted)
        if first is not None and not target.user:
            target.user, target.password = first.user, first.password
        if str(target) not in [str(known) for known in found]:
            found.append(target)
    if not found:
        raise Failure(USAGE, f"-b {text!r} names no broker", hint="-b host:port, or several with ,")
    return found


def parse(text: str, *, encrypted: bool = False) -> Target:
    """Read what stands after `-b`; `encrypted` is whether TLS is meant where no scheme says."""
    if "/" in text and "://" not in text and "@" not in text:
        return Target(socket=text)
    rest = text
    scheme, separator, after = text.partition("://")
    if separator:
        if scheme not in ("amqp", "amqps"):
            raise Failure(
                USAGE,
                f"{after.rpartition('@')[2]!r}: scheme {scheme!r} is not known",
                hint="amqp://host:port or amqps://host:port",
            )
        rest, encrypted = after.rstrip("/"), scheme == "amqps"
    credentials, _, where = rest.rpartition("@")
    try:
        user, password = read_login(credentials, has_scheme=bool(separator))
    except ValueError as error:
        raise Failure(
            USAGE, f"-b ...@{where} cannot be read: {error}", hint="-b amqp://user:password@host"
        ) from error
    for prefix in ("tcp:", "ssl:"):
        if where.startswith(prefix):
            where, encrypted = where.removeprefix(prefix), prefix == "ssl:"
    host, port = _host_and_port(where, 5671 if encrypted else DEFAULT_PORT)
    return Target(host=host, port=port, user=user, password=password, encrypted=encrypted)


def beside(address: str, first: Target) -> Target:
    """Say how to reach another broker of the cluster of `first`: one logs in there as at that
    one. Raises Failure where that would lead from TLS to a plain port.
    """
    target = parse(address)
    if first.encrypted and not target.encrypted:
        raise Failure(
            UNAVAILABLE,
            f"{address} is not asked",
            reason=f"it is a plain port, and {first} is spoken to by TLS",
            hint="name the TLS addresses of all brokers: -b amqps://host1,host2,host3",
            condition=PLAIN_ADDRESS,
        )
    target.user, target.password = target.user or first.user, target.password or first.password
    target.mechanism, target.service = first.mechanism, first.service
    return target


def place_of(target: Target) -> tuple[str, str]:
    """Say where a broker is as resource managers want it: its admin socket's path, and `host:port`;
    one of them is empty.
    """
    return (
        (target.socket, "") if target.socket else ("", f"{_bracketed(target.host)}:{target.port}")
    )


def _named(name: str) -> Target | None:
    """Find a broker of a local cluster by its name."""
    cluster = _cluster_with(name)
    if cluster is not None:
        return Target(
            socket=next(
                broker["admin_socket"] for broker in cluster["brokers"] if broker["name"] == name
            )
        )
    if LOCAL_NAME.fullmatch(name):
        places = cluster_places()
        names = ", ".join(
            broker["name"]
            for place in places
            for broker in (local_cluster(place) or {}).get("brokers", [])
        )
        reason = (
            f"the local cluster has no {name}; it has {names}"
            if names
            else f"no local cluster in {' or '.join(places)}"
        )
        raise Failure(
            UNAVAILABLE,
            reason,
            hint=(
                f"set QPIDHA_DIR to the cluster's directory, or -b {name}:{DEFAULT_PORT} for "
                "a host of that name"
            ),
        )
    return None


def _cluster_with(name: str) -> dict[str, Any] | None:
    """Find the local cluster that has a broker of a name; one that runs comes before one that once
    did.
    """
    clusters = [
        cluster for place in cluster_places() if (cluster := local_cluster(place)) is not None
    ]
    having = [
        cluster
        for cluster in clusters
        if any(broker["name"] == name for broker in cluster["brokers"])
    ]
    running = [
        cluster
        for cluster in having
        if any(os.path.exists(broker["admin_socket"]) for broker in cluster["brokers"])
    ]
    return next(iter(running or having), None)


def cluster_places() -> list[str]:
    """Where a local cluster is looked for by a broker's name: where QPIDHA_DIR says, else the usual
    place and here.
    """
    return (
        [state_directory()]
        if os.environ.get("QPIDHA_DIR")
        else [state_directory(), os.path.abspath("cluster"), os.getcwd()]
    )


def _usual_file() -> str:
    """Return the configuration of this machine's broker, where we may read it; or empty."""
    files = (path for path in (CONFIGURATION, QPIDD_CONFIGURATION) if os.access(path, os.R_OK))
    return next(files, "")


def _running() -> Target | None:
    """Find a broker that runs: of the local cluster, or this user's or the machine's daemon."""
    cluster = local_cluster()
    sockets = [
        broker["admin_socket"]
        for broker in (cluster or {}).get("brokers", [])
        if os.path.exists(broker["admin_socket"])
    ]
    found = ""
    for path in sockets:
        state = _state(path)
        if state in PRIMARY_STATES:
            return Target(socket=path)
        if state and not found:
            found = path
    if found:
        return Target(socket=found)
    alive = daemon_socket()
    return Target(socket=alive) if alive else None


def daemon_socket() -> str:
    """Return the admin socket of this user's daemon at the usual port, or of the only one that
    lives; or of the machine's, for who may use that; empty if there is none.
    """
    return _daemon_socket_of(os.getuid()) or _daemon_socket_of(0)


def _daemon_socket_of(uid: int) -> str:
    usual = admin_socket(os.environ, uid, DEFAULT_PORT)
    folder = os.path.dirname(usual)
    try:
        if folder.startswith(SHARED) and not _is_own(folder):
            return ""
        names = [
            name
            for name in os.listdir(folder)
            if name.startswith("admin-") and name.endswith(".sock")
        ]
    except OSError:
        return ""
    alive = [path for path in sorted(os.path.join(folder, name) for name in names) if _state(path)]
    return usual if usual in alive else alive[0] if len(alive) == 1 else ""


def _is_own(folder: str) -> bool:
    """Tell whether nobody else can have put a socket into a folder. Raises OSError."""
    found = os.lstat(folder)
    mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    return mine and not found.st_mode & 0o022


def _state(path: str) -> str:
    try:
        return str(ask(path, "ping", timeout=QUICK).get("state", "")) or "unknown"
    except QpidHaError:
        return ""


def known_brokers(options: Options) -> list[str]:
    """The addresses of all brokers, as far as this machine knows them without asking: by --config,
    or the local cluster.
    """
    if options.config:
        url = _values(options.config).get("ha-brokers-url", "")
        try:
            return addresses(url)
        except ValueError as error:
            raise Failure(
                CONFIG, f"{options.config}: ha-brokers-url: {error}", hint="qpidhad --check"
            ) from error
    brokers = (_cluster_with(options.broker) or local_cluster() or {}).get("brokers", [])
    if not any(os.path.exists(broker["admin_socket"]) for broker in brokers):
        return []  # It was stopped, and nobody means it.
    if options.broker and options.broker not in [
        broker[name] for broker in brokers for name in ("name", "address", "admin_socket")
    ]:
        return []
    return [public_address(broker) for broker in brokers]


def public_address(broker: dict[str, Any]) -> str:
    """Where clients find a broker of the local cluster; one that an older manager wrote down has
    one address.
    """
    return str(broker.get("public_address") or broker["address"])


def log_in_locally(target: Target, cluster: dict[str, Any], options: Options) -> Target:
    """Let programs of whoever started a secure local cluster in, unless they say otherwise."""
    clients = cluster.get("clients", {})
    if target.encrypted and "ssl_trusted" in clients:
        options.configured_tls = (clients["ssl_trusted"], *options.configured_tls[1:])
        if not target.user:
            target.user, target.password = clients["user"], read_password(clients["password_file"])
    return target


def addresses(url: object) -> list[str]:
    """List the addresses of a brokers URL: host:port, or ssl:host:port; admin sockets stay as they
    are. Raises ValueError.
    """
    text = str(url)
    if "/" in text.removeprefix("amqp://").removeprefix("amqps://").rpartition("@")[2]:
        return text.removeprefix("amqp:").split(",")
    return [str(address) for address in parse_url(text)]


def _values(path: str) -> dict[str, str]:
    """Read a qpidd.conf; the daemon itself is stricter, and says what is wrong."""
    try:
        with open(path, encoding="utf-8") as file:
            # Loaded late: few calls have a file, and the others have to be quick.
            values: dict[str, str] = import_module("qpidha.model.sources").file_values(
                file.read(), path
            )
    except OSError as error:
        raise Failure(
            NO_INPUT, f"cannot read {path}: {error.strerror}", hint="--config names a qpidd.conf"
        ) from error
    except UnicodeDecodeError as error:
        raise Failure(CONFIG, f"{path} is not text", hint="--config names a qpidd.conf") from error
    except InvalidArgument as error:
        raise Failure(CONFIG, error.text, hint=error.hint) from error
    return values


def _configured(options: Options) -> Target:
    target = Target(host="localhost")
    if not options.config:
        return target
    values = _values(options.config)
    target.encrypted = values.get("require-encryption", "").lower() in TRUE
    name, usual = ("ssl-port", SECURE_PORT) if target.encrypted else ("port", DEFAULT_PORT)
    try:
        target.port = int(values.get(name, usual))
    except ValueError as error:
        raise Failure(
            CONFIG,
            f"{options.config}: {name}={values[name]} is not a number",
            hint=f"{name}={usual}",
        ) from error
    target.user, target.password = _login_of(values)
    target.mechanism = values.get("ha-mechanism", "")
    target.service = values.get("sasl-service-name", "")
    folder = os.path.dirname(options.config)
    files = {name: os.path.join(folder, path) for name, path in values.items() if path}
    own = ("", "", "")
    if target.mechanism == "EXTERNAL":
        # As brokers do among themselves: the certificate of this one says who it is.
        cert, key, password = "ssl-cert", "ssl-key", "ssl-key-password-file"
        own = files.get(cert, ""), files.get(key, ""), files.get(password, "")
    options.configured_tls = (files.get("ssl-trusted", ""), *own)
    if options.timeout is None:
        interval = values.get("ha-heartbeat-interval") or values.get("link-heartbeat-interval")
        if interval and interval.replace(".", "", 1).isdigit():
            options.timeout = max(1.0, float(interval))
    admin_socket = values.get("admin-socket") or (
        os.path.join(values["data-dir"], "admin.sock") if values.get("data-dir") else ""
    )
    admin_socket = admin_socket and os.path.join(
        os.path.dirname(options.config), admin_socket
    )  # as the daemon has it
    if admin_socket and os.path.exists(admin_socket):
        target.socket = admin_socket
    file = values.get("ha-password-file")
    if file and (options.broker or not target.socket):
        target.password = read_password(os.path.join(folder, file))
    return target


def _login_of(values: dict[str, str]) -> tuple[str, str]:
    """Return the user and password of the brokers, which may stand in their addresses too."""
    user, password = values.get("ha-username", ""), values.get("ha-password", "")
    with suppress(ValueError):  # The daemon says what is wrong with it.
        url = parse_url(values.get("ha-brokers-url", ""))
        if url.user and user in ("", url.user):
            return url.user, password or url.password
    return user, password


def _host_and_port(where: str, default: int) -> tuple[str, int]:
    if where.startswith("["):
        host, _, rest = where[1:].partition("]")
        port = rest.removeprefix(":")
    else:
        host, _, port = where.partition(":")
    if where.count(":") > 1 and not where.startswith("["):
        raise Failure(
            USAGE,
            f"{where!r}: an IPv6 address stands in brackets",
            hint="-b [::1]:5672, or -b [::1]",
        )
    if port and not (port.isdigit() and 0 < int(port) < 65536):
        raise Failure(
            USAGE,
            f"{where!r}: {port!r} is not a port",
            hint="-b host:port, with a port from 1 to 65535",
        )
    return host or "localhost", int(port) if port else default


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
