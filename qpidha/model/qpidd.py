"""The options of qpidd: what each is without being given, and what it is to somebody who knows
qpidd and comes to this broker.

What becomes of an option here is not said in this table: settings.py and sources.py know. It adds
qpidd's default, and what differs though the name is the same. Reads nothing.
Source: Qpid src/qpid/broker/Broker.cpp, src/posix/QpiddBroker.cpp, src/qpid/acl/AclPlugin.cpp,
src/qpid/ha/HaPlugin.cpp, src/qpid/log/Options.cpp, src/qpid/sys/ssl/util.cpp,
src/qpid/linearstore/StorePlugin.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QpiddOption:
    """An option of qpidd."""

    default: str = ""
    """Without being given; empty is nothing, or what depends on the machine."""
    note: str = ""
    """What differs here."""
    is_missed: bool = False
    """Whether the note holds where the option is not given, too."""


QPIDD: dict[str, QpiddOption] = {
    # The daemon.
    "config": QpiddOption("/etc/qpid/qpidd.conf"),
    "daemon": QpiddOption("no"),
    "transport": QpiddOption("tcp"),
    "wait": QpiddOption("600"),
    "check": QpiddOption(),
    "quit": QpiddOption(),
    "kill": QpiddOption(),
    "pid-dir": QpiddOption(),
    "pidfile": QpiddOption(),
    "close-fd": QpiddOption(),
    "load-module": QpiddOption(),
    "module-dir": QpiddOption(),
    "no-module-dir": QpiddOption("no"),
    # The broker.
    "data-dir": QpiddOption(
        "~/.qpidd",
        "not qpidd's directory: its files are not read; qpid-ha migrate moves messages",
        is_missed=True,
    ),
    "no-data-dir": QpiddOption("no"),
    "paging-dir": QpiddOption(),
    "port": QpiddOption("5672"),
    "interface": QpiddOption(),
    "listen-disable": QpiddOption(),
    "protocols": QpiddOption(
        "", "AMQP 1.0 alone is spoken: clients of 0-10 need another library", is_missed=True
    ),
    "socket-fd": QpiddOption(),
    "worker-threads": QpiddOption(),
    "connection-backlog": QpiddOption("10"),
    "tcp-nodelay": QpiddOption("yes"),
    "max-negotiate-time": QpiddOption("10000"),
    "session-max-unacked": QpiddOption(
        "5000", "it counts for each consumer; in qpidd, for each session"
    ),
    "default-queue-limit": QpiddOption("104857600"),
    "default-flow-stop-threshold": QpiddOption("80"),
    "default-flow-resume-threshold": QpiddOption("70"),
    "default-event-threshold-ratio": QpiddOption(
        "80", "there are no threshold events unless you ask for them: set 80, or a policy"
    ),
    "default-message-group": QpiddOption("qpid.no-group"),
    "enable-timestamp": QpiddOption("no"),
    "queue-purge-interval": QpiddOption("600"),
    "max-purge-batch": QpiddOption("1000"),
    "queue-patterns": QpiddOption(),
    "topic-patterns": QpiddOption(),
    "domain": QpiddOption(),
    "known-hosts-url": QpiddOption("none"),
    "dtx-default-timeout": QpiddOption("60"),
    "dtx-max-timeout": QpiddOption("3600"),
    "replication-exchange-name": QpiddOption(),
    "watchdog-interval": QpiddOption(),
    "federation-tag": QpiddOption(),
    "link-maintenance-interval": QpiddOption("2"),
    "link-heartbeat-interval": QpiddOption(
        "120", "fractions of a second are kept; qpidd rounds less than a second to no heartbeat"
    ),
    # Management.
    "mgmt-enable": QpiddOption("yes"),
    "mgmt-publish": QpiddOption("yes"),
    "mgmt-qmf2": QpiddOption("yes"),
    "mgmt-qmf1": QpiddOption("no"),
    "mgmt-pub-interval": QpiddOption("10"),
    # Who may do what.
    "auth": QpiddOption("yes"),
    "realm": QpiddOption("QPID"),
    "sasl-config": QpiddOption(),
    "sasl-service-name": QpiddOption(
        "amqp", "it is used for AMQP 1.0 too; qpidd always uses amqp there"
    ),
    "require-encryption": QpiddOption("no", "the plain port is not opened at all"),
    "acl-file": QpiddOption(
        "", "a relative path is relative to this file's folder; in qpidd, to data-dir"
    ),
    "max-connections": QpiddOption("500"),
    "max-connections-per-user": QpiddOption("0"),
    "max-connections-per-ip": QpiddOption("0"),
    "connection-limit-per-user": QpiddOption("0"),
    "connection-limit-per-ip": QpiddOption("0"),
    "max-queues-per-user": QpiddOption("0"),
    # High availability.
    "ha-cluster": QpiddOption("no"),
    "ha-queue-replication": QpiddOption("no"),
    "ha-brokers-url": QpiddOption(),
    "ha-public-url": QpiddOption("", "backups also redirect clients to it"),
    "ha-replicate": QpiddOption("none"),
    "ha-username": QpiddOption("", "only this user may connect as a broker, promote and demote"),
    "ha-password": QpiddOption(),
    "ha-mechanism": QpiddOption(),
    "ha-backup-timeout": QpiddOption(
        "10", "it also applies to a connected backup that confirms nothing"
    ),
    "ha-flow-messages": QpiddOption("1000"),
    "ha-flow-bytes": QpiddOption("0"),
    # TLS.
    "ssl-port": QpiddOption("5671"),
    "ssl-cert-db": QpiddOption(),
    "ssl-cert-name": QpiddOption(),
    "ssl-cert-password-file": QpiddOption(),
    "ssl-require-client-authentication": QpiddOption("no"),
    "ssl-sasl-no-dict": QpiddOption("no"),
    "ssl-use-export-policy": QpiddOption("no"),
    # The log.
    "trace": QpiddOption("no"),
    "log-enable": QpiddOption(
        "notice+", "the categories are other ones: broker, events, ha, network, security, store"
    ),
    "log-disable": QpiddOption(),
    "log-time": QpiddOption("yes"),
    "log-level": QpiddOption("yes"),
    "log-source": QpiddOption("no"),
    "log-thread": QpiddOption("no"),
    "log-function": QpiddOption("no"),
    "log-hires-timestamp": QpiddOption("no"),
    "log-category": QpiddOption("yes"),
    "log-prefix": QpiddOption(),
    "log-to-stderr": QpiddOption(),
    "log-to-stdout": QpiddOption("no"),
    "log-to-file": QpiddOption(),
    "log-to-syslog": QpiddOption(),
    "syslog-name": QpiddOption(),
    "syslog-facility": QpiddOption(),
    # Stores, and what older versions had.
    "store-dir": QpiddOption(),
    "truncate": QpiddOption("no"),
    "wcache-page-size": QpiddOption("32"),
    "tpl-wcache-page-size": QpiddOption("4"),
    "efp-partition": QpiddOption("1"),
    "efp-file-size": QpiddOption("2048"),
    "overwrite-before-return": QpiddOption("no"),
    "journal-flush-timeout": QpiddOption("500ms"),
    "num-jfiles": QpiddOption("8"),
    "jfile-size-pgs": QpiddOption("24"),
    "tpl-num-jfiles": QpiddOption("8"),
    "tpl-jfile-size-pgs": QpiddOption("24"),
    "async-commit": QpiddOption(),
    "staging-threshold": QpiddOption(),
    "asyncqueue": QpiddOption(),
    "xml": QpiddOption(),
    "acl-query": QpiddOption(),
    "cluster-name": QpiddOption(),
    "cluster-url": QpiddOption(),
    "cluster-mechanism": QpiddOption(),
    "rdma-recv-buffer": QpiddOption(),
}
"""Options by name, in the order of qpidd's help."""
