"""Settings: every option of a broker, with its default, unit, range and help, as one frozen object.

An option `ha-backup-timeout` is the field `ha_backup_timeout`. Durations are nanoseconds, sizes
bytes, URLs parsed. `Settings()` is all defaults; `Settings.load` takes them from command line,
environment and file (see `sources.py`). Help, errors and the sample file are generated from here,
so an option exists once. Must not read files itself. Source: Qpid src/qpid/ha/HaPlugin.cpp,
src/qpid/broker/Broker.cpp.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qpidha.model.duration import MILLISECOND, SECOND
from qpidha.model.errors import InvalidArgument
from qpidha.model.event_log import LEVELS as NOTE_LEVELS
from qpidha.model.ip import is_loopback
from qpidha.model.options import (
    CATEGORIES,
    Bool,
    Choice,
    Consoles,
    Duration,
    Facility,
    FilePath,
    Integer,
    LogSelectors,
    Option,
    Patterns,
    Size,
    SizeOrShare,
    Text,
    Urls,
    Words,
    option,
)
from qpidha.model.replication_level import LEVELS as REPLICATION_LEVELS
from qpidha.model.sources import Given, resolve
from qpidha.model.url import Url, parse_address

GSSAPI = "GSSAPI"
MECHANISMS = ("ANONYMOUS", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "EXTERNAL", GSSAPI)
WEAK = "its hash is broken; use SCRAM-SHA-256 or SCRAM-SHA-512"
OTHER_MECHANISMS = {"CRAM-MD5": WEAK, "DIGEST-MD5": WEAK, "SCRAM-SHA-1": WEAK}
"""Mechanisms of other brokers, and why they are refused."""
SAFETY = ("strict", "trust-manager")
RECORDERS = ("brokers", "manager")
REFUSALS = ("auto", "drop", "redirect")
UNROUTABLE = ("release", "accept")
WITHOUT_STORE = ("refuse", "accept")
PRODUCTS = ("qpidha", "rabbitmq")
PORT = Integer(0, 65535)
QUOTA = Integer(0, 65530)
PERCENT = Integer(0, 100)
PLAIN_HINT = "use SCRAM-SHA-256, or set sasl-plain-without-tls=yes"
FOR_USERS = ("realm", "acl-file", "ha-username")
"""Options that say that users are to log in."""
USERS_HINT = (
    "set users-file, with users made by qpid-ha user add (or ssl-cert and ssl-trusted, for clients "
    "with certificates, or sasl-keytab, for clients with tickets of Kerberos)"
)
LONG_HEARTBEAT = 10 * SECOND
"""A heartbeat beyond this lets a hung broker hold up a cluster for long."""

HA = "High availability"
NETWORK = "Network"
TLS = "TLS"
SECURITY = "Authentication"
LIMITS = "Limits"
QUEUES = "Queues"
STORAGE = "Storage and administration"
LOG = "Log"
GROUPS = (HA, NETWORK, TLS, SECURITY, QUEUES, LIMITS, STORAGE, LOG)


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of one broker. Building one checks every value and raises InvalidArgument."""

    # High availability, spelled as Qpid spells them.
    ha_cluster: bool = option(
        False, Bool(), "Join a cluster and start as a backup that waits for promotion.", group=HA
    )
    ha_brokers_url: Url = option(
        Url(), Urls(), "Addresses of all brokers of the cluster, without the virtual IP.", group=HA
    )
    ha_public_url: Url = option(
        Url(), Urls(), "Address that clients are told to use, usually the virtual IP.", group=HA
    )
    ha_refuse_clients: str = option(
        "auto",
        Choice(REFUSALS),
        "How a backup refuses clients: end the connection before it opens, tell them where the "
        "primary is, or by what a client says it understands.",
        group=HA,
    )
    ha_replicate: str = option(
        "none",
        Choice(REPLICATION_LEVELS),
        "Replication level of objects that do not name one.",
        group=HA,
    )
    ha_username: str = option("", Text(), "User name for links between brokers.", group=HA)
    ha_password: str = option(
        "", Text(), "Password for links between brokers.", group=HA, secret=True
    )
    ha_password_file: str = option(
        "", FilePath(), "File whose first line is the password for links between brokers.", group=HA
    )
    ha_mechanism: str = option(
        "",
        Choice(("", *MECHANISMS), OTHER_MECHANISMS),
        "SASL mechanism for links between brokers; empty picks the best.",
        group=HA,
    )
    ha_backup_timeout: int = option(
        10 * SECOND,
        Duration(),
        "Give up on backups that do not come, or confirm nothing, after this time.",
        group=HA,
    )
    ha_safety: str = option(
        "strict",
        Choice(SAFETY),
        "Require a majority for a promotion and for going on without a backup, or not.",
        group=HA,
    )
    ha_recorder: str = option(
        "brokers",
        Choice(RECORDERS),
        "Record the in-sync set with a majority of the brokers, or in the manager's store.",
        group=HA,
    )
    ha_min_in_sync: int = option(
        1,
        Integer(1),
        "Acknowledge nothing while fewer brokers, the primary included, are in sync.",
        group=HA,
    )
    ha_flow_messages: int = option(
        1000, Integer(), "Replication credit in transfers; 0 is unlimited.", group=HA
    )
    ha_flow_bytes: int = option(0, Size(), "Replication credit in bytes; 0 is 4 MB.", group=HA)
    ha_queue_replication: bool = option(
        False,
        Bool(),
        "Allow replicas of single queues, here and elsewhere; in a cluster they always are.",
        group=HA,
    )
    link_maintenance_interval: int = option(
        2 * SECOND, Duration(MILLISECOND), "Dial other brokers again after this time.", group=HA
    )
    federation_tag: str = option(
        "",
        Text(),
        "Mark messages that cross a link to another broker with this, the same on all brokers of a "
        "cluster; empty makes one up.",
        group=HA,
    )
    link_heartbeat_interval: int = option(
        120 * SECOND,
        Duration(),
        "Heartbeat on links between brokers; a peer silent for twice as long is lost. 0 is none.",
        group=HA,
    )
    link_connect_timeout: int = option(
        5 * SECOND,
        Duration(MILLISECOND),
        "Give up opening a link to another broker after this time.",
        group=HA,
    )
    name: str = option(
        "", Text(), "Name of this broker in logs and tables; empty is host:port.", group=HA
    )
    advertised_address: str = option(
        "",
        Text(),
        "host[:port] at which other brokers and clients reach this broker; empty finds it out.",
        group=HA,
    )
    log_memory: int = option(
        64 << 20,
        Size(),
        "Recent log kept in memory, so that a returning backup need not fetch everything.",
        group=HA,
    )

    port: int = option(5672, PORT, "TCP port to listen on; 0 is any free one.", group=NETWORK)
    interface: tuple[str, ...] = option(
        (),
        Words(),
        "Addresses or network interfaces to listen on; empty is all.",
        group=NETWORK,
        repeat=True,
    )
    listen_disable: tuple[str, ...] = option(
        (), Words(("tcp", "ssl")), "Transports not to listen on.", group=NETWORK, repeat=True
    )
    socket_fd: tuple[str, ...] = option(
        (),
        Words(),
        "File descriptors of sockets bound beforehand, used in place of port.",
        group=NETWORK,
        repeat=True,
    )
    connection_backlog: int = option(
        128,
        Integer(1, 65535),
        "Connections the kernel may keep waiting to be accepted.",
        group=NETWORK,
    )
    announce_product: str = option(
        "qpidha",
        Choice(PRODUCTS),
        "Product that clients are told in open. RabbitMQ's own AMQP 1.0 clients use no broker that "
        "does not call itself RabbitMQ.",
        group=NETWORK,
    )
    tcp_nodelay: bool = option(True, Bool(), "Send small writes at once.", group=NETWORK)
    max_connections: int = option(
        500, Integer(1, 1_000_000), "Client connections at the same time.", group=NETWORK
    )
    max_unauthenticated: int = option(
        100,
        Integer(1, 1_000_000),
        "Connections at the same time that were not let in yet. When there are more one is closed, "
        "the oldest from the address that has most of them; of IPv6 a network of 64 bits is one.",
        group=NETWORK,
    )
    max_negotiate_time: int = option(
        10 * SECOND,
        Duration(MILLISECOND, bare_unit=MILLISECOND),
        "How long TLS, SASL and open may take together.",
        group=NETWORK,
    )
    max_output_buffer: int = option(
        256 << 20,
        Size(64 << 10),
        "Bytes that may wait for one client that does not read, before it is disconnected.",
        group=NETWORK,
    )

    ssl_port: int = option(
        5671, PORT, "TCP port for TLS, open if ssl-cert is given; 0 is any free one.", group=TLS
    )
    ssl_cert: str = option(
        "", FilePath(), "PEM file with this broker's certificate and its chain.", group=TLS
    )
    ssl_key: str = option(
        "", FilePath(), "PEM file with the private key; empty if it is in ssl-cert.", group=TLS
    )
    ssl_key_password_file: str = option(
        "", FilePath(), "File whose first line is the password of the private key.", group=TLS
    )
    ssl_trusted: str = option(
        "",
        FilePath(),
        "PEM file of certificate authorities that vouch for clients and other brokers. Who has a "
        "certificate of theirs logs in by EXTERNAL without a password, as the name in it, be that "
        "in users-file or not; sasl-mechanisms can leave EXTERNAL out.",
        group=TLS,
    )
    ssl_require_client_authentication: bool = option(
        False, Bool(), "Refuse TLS clients without a certificate.", group=TLS
    )
    require_encryption: bool = option(
        False, Bool(), "Serve TLS only: the plain port is not opened.", group=TLS
    )

    auth: bool = option(
        True,
        Bool(),
        "Clients must authenticate. A broker that listens on the loopback only and has no users "
        "lets local programs in without.",
        group=SECURITY,
    )
    realm: str = option("QPID", Text(), "Suffix of user names, as in guest@QPID.", group=SECURITY)
    users_file: str = option("", FilePath(), "File of users and SCRAM verifiers.", group=SECURITY)
    sasl_mechanisms: tuple[str, ...] = option(
        (),
        Words(MECHANISMS, OTHER_MECHANISMS),
        "SASL mechanisms to offer; empty is all that apply.",
        group=SECURITY,
        repeat=True,
    )
    sasl_keytab: str = option(
        "",
        FilePath(),
        "Keytab with the key of this broker's service, which makes the broker offer logins by "
        "Kerberos (GSSAPI): any principal with a ticket for the service can log in, as the user "
        "user@REALM. Where sasl-mechanisms names GSSAPI, empty is the keytab of KRB5_KTNAME, or of "
        "the system.",
        group=SECURITY,
    )
    sasl_service_name: str = option(
        "amqp",
        Text(),
        "Name of this broker's service in Kerberos, as in amqp/host@REALM.",
        group=SECURITY,
    )
    sasl_plain_without_tls: bool = option(
        False,
        Bool(),
        "Offer PLAIN, which shows the password to whoever listens, without TLS too.",
        group=SECURITY,
    )

    acl_file: str = option(
        "",
        FilePath(),
        "File of rules, in Qpid's format, that say who may do what; without it who is in may do "
        "everything.",
        group=SECURITY,
    )
    connection_limit_per_user: int = option(
        0,
        QUOTA,
        "Connections of one user at the same time, where acl-file says nothing of him; 0 is any "
        "number.",
        group=SECURITY,
    )
    connection_limit_per_ip: int = option(
        0,
        QUOTA,
        "Connections from one address, of IPv6 from one network of 64 bits, at the same time; 0 is "
        "any number.",
        group=SECURITY,
    )
    max_queues_per_user: int = option(
        0,
        QUOTA,
        "Queues that one user may have created, where acl-file says nothing of him; 0 is any "
        "number.",
        group=SECURITY,
    )

    default_queue_limit: int = option(
        100 << 20, Size(), "qpid.max_size of queues that name none; 0 is no limit.", group=QUEUES
    )
    default_flow_stop_threshold: int = option(
        80,
        PERCENT,
        "Hundredths of a queue's limit beyond which senders wait, where the queue does not say; 0 "
        "is never.",
        group=QUEUES,
    )
    default_flow_resume_threshold: int = option(
        70,
        PERCENT,
        "Hundredths of a queue's limit with which senders go on, where the queue does not say.",
        group=QUEUES,
    )
    default_event_threshold_ratio: int = option(
        0,
        PERCENT,
        "Hundredths of a queue's limit at which an alert is told, where the queue does not say; 0 "
        "is never. Qpid's default is 80.",
        group=QUEUES,
    )
    default_message_group: str = option(
        "qpid.no-group",
        Text(),
        "Group of messages that name none, on queues with qpid.group_header_key that do not say.",
        group=QUEUES,
    )
    policy_file: str = option(
        "",
        FilePath(),
        "File of policies, as qpid-ha policy list -o json prints them, that are set where there "
        "never were any.",
        group=QUEUES,
    )
    consumer_timeout: int = option(
        0,
        Duration(),
        "Release messages that consumers keep for longer, where neither they nor the queue say for "
        "how long; 0 is never.",
        group=QUEUES,
    )
    max_queues: int = option(100_000, Integer(1), "Queues at the same time.", group=QUEUES)
    max_exchanges: int = option(
        10_000, Integer(1), "Exchanges at the same time, the built-in ones included.", group=QUEUES
    )
    max_bindings: int = option(10_000, Integer(1), "Bindings of one queue.", group=QUEUES)
    queue_patterns: tuple[str, ...] = option(
        (),
        Patterns(),
        "Make a queue for a client that attaches to an unknown name in which one of these is "
        "found. It goes when nobody uses it and nothing is on it.",
        group=QUEUES,
        repeat=True,
    )
    topic_patterns: tuple[str, ...] = option(
        (),
        Patterns(),
        "Make a topic exchange for a client that attaches to an unknown name in which one of these "
        "is found. It goes when nobody uses it. Of several patterns the longest decides.",
        group=QUEUES,
        repeat=True,
    )
    unroutable: str = option(
        "release",
        Choice(UNROUTABLE),
        "Release a message that an exchange has no queue for, or accept and drop it as Qpid does.",
        group=QUEUES,
    )

    durable_without_store: str = option(
        "refuse",
        Choice(WITHOUT_STORE),
        "Refuse durable queues, exchanges and subscriptions on a broker that has no data-dir, or "
        "accept them with a warning, and they are gone when it stops.",
        group=QUEUES,
    )

    max_frame_size: int = option(
        65536,
        Size(512, 2**32 - 1),
        "Largest AMQP frame taken from a peer; brokers take larger ones from each other.",
        group=LIMITS,
    )
    channel_max: int = option(
        255,
        Integer(0, 32767),
        "Highest channel number, so sessions of one connection less one.",
        group=LIMITS,
    )
    max_links: int = option(10_000, Integer(1), "Links of one connection.", group=LIMITS)
    max_message_size: int = option(100 << 20, Size(1), "Largest message taken.", group=LIMITS)
    session_max_unacked: int = option(
        5000, Integer(1), "Deliveries to one consumer that may await its disposition.", group=LIMITS
    )
    link_credit: int = option(
        1000, Integer(1), "Deliveries from one sender that may await an outcome.", group=LIMITS
    )
    link_credit_bytes: int = option(
        16 << 20,
        Size(1),
        "Bytes that one sender may have on their way, by the largest of its last messages.",
        group=LIMITS,
    )

    memory_limit: str = option(
        "60%",
        SizeOrShare(),
        "Memory for messages, the recent log and what waits for clients, in bytes or as a part of "
        "what the machine or the cgroup has. Near it messages are kept on disk only; above it "
        "senders get no credit.",
        group=LIMITS,
    )

    data_dir: str = option(
        "",
        FilePath(),
        "Directory for identity, state and write-ahead log; empty, as --no-data-dir has it, keeps "
        "nothing over a restart.",
        group=STORAGE,
        usual="the StateDirectory of a systemd unit, else /var/lib/qpidha for root and system "
        "accounts, ~/.qpidha for others",
    )
    journal_segment_size: int = option(
        16 << 20,
        Size(4096),
        "Size at which a file of the write-ahead log is followed by a new one.",
        group=STORAGE,
    )
    log_disk: int = option(
        256 << 20,
        Size(),
        "Log kept on disk beyond what recovery needs, for backups that return.",
        group=STORAGE,
    )
    queue_memory: int = option(
        64 << 20,
        Size(),
        "Bytes of message bodies that a queue keeps in memory; the rest is read back from "
        "disk. 0 is no limit.",
        group=STORAGE,
    )
    journal_events: str = option(
        "state",
        Choice(NOTE_LEVELS),
        "What goes into the event log: the broker's own life, also some messages, or all.",
        group=STORAGE,
    )
    journal_events_dir: str = option(
        "", FilePath(), "Directory for the event log; empty is <data-dir>/events.", group=STORAGE
    )
    journal_events_limit: int = option(
        2 << 30,
        Size(1 << 20),
        "Size of the event log, beyond which its oldest files are removed.",
        group=STORAGE,
    )
    journal_events_interval: int = option(
        60 * SECOND,
        Duration(MILLISECOND),
        "Time after which a file of the event log is closed, for others to read.",
        group=STORAGE,
    )
    journal_events_sampling: int = option(
        100, Integer(1), "With journal-events=sampled, one message in so many.", group=STORAGE
    )
    journal_events_queues: tuple[str, ...] = option(
        (),
        Words(),
        "Queues whose messages are logged, names or patterns such as orders.*; empty is all.",
        group=STORAGE,
        repeat=True,
    )
    disk_free_limit: int = option(
        50 << 20,
        Size(),
        "Accept no message while less space than this is left for data-dir.",
        group=STORAGE,
    )
    admin_socket: str = option(
        "",
        FilePath(),
        "Path of the UNIX socket for qpid-ha; empty is admin.sock in a data-dir that is given, "
        "else admin-<port>.sock in /run/qpidha or the user's runtime directory.",
        group=STORAGE,
    )
    admin_socket_group: str = option(
        "",
        Text(),
        "Group of this machine whose members may use the admin socket as root may; empty is none.",
        group=STORAGE,
    )
    pid_dir: str = option(
        "",
        FilePath(),
        "Directory for the file qpidd.PORT.pid with the broker's process id; empty is data-dir, or "
        "without one that of the admin socket.",
        group=STORAGE,
    )
    http_port: int = option(
        0,
        PORT,
        "TCP port on the loopback of a qpidha-console that the daemon starts and ends; 0 is none.",
        group=STORAGE,
    )
    http_consoles: tuple[str, ...] = option(
        (),
        Consoles(),
        "Addresses of all consoles of the cluster, for pages that go on at another; needs "
        "http-port.",
        group=STORAGE,
    )
    ready_fd: int = option(
        -1,
        Integer(-1, 65535),
        "File descriptor that gets the port number and is closed once clients are served.",
        group=STORAGE,
    )

    log_level: str = option(
        "notice+", LogSelectors(), "What to log.", group=LOG, name="log-enable", repeat=True
    )
    log_disable: str = option(
        "",
        LogSelectors(may_be_empty=True),
        "What not to log, although log-enable says so; what is critical always is.",
        group=LOG,
        repeat=True,
    )
    log_format: str = option("text", Choice(("text", "json")), "Form of a log line.", group=LOG)
    log_to_file: str = option(
        "", FilePath(), "File to append the log to; empty is standard error.", group=LOG
    )
    log_to_stderr: bool = option(
        False, Bool(), "Log to standard error, too, where another place is set.", group=LOG
    )
    log_to_stdout: bool = option(False, Bool(), "Log to standard output.", group=LOG)
    log_to_syslog: bool = option(
        False, Bool(), "Log to the syslog of this machine (/dev/log).", group=LOG
    )
    syslog_name: str = option("qpidhad", Text(), "Name in lines of syslog.", group=LOG)
    syslog_facility: str = option("daemon", Facility(), "Facility of lines of syslog.", group=LOG)

    def __post_init__(self) -> None:
        """Check each value by itself; what several options mean together is checked by `load`."""
        for field, described in _FIELDS:
            value = getattr(self, field)
            if not described.kind.check(value):
                raise InvalidArgument(
                    f"{described.name} = {value!r} is not accepted",
                    hint=f"give {described.kind.accepts}",
                )

    @property
    def anonymous(self) -> bool:
        """Whether clients get in without a login: where `auth` is off, and where there are no users
        and only programs of this machine reach the broker.
        """
        return not self.auth or (not self.has_logins and self.is_local)

    @property
    def has_logins(self) -> bool:
        """Whether somebody could log in: users, under TLS who has a certificate, or who has a
        ticket.
        """
        shows_tls = self.ssl_cert and "ssl" not in self.listen_disable
        return bool(self.users_file or (self.ssl_trusted and shows_tls) or self.offers_kerberos)

    @property
    def offers_kerberos(self) -> bool:
        """Whether clients may log in by Kerberos."""
        return bool(self.auth) and (
            GSSAPI in self.sasl_mechanisms if self.sasl_mechanisms else bool(self.sasl_keytab)
        )

    @property
    def is_local(self) -> bool:
        """Whether the broker listens on the loopback only; nobody knows of sockets of others."""
        names = [name.strip("[]") for name in self.interface]
        return bool(names) and not self.socket_fd and all(map(_is_of_loopback, names))

    @classmethod
    def load(
        cls,
        file_text: str | None,
        env: Mapping[str, str],
        argv: Sequence[str],
        *,
        file_name: str = "configuration file",
    ) -> tuple[Settings, list[str]]:
        """Settings from command line, else environment, else file, else default; and warnings for
        the operator.
        """
        files = [] if file_text is None else [(file_name, file_text)]
        settings, warnings, _ = load_with_origins(files, env, argv)
        return settings, warnings

    def __repr__(self) -> str:
        """Show what differs from the defaults, without secrets."""
        given = [
            f"{field}={'(secret)' if described.secret else repr(getattr(self, field))}"
            for field, described in _FIELDS
            if getattr(self, field) != DEFAULTS[field]
        ]
        return f"Settings({', '.join(given)})"


def _fields() -> tuple[tuple[str, Option], ...]:
    """Pair each field with its option, whose name is filled in."""
    pairs = []
    for field in dataclasses.fields(Settings):
        described: Option = field.metadata["option"]
        pairs.append(
            (
                field.name,
                dataclasses.replace(described, name=described.name or field.name.replace("_", "-")),
            )
        )
    return tuple(pairs)


_FIELDS = _fields()
OPTIONS: dict[str, Option] = {described.name: described for _, described in _FIELDS}
"""Options by name, in the order of their groups."""
FIELD_OF: dict[str, str] = {described.name: field for field, described in _FIELDS}
"""Option name -> field of Settings."""
DEFAULTS: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(Settings)}


def load_with_origins(
    files: Iterable[tuple[str, str]],
    env: Mapping[str, str],
    argv: Sequence[str],
    *,
    together: bool = True,
    data_dir: str = "",
) -> tuple[Settings, list[str], dict[str, str]]:
    """Do as `Settings.load` with several (name, text) files, the last winning; also say where each
    given option came from. Unless `together`, options may contradict each other. `data_dir` is the
    one of this process where none is given.
    """
    given, warnings = resolve(OPTIONS, files, env, argv)
    values = {"data_dir": data_dir} | {FIELD_OF[name]: one.value for name, one in given.items()}
    url = values.get("ha_brokers_url", Url())
    if url.user and values.get("ha_username", "") in ("", url.user):
        values["ha_username"] = url.user
        if not values.get("ha_password") and not values.get("ha_password_file"):
            values["ha_password"] = url.password
    settings = Settings(**values)
    if together:
        _check_together(settings, given)
    warnings.extend(_worries(settings, given))
    return settings, warnings, {name: one.source for name, one in given.items()}


def _refuse(given: Mapping[str, Given], name: str, why: str, hint: str) -> None:
    """Raise for a combination of options, naming the one to change and where it was set."""
    source = f" ({given[name].source})" if name in given else ""
    raise InvalidArgument(f"{name}{source}: {why}", hint=hint)


def _check_together(settings: Settings, given: Mapping[str, Given]) -> None:
    """Refuse combinations that cannot work."""
    _check_tls(settings, given)
    _check_login(settings, given)
    _check_ha(settings, given)
    if settings.http_consoles and not settings.http_port:
        _refuse(
            given,
            "http-consoles",
            "it is for the console that http-port has the daemon start",
            "set http-port, or give the list to the console: qpidha-console --consoles",
        )
    stop, resume = settings.default_flow_stop_threshold, settings.default_flow_resume_threshold
    if stop and resume > stop:
        _refuse(
            given,
            "default-flow-resume-threshold",
            f"senders would go on at {resume} % and wait beyond {stop} %",
            "give no more than default-flow-stop-threshold",
        )
    if settings.advertised_address:
        try:
            parse_address(settings.advertised_address)
        except ValueError as error:
            _refuse(given, "advertised-address", str(error), "give host or host:port")


def _check_tls(settings: Settings, given: Mapping[str, Given]) -> None:
    """Refuse options of TLS without what they need."""
    tls = bool(settings.ssl_cert)
    if settings.require_encryption and not tls:
        _refuse(
            given,
            "require-encryption",
            "there is no TLS without a certificate",
            "set ssl-cert, or require-encryption=no",
        )
    if not tls:
        for name in ("ssl-key", "ssl-key-password-file", "ssl-require-client-authentication"):
            if getattr(settings, FIELD_OF[name]):
                _refuse(
                    given,
                    name,
                    "it needs ssl-cert",
                    "set ssl-cert to the PEM file of this broker's certificate",
                )
    if settings.ssl_require_client_authentication and not settings.ssl_trusted:
        _refuse(
            given,
            "ssl-require-client-authentication",
            "no authority is trusted",
            "set ssl-trusted to a PEM file of authorities",
        )
    if tls and settings.port == settings.ssl_port != 0 and not settings.require_encryption:
        _refuse(
            given,
            "ssl-port",
            f"it is the same as port ({settings.port})",
            "give TLS a port of its own, such as 5671",
        )


def _check_login(settings: Settings, given: Mapping[str, Given]) -> None:
    """Refuse options with which no client, or every client, could log in."""
    if settings.auth and not settings.has_logins:
        useless = [name for name in FOR_USERS if name in given]
        if useless or settings.ha_username:
            _refuse(
                given,
                next(iter(useless), "ha-brokers-url"),
                f"it is for users who log in, and {_why_no_logins(settings)}",
                f"{USERS_HINT}, or auth=no where nobody is to log in",
            )
        if not settings.anonymous:
            _refuse(
                given,
                "auth",
                f"no client could log in: {_why_no_logins(settings)}, and the broker listens "
                "beyond the loopback (auth=yes is the default)",
                f"{USERS_HINT}; or interface=127.0.0.1, for programs of this machine alone; or "
                "auth=no, and whoever reaches the port may use every queue",
            )
    is_plain_only = (
        not settings.anonymous and not settings.ssl_cert and not settings.sasl_plain_without_tls
    )
    if is_plain_only and settings.sasl_mechanisms == ("PLAIN",):
        _refuse(given, "sasl-mechanisms", "no client could log in: PLAIN needs TLS", PLAIN_HINT)
    if not settings.anonymous and "ANONYMOUS" in settings.sasl_mechanisms:
        _refuse(
            given,
            "sasl-mechanisms",
            "ANONYMOUS contradicts auth=yes",
            "leave ANONYMOUS out, or set auth=no",
        )


def _why_no_logins(settings: Settings) -> str:
    """Say why nobody could log in."""
    if not settings.ssl_trusted:
        return "there are no users"
    return "there are no users (ssl-trusted lets clients in where ssl-cert opens a port for TLS)"


def _check_ha(settings: Settings, given: Mapping[str, Given]) -> None:
    """Refuse options of a cluster that contradict each other."""
    for name in ("ha-password", "ha-password-file"):
        if getattr(settings, FIELD_OF[name]) and not settings.ha_username:
            _refuse(given, name, "it needs ha-username", "set ha-username too")
    if settings.ha_password and settings.ha_password_file:
        _refuse(given, "ha-password-file", "ha-password is given too", "leave one of them out")
    if (
        settings.ha_cluster
        and not settings.anonymous
        and len(settings.ha_brokers_url) > 1
        and not settings.ha_username
    ):
        _refuse(
            given,
            "auth",
            "the brokers could not log in to each other, and none could be promoted",
            "set ha-username and ha-password, of a user of users-file; or ha-username to the name "
            "in the brokers' certificates",
        )
    if settings.ha_cluster and not settings.anonymous:
        _check_ha_mechanism(settings, given)
    if settings.ha_recorder == "manager" and settings.ha_safety != "strict":
        _refuse(
            given,
            "ha-recorder",
            "with ha-safety=trust-manager no set is recorded before it is in force: "
            "there is nothing for the store",
            "set ha-safety=strict, or leave ha-recorder out",
        )
    brokers = len(settings.ha_brokers_url)
    places = [address.host_port for address in settings.ha_brokers_url]
    repeated = next((place for place in places if places.count(place) > 1), "")
    if repeated:
        _refuse(given, "ha-brokers-url", f"{repeated} is listed twice", "list each broker once")
    if settings.ha_cluster and settings.ha_min_in_sync > max(brokers, 1):
        _refuse(
            given,
            "ha-min-in-sync",
            f"there are only {brokers} brokers in ha-brokers-url, so nothing would ever "
            "be acknowledged",
            "lower it, or add brokers",
        )


def _check_ha_mechanism(settings: Settings, given: Mapping[str, Given]) -> None:
    """Refuse a mechanism by which no broker would let another one in, or be sure of it."""
    mechanism, name = settings.ha_mechanism, "ha-mechanism"
    if mechanism == "ANONYMOUS":
        why = "ANONYMOUS contradicts auth=yes"
        _refuse(given, name, why, "leave it out, or set auth=no")
    why = f"no broker could log in to another one: {mechanism} needs TLS"
    hint = "amqps: in ha-brokers-url"
    if any(not address.encrypted for address in settings.ha_brokers_url):
        if mechanism == "EXTERNAL":
            _refuse(given, name, why, f"use {hint}")
        if mechanism == "PLAIN" and not settings.sasl_plain_without_tls:
            _refuse(given, name, why, f"{PLAIN_HINT}, or {hint}")


def _worries(settings: Settings, given: Mapping[str, Given]) -> list[str]:
    """Legal combinations that an operator hardly wants."""
    worries = []
    if settings.ha_cluster and not settings.ha_brokers_url:
        worries.append(
            "ha-cluster=yes without ha-brokers-url: this broker knows no others, and no "
            "others can be its backups"
        )
    if settings.ha_cluster and not settings.data_dir:
        worries.append(
            "ha-cluster=yes without data-dir: this broker forgets its identity and its "
            "promises when it stops"
        )
    is_inside = bool(settings.data_dir) and "data-dir" in given and not settings.admin_socket
    if settings.admin_socket_group and is_inside:
        worries.append(
            f"admin-socket is in data-dir: the group {settings.admin_socket_group} may not be able "
            "to enter it. Set admin-socket to a path in a folder that everybody may enter"
        )
    has_two = (
        settings.ha_cluster and settings.ha_safety == "strict" and len(settings.ha_brokers_url) == 2
    )
    if has_two and settings.ha_recorder == "brokers":
        worries.append(
            "ha-safety=strict needs a majority: of two brokers neither can be promoted, "
            "nor go on alone, without the other. "
            "Set ha-recorder=manager where the cluster manager keeps the record "
            "(Pacemaker, the built-in manager), or add a third broker, "
            "or set ha-safety=trust-manager where the cluster manager fences"
        )
    if settings.ha_cluster and 1 < settings.ha_min_in_sync == len(settings.ha_brokers_url):
        worries.append(
            f"ha-min-in-sync={settings.ha_min_in_sync} of as many brokers: when any one "
            "is away nothing is acknowledged"
        )
    if settings.ha_cluster and settings.ha_replicate == "none":
        worries.append(
            "ha-replicate=none: only queues that ask for it with qpid.replicate are replicated"
        )
    heartbeat = settings.link_heartbeat_interval
    if settings.ha_cluster and heartbeat == 0:
        worries.append("link-heartbeat-interval=0: a hung broker is never noticed")
    if settings.ha_cluster and heartbeat > LONG_HEARTBEAT:
        worries.append(
            f"link-heartbeat-interval={heartbeat // SECOND}: a hung broker is noticed after "
            f"{2 * heartbeat // SECOND} s. Set it to 1"
        )
    for more in (
        _open_doors,
        _side_doors,
        _ticket_doors,
        _shown_passwords,
        _odd_brokers,
        _odd_selectors,
    ):
        worries += more(settings)
    return worries


def _open_doors(settings: Settings) -> list[str]:
    """Warn if strangers may use every queue."""
    if settings.auth or settings.is_local:
        return []
    url = ", and at the addresses of ha-brokers-url" if settings.ha_cluster else ""
    return [
        "auth=no: whoever reaches this host may use every queue, and who is on this "
        f"machine{url} may do everything. Set users-file and auth=yes, or interface to an address "
        "that only you reach"
    ]


def _side_doors(settings: Settings) -> list[str]:
    """Warn if users have passwords, and certificates do without, and nobody has said so."""
    offers_external = settings.ssl_trusted and settings.ssl_cert and not settings.sasl_mechanisms
    is_open = offers_external and "ssl" not in settings.listen_disable and not settings.acl_file
    if not (settings.auth and settings.users_file and is_open):
        return []
    return [
        "ssl-trusted: whoever has a certificate of these authorities, such as a broker's, logs in "
        "without a password, be he in users-file or not. Set acl-file, or sasl-mechanisms without "
        "EXTERNAL, or with it if that is meant"
    ]


def _ticket_doors(settings: Settings) -> list[str]:
    """Warn if every principal of a realm may use every queue, or a keytab has no effect."""
    if settings.sasl_keytab and not settings.offers_kerberos:
        why = "sasl-mechanisms without GSSAPI" if settings.auth else "auth=no"
        then = "Add GSSAPI there" if settings.auth else "Set auth=yes"
        return [f"sasl-keytab has no effect with {why}. {then}, or leave it out"]
    if not settings.offers_kerberos or settings.acl_file:
        return []
    return [
        "GSSAPI is offered without acl-file: every principal of the realm, and of realms that it "
        "trusts, may use every queue. Set acl-file, whose users are user@REALM"
    ]


def _is_of_loopback(interface: str) -> bool:
    return interface in ("lo", "localhost") or is_loopback(interface)


def _shown_passwords(settings: Settings) -> list[str]:
    """Warn if passwords cross the network as they are."""
    if not settings.sasl_plain_without_tls or settings.require_encryption:
        return []
    return ["sasl-plain-without-tls=yes: whoever listens on the network sees the passwords"]


def _odd_brokers(settings: Settings) -> list[str]:
    """Say what is wrong about how brokers reach each other."""
    worries = []
    encrypted = [str(address) for address in settings.ha_brokers_url if address.encrypted]
    if encrypted and not settings.ssl_cert:
        worries.append(
            f"ha-brokers-url has {encrypted[0]}, and without ssl-cert this broker speaks no TLS "
            "itself. Set ssl-cert, or leave amqps: and ssl: out"
        )
    user, other = settings.ha_username, settings.ha_brokers_url.user
    if other not in ("", user):
        worries.append(f"ha-username={user} is used, and not the user {other} of ha-brokers-url")
    has_password = settings.ha_password or settings.ha_password_file
    if user and not has_password and settings.ha_mechanism not in ("EXTERNAL", "ANONYMOUS"):
        worries.append(
            f"ha-username={user} without ha-password: only a client certificate lets this broker "
            "in at the others"
        )
    return worries


def _odd_selectors(settings: Settings) -> list[str]:
    """Name the selectors of the log that select nothing; qpidd has other categories."""
    return [
        f"{option}: no line is of category {name}; there are {', '.join(CATEGORIES)}"
        for option, value in (
            ("log-enable", settings.log_level),
            ("log-disable", settings.log_disable),
        )
        for name in (part.partition(":")[2].strip().lower() for part in value.split(","))
        if not any(category.startswith(name) for category in CATEGORIES)
    ]
