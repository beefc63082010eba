"""Writes the lists of docs/from-qpid.md and from-rabbitmq.md: `python -m tests.migration_pages`.

What is there of the other broker is listed here or in the code; what becomes of it here is asked of
the code, so that a page is wrong as soon as that changes, and a test says so.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path

from qpidha.broker.vocabulary import TABLE, Fate, Kind
from qpidha.model.paths import SYSTEM_DATA
from qpidha.model.qpidd import QPIDD
from qpidha.model.settings import DEFAULTS, FIELD_OF, OPTIONS
from qpidha.model.sources import OF_COMMAND_LINE, OLD_NAMES, WORDS, why_ignored
from qpidha.runtime.from_qpidd import OUTSIDE
from qpidha.tools.qpid_definitions import FLAGS
from qpidha.tools.qpid_definitions import OPTIONS as QPID_CONFIG
from qpidha.tools.rabbitmq_definitions import DONE_OTHERWISE, ELSEWHERE, SAME_EXCHANGE

ROOT = Path(__file__).parents[1]
WRITTEN = re.compile(
    r"(?<=<!-- )(?P<name>[\w-]+) begin(?P<rest>[^\n]*)\n.*?(?=<!-- (?P=name) end -->)", re.DOTALL
)
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]

SAME_TOOL = "the same options, output and exit codes, over AMQP 1.0: [qpid-tools.md](qpid-tools.md)"
QPID_TOOLS = {
    "qpid-ha": "Qpid's commands and exit codes, and more: [commands.md](commands.md)",
    "qpid-config": SAME_TOOL,
    "qpid-stat": SAME_TOOL,
    "qpid-route": SAME_TOOL,
    "qpid-printevents": SAME_TOOL,
    "qpid-send": SAME_TOOL,
    "qpid-receive": SAME_TOOL,
    "qpid-tool": "QMF is not spoken: `qpid-ha methods`, [management.md](management.md)",
    "qpid-queue-stats": "`qpid-ha top`, `qpid-ha queue list -w`",
    "qpid-cluster": "active-active clusters are not offered: `qpid-ha list`",
    "qpid-cluster-store": "`qpid-ha recover` shows which broker has most",
    "qpid-perftest": "`qpid-ha bench`",
    "qpid-latency-test": "`qpid-ha bench`",
    "qpid-store-chk": "`qpid-ha journal verify`",
    "qpid-store-resize": "not needed: there is one log, which grows and is checkpointed",
    "qpid-qls-analyze": "`qpid-ha journal dump`",
    "qmf-tool": "QMF is not spoken: `qpid-ha methods`",
    "saslpasswd2": "`qpid-ha user add`; `qpid-ha user import` takes a sasldb over",
    "sasldblistusers2": "`qpid-ha user list`",
    "service qpidd": "systemd's unit ([packages.md](packages.md)), or the script `qpidd` of "
    "[rgmanager.md](rgmanager.md)",
    "service qpidd-primary": "the script `qpidd-primary` of [rgmanager.md](rgmanager.md)",
}
"""Tools of a Qpid installation, and what takes their place."""

NO_ERLANG = "not offered: the broker does not run on Erlang"
NO_VHOSTS = "there are no virtual hosts: run a cluster for each"
VHOST_LIMITS = "`max-connections`, `max-queues` of the brokers"
NO_GLOBALS = "there are no global parameters: set the option on every broker"
ACL_RULES = "rules of the [acl-file](acl.md), then `qpid-ha reload`"
BY_URL = "put it into `ha-brokers-url` on every broker, one after the other"
RABBITMQCTL = {
    "autocomplete": "`qpid-ha completion`",
    "help": "`qpid-ha help`",
    "version": "`qpid-ha version`",
    "await_startup": "`qpid-ha wait --for state=ready`",
    "reset": "stop the broker and empty its data-dir, while all others are there",
    "rotate_logs": "`qpid-ha reload`, or SIGHUP: the log files are opened again",
    "shutdown": "stop the service; on the primary `qpid-ha switchover` first",
    "start_app": "start the service",
    "stop": "stop the service; on the primary `qpid-ha switchover` first",
    "stop_app": "stop the service",
    "wait": "`qpid-ha wait`",
    "await_online_nodes": "`qpid-ha wait --for ready=N`",
    "change_cluster_node_type": "not needed: every broker keeps everything",
    "cluster_status": "`qpid-ha list`, `qpid-ha status --all`",
    "force_boot": "`qpid-ha recover --promote`, with `--accept-loss` if it has to be",
    "force_reset": "stop the broker and empty its data-dir",
    "forget_cluster_node": "take it out of `ha-brokers-url` on every broker, one after the other; "
    "after a total failure `qpid-ha recover --promote --forget BROKER`",
    "join_cluster": BY_URL,
    "rename_cluster_node": "not needed: a broker is known by the id in its data-dir",
    "update_cluster_nodes": "not needed: `ha-brokers-url` names all brokers",
    "cancel_sync_queue": "not needed: clients are served while backups catch up",
    "sync_queue": "not needed: backups catch up by themselves; `qpid-ha lag`",
    "add_user": "`qpid-ha user add`",
    "authenticate_user": "`qpid-ha ping --user NAME`",
    "change_password": "`qpid-ha user add` again",
    "clear_password": "`qpid-ha user del`: a user who logs in by a certificate needs no password",
    "clear_user_limits": "`quota` lines of the [acl-file](acl.md)",
    "delete_user": "`qpid-ha user del`",
    "list_user_limits": "`qpid-ha acl show`",
    "list_users": "`qpid-ha user list`",
    "set_user_limits": "`quota` lines of the [acl-file](acl.md)",
    "set_user_tags": "not offered: the administrator is the user of `ha-username`",
    "clear_permissions": ACL_RULES,
    "clear_topic_permissions": ACL_RULES,
    "list_permissions": "`qpid-ha acl show`",
    "list_topic_permissions": "`qpid-ha acl show`",
    "list_user_permissions": "`qpid-ha acl show`",
    "list_user_topic_permissions": "`qpid-ha acl show`",
    "list_vhosts": NO_VHOSTS,
    "set_permissions": ACL_RULES,
    "set_topic_permissions": "the same, with `routingkey`",
    "list_bindings": "`qpid-ha exchange show`, `qpid-ha definitions export`",
    "list_channels": "`qpid-ha session list`",
    "list_ciphers": "`openssl ciphers`: TLS is that of the system's OpenSSL",
    "list_connections": "`qpid-ha connection list`",
    "list_consumers": "`qpid-ha subscription list`",
    "list_exchanges": "`qpid-ha exchange list`",
    "list_hashes": "not offered: passwords are stored as SCRAM verifiers",
    "list_node_auth_attempt_stats": "the metrics of logins: [metrics.md](metrics.md)",
    "list_queues": "`qpid-ha queue list`",
    "list_unresponsive_queues": "`qpid-ha ping`: one process serves all queues",
    "ping": "`qpid-ha ping`",
    "report": "`qpid-ha report`",
    "schema_info": "not offered: there is no Mnesia; `qpid-ha definitions export` has the objects",
    "status": "`qpid-ha status`, `qpid-ha query`",
    "clear_global_parameter": NO_GLOBALS,
    "clear_parameter": "`qpid-ha link del`, `qpid-ha route del`",
    "list_global_parameters": NO_GLOBALS,
    "list_parameters": "`qpid-ha link list`, `qpid-ha route list`",
    "set_global_parameter": NO_GLOBALS,
    "set_parameter": "`qpid-ha link add`, `qpid-ha route add`: for shovels and upstreams",
    "clear_operator_policy": "`qpid-ha operator-policy clear`",
    "clear_policy": "`qpid-ha policy clear`",
    "list_operator_policies": "`qpid-ha operator-policy list`",
    "list_policies": "`qpid-ha policy list`",
    "set_operator_policy": "`qpid-ha operator-policy set`",
    "set_policy": "`qpid-ha policy set`",
    "add_vhost": NO_VHOSTS,
    "clear_vhost_limits": VHOST_LIMITS,
    "delete_vhost": NO_VHOSTS,
    "list_vhost_limits": VHOST_LIMITS,
    "restart_vhost": NO_VHOSTS,
    "set_vhost_limits": VHOST_LIMITS,
    "set_vhost_tags": NO_VHOSTS,
    "trace_off": "`journal-events=state`",
    "trace_on": "`journal-events=full` writes every message's events",
    "decode": "passwords are in files of their own: `ha-password-file`",
    "encode": "passwords are in files of their own: `ha-password-file`",
    "environment": "`qpidhad --print-config`",
    "set_cluster_name": "`name` of each broker",
    "set_disk_free_limit": "`disk-free-limit`, and a restart",
    "set_log_level": "`log-enable`, then `qpid-ha reload`",
    "set_vm_memory_high_watermark": "`memory-limit`, and a restart",
    "export_definitions": "`qpid-ha definitions export`",
    "import_definitions": "`qpid-ha definitions import`, with `--from rabbitmq` for such files",
    "enable_feature_flag": "not needed: a feature is enabled when all brokers have it",
    "list_feature_flags": "`qpid-ha status -o json`",
    "close_all_connections": "`qpid-ha connection close` for each",
    "close_all_user_connections": "`qpid-ha connection close` for each",
    "close_connection": "`qpid-ha connection close`",
    "eval": NO_ERLANG,
    "eval_file": NO_ERLANG,
    "exec": NO_ERLANG,
    "force_gc": "not needed",
    "resume_listeners": "`qpid-ha switchover` back",
    "suspend_listeners": "`qpid-ha switchover`: a backup serves no clients",
    "delete_queue": "`qpid-ha queue del`",
    "purge_queue": "`qpid-ha queue purge`",
    "hipe_compile": NO_ERLANG,
    "node_health_check": "`qpid-ha check`, `/healthz` of [the console](console.md)",
}
"""Commands of rabbitmqctl 3.10, and what takes their place."""
RABBITMQ_QUEUES = {
    "grow": "put the broker into `ha-brokers-url`: each broker has all queues",
    "rebalance": "not needed: one primary serves all queues; `qpid-ha switchover` moves it",
    "shrink": "take the broker out of `ha-brokers-url`",
    "add_member": "put the broker into `ha-brokers-url`",
    "delete_member": "take the broker out of `ha-brokers-url`",
    "check_if_node_is_mirror_sync_critical": "`qpid-ha check synced`",
    "check_if_node_is_quorum_critical": "`qpid-ha check synced`",
    "peek": "`qpid-ha queue peek`",
    "quorum_status": "`qpid-ha list`",
    "stream_status": "streams are not offered",
    "reclaim_quorum_memory": "not needed",
}
"""The same of rabbitmq-queues."""


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table whose first column has names. Names with the same cells share a row."""
    names: dict[tuple[str, ...], list[str]] = {}
    for name, *cells in rows:
        names.setdefault(tuple(cells), []).append(f"`{name}`")
    lines = ["".join(f"| {column} " for column in columns) + "|", "|---" * len(columns) + "|"]
    for cells, same in names.items():
        lines.append("".join(f"| {cell} " for cell in (", ".join(same), *cells)) + "|")
    return "\n".join(lines).replace("|  |", "| |")


def qpid_options() -> str:
    """List the options of qpidd: the same ones, and what becomes of each other one."""
    same, rows = [], []
    for name, known in QPIDD.items():
        is_ours = name in OPTIONS
        reason = why_ignored(name)
        renamed = OLD_NAMES.get(name)
        differs = ""
        if is_ours and known.default:
            kind, ours = OPTIONS[name].kind, DEFAULTS[FIELD_OF[name]]
            if kind.parse(known.default) != ours:
                shown = kind.show(ours) or SYSTEM_DATA
                differs = f"default `{shown}`, in qpidd `{known.default}`"
        is_word = name in OUTSIDE or name in WORDS or reason == OF_COMMAND_LINE
        if is_word or (is_ours and not differs and not known.note):
            same.append(f"`{name}`")
        elif renamed:
            rows.append((name, f"`{renamed}`", ""))
        elif is_ours:
            rows.append((name, differs or "taken", known.note))
        elif reason is not None:
            rows.append((name, "ignored", known.note or reason))
        else:
            rows.append((name, "refused", "leave it out"))
    return f"The same: {', '.join(same)}.\n\n{table(('option', 'here', 'remark'), rows)}"


def arguments(origin: str, kinds: tuple[Kind, ...]) -> str:
    """List the arguments that another broker has: those that are followed, and all others."""
    parts = []
    for kind in kinds:
        entries = [each for each in TABLE if each.kind is kind and each.origin == origin]
        known = [f"`{each.name}`" for each in entries if each.fate is Fate.KNOWN]
        rows = [
            (each.name, f"`{each.alias_of}`", each.text)
            if each.alias_of
            else (each.name, f"refused: {each.text}", each.hint)
            for each in entries
            if each.fate is not Fate.KNOWN
        ]
        if known:
            parts.append(f"Followed ({kind.value}): {', '.join(known)}.")
        if rows:
            parts.append(table((kind.value, "here", "remark"), rows))
    return "\n\n".join(parts)


OF_BOTH = (Kind.QUEUE, Kind.EXCHANGE, Kind.BINDING)


def qpid_arguments() -> str:
    """List Qpid's arguments."""
    return arguments("Qpid", (*OF_BOTH, Kind.FILTER, Kind.SOURCE, Kind.TARGET))


def rabbitmq_arguments() -> str:
    """List RabbitMQ's arguments and keys of policies."""
    return arguments(
        "RabbitMQ", (*OF_BOTH, Kind.POLICY, Kind.FILTER, Kind.SOURCE, Kind.TARGET, Kind.LINK)
    )


def qpid_tools() -> str:
    """List Qpid's tools: those of the same name, and what takes the place of the others."""
    return table(("tool", "here"), QPID_TOOLS.items())


def qpid_config_options() -> str:
    """List the options of qpid-config that stand for arguments."""
    rows = [(name, f"`{argument}`") for name, argument in (QPID_CONFIG | FLAGS).items()]
    return table(("option of `qpid-config add`", "argument"), rows)


def rabbitmqctl() -> str:
    """List the commands of rabbitmqctl and rabbitmq-queues."""
    both = (("rabbitmqctl", RABBITMQCTL), ("rabbitmq-queues", RABBITMQ_QUEUES))
    return "\n\n".join(table((f"`{tool}`", "here"), rows.items()) for tool, rows in both)


def rabbitmq_definitions() -> str:
    """List what of an exported file is somewhere else, or not here."""
    rows = [*(ELSEWHERE | DONE_OTHERWISE).items()]
    rows += [(name, f"`{other}`") for name, other in SAME_EXCHANGE.items()]
    return table(("in the file", "here"), rows)


LISTS = {
    "qpid-options": qpid_options,
    "qpid-arguments": qpid_arguments,
    "qpid-tools": qpid_tools,
    "qpid-config": qpid_config_options,
    "rabbitmq-arguments": rabbitmq_arguments,
    "rabbitmqctl": rabbitmqctl,
    "rabbitmq-definitions": rabbitmq_definitions,
}
PAGES = {
    ROOT / "docs" / "from-qpid.md": ("qpid-options", "qpid-arguments", "qpid-tools", "qpid-config"),
    ROOT / "docs" / "from-rabbitmq.md": (
        "rabbitmq-arguments",
        "rabbitmqctl",
        "rabbitmq-definitions",
    ),
}


def page(path: Path) -> str:
    """Return a page with its lists as they are now."""
    return WRITTEN.sub(
        lambda found: f"{found['name']} begin{found['rest']}\n\n{LISTS[found['name']]()}\n\n",
        path.read_text(),
    )


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(page(path))
