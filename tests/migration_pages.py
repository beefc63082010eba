"""Writes the lists of docs/from-qpid.md and from-rabbitmq.md: `python -m tests.migration_pages`.

What is there of the other broker is listed here or in the code; what becomes of it here is asked of
the code, so that a page is wrong as soon as that changes, and a test says so.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from qpidha.broker.vocabulary import TABLE, Entry, Fate, Kind
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

QPID_TOOLS = {
    "qpid-ha": "the words and exit codes of Qpid's, and more: [commands.md](commands.md)",
    "qpid-config": "as scripts know it, over AMQP 1.0: [qpid-tools.md](qpid-tools.md)",
    "qpid-stat": "as scripts know it, over AMQP 1.0: [qpid-tools.md](qpid-tools.md)",
    "qpid-route": "as scripts know it, over AMQP 1.0: [qpid-tools.md](qpid-tools.md)",
    "qpid-printevents": "as scripts know it, over AMQP 1.0: [qpid-tools.md](qpid-tools.md)",
    "qpid-send": "as scripts know it, over AMQP 1.0: [qpid-tools.md](qpid-tools.md)",
    "qpid-receive": "as scripts know it, over AMQP 1.0: [qpid-tools.md](qpid-tools.md)",
    "qpid-tool": "QMF is not spoken: `qpid-ha methods`, [management.md](management.md)",
    "qpid-queue-stats": "`qpid-ha top`, `qpid-ha queue list -w`",
    "qpid-cluster": "active-active clusters are not offered: `qpid-ha list`",
    "qpid-cluster-store": "`qpid-ha recover` says which broker has most",
    "qpid-perftest": "`qpid-ha bench`",
    "qpid-latency-test": "`qpid-ha bench`",
    "qpid-store-chk": "`qpid-ha journal verify`",
    "qpid-store-resize": "there is one log, which grows and is checkpointed: nothing to do",
    "qpid-qls-analyze": "`qpid-ha journal dump`",
    "qmf-tool": "QMF is not spoken: `qpid-ha methods`",
    "saslpasswd2": "`qpid-ha user add`; `qpid-ha user import` takes a sasldb over",
    "sasldblistusers2": "`qpid-ha user list`",
    "service qpidd": "systemd's unit ([packages.md](packages.md)), or the script `qpidd` of "
    "[rgmanager.md](rgmanager.md)",
    "service qpidd-primary": "the script `qpidd-primary` of [rgmanager.md](rgmanager.md)",
}
"""Tools of a Qpid installation, and what takes their place."""

NOTHING = "nothing of this is needed or offered"
RABBITMQCTL = {
    "autocomplete": "`qpid-ha completion`",
    "help": "`qpid-ha help`",
    "version": "`qpid-ha version`",
    "await_startup": "`qpid-ha wait --for state=ready`",
    "reset": "stop the broker and empty its data-dir, while all others are there",
    "rotate_logs": "`qpid-ha reload`, or SIGHUP: logs are opened anew",
    "shutdown": "stop the service; on the primary `qpid-ha switchover` first",
    "start_app": "start the service",
    "stop": "stop the service; on the primary `qpid-ha switchover` first",
    "stop_app": "stop the service",
    "wait": "`qpid-ha wait`",
    "await_online_nodes": "`qpid-ha wait --for ready=N`",
    "change_cluster_node_type": "all brokers have all of it",
    "cluster_status": "`qpid-ha list`, `qpid-ha status --all`",
    "force_boot": "`qpid-ha recover --promote`, with `--accept-loss` if it has to be",
    "force_reset": "stop the broker and empty its data-dir",
    "forget_cluster_node": "take it out of `ha-brokers-url` on every broker, one after the other; "
    "after a total failure `qpid-ha recover --promote --forget BROKER`",
    "join_cluster": "put it into `ha-brokers-url` on every broker, one after the other",
    "rename_cluster_node": "a broker is known by the id in its data-dir, whatever it is called",
    "update_cluster_nodes": "`ha-brokers-url` names all of them",
    "cancel_sync_queue": "backups catch up beside the traffic; nothing is held up",
    "sync_queue": "backups catch up by themselves: `qpid-ha lag`",
    "add_user": "`qpid-ha user add`",
    "authenticate_user": "`qpid-ha ping --user NAME`",
    "change_password": "`qpid-ha user add` again",
    "clear_password": "`qpid-ha user del`, where it logs in by a certificate",
    "clear_user_limits": "`quota` lines of the [acl-file](acl.md)",
    "delete_user": "`qpid-ha user del`",
    "list_user_limits": "`qpid-ha acl show`",
    "list_users": "`qpid-ha user list`",
    "set_user_limits": "`quota` lines of the [acl-file](acl.md)",
    "set_user_tags": "the user of `ha-username` is the administrator",
    "clear_permissions": "rules of the [acl-file](acl.md), then `qpid-ha reload`",
    "clear_topic_permissions": "rules of the [acl-file](acl.md), then `qpid-ha reload`",
    "list_permissions": "`qpid-ha acl show`",
    "list_topic_permissions": "`qpid-ha acl show`",
    "list_user_permissions": "`qpid-ha acl show`",
    "list_user_topic_permissions": "`qpid-ha acl show`",
    "list_vhosts": "a cluster for each virtual host",
    "set_permissions": "rules of the [acl-file](acl.md), then `qpid-ha reload`",
    "set_topic_permissions": "rules with `routingkey` of the [acl-file](acl.md)",
    "list_bindings": "`qpid-ha exchange show`, `qpid-ha definitions export`",
    "list_channels": "`qpid-ha session list`",
    "list_ciphers": NOTHING,
    "list_connections": "`qpid-ha connection list`",
    "list_consumers": "`qpid-ha subscription list`",
    "list_exchanges": "`qpid-ha exchange list`",
    "list_hashes": NOTHING,
    "list_node_auth_attempt_stats": "the metrics of logins ([metrics.md](metrics.md))",
    "list_queues": "`qpid-ha queue list`",
    "list_unresponsive_queues": "all queues are of one process: `qpid-ha ping`",
    "ping": "`qpid-ha ping`",
    "report": "`qpid-ha report`",
    "schema_info": NOTHING,
    "status": "`qpid-ha status`, `qpid-ha query`",
    "clear_global_parameter": NOTHING,
    "clear_parameter": NOTHING,
    "list_global_parameters": NOTHING,
    "list_parameters": NOTHING,
    "set_global_parameter": NOTHING,
    "set_parameter": "policies and operator policies; links to other brokers by federation",
    "clear_operator_policy": "`qpid-ha operator-policy clear`",
    "clear_policy": "`qpid-ha policy clear`",
    "list_operator_policies": "`qpid-ha operator-policy list`",
    "list_policies": "`qpid-ha policy list`",
    "set_operator_policy": "`qpid-ha operator-policy set`",
    "set_policy": "`qpid-ha policy set`",
    "add_vhost": "a cluster for each virtual host",
    "clear_vhost_limits": "`max-connections`, `max-queues` of the brokers",
    "delete_vhost": "a cluster for each virtual host",
    "list_vhost_limits": "`max-connections`, `max-queues` of the brokers",
    "restart_vhost": "a cluster for each virtual host",
    "set_vhost_limits": "`max-connections`, `max-queues` of the brokers",
    "set_vhost_tags": NOTHING,
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
    "enable_feature_flag": "features are enabled by themselves when all brokers know them",
    "list_feature_flags": "`qpid-ha status -o json`",
    "close_all_connections": "`qpid-ha connection close` for each",
    "close_all_user_connections": "`qpid-ha connection close` for each",
    "close_connection": "`qpid-ha connection close`",
    "eval": NOTHING,
    "eval_file": NOTHING,
    "exec": NOTHING,
    "force_gc": NOTHING,
    "resume_listeners": "`qpid-ha switchover` back",
    "suspend_listeners": "`qpid-ha switchover`: a backup takes no clients",
    "delete_queue": "`qpid-ha queue del`",
    "purge_queue": "`qpid-ha queue purge`",
    "hipe_compile": NOTHING,
    "node_health_check": "`qpid-ha check`, `/healthz` of [the console](console.md)",
}
"""Commands of rabbitmqctl 3.10, and what takes their place."""
RABBITMQ_QUEUES = {
    "grow": "put the broker into `ha-brokers-url`: each broker has all queues",
    "rebalance": "there is one primary: `qpid-ha switchover`",
    "shrink": "take the broker out of `ha-brokers-url`",
    "add_member": "put the broker into `ha-brokers-url`",
    "delete_member": "take the broker out of `ha-brokers-url`",
    "check_if_node_is_mirror_sync_critical": "`qpid-ha check synced`",
    "check_if_node_is_quorum_critical": "`qpid-ha check synced`",
    "peek": "`qpid-ha queue peek`",
    "quorum_status": "`qpid-ha list`",
    "stream_status": "streams are not offered",
    "reclaim_quorum_memory": NOTHING,
}
"""The same of rabbitmq-queues."""


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
                differs = f"default `{kind.show(ours)}`" if ours else "another default"
        is_word = name in OUTSIDE or name in WORDS or reason == OF_COMMAND_LINE
        if is_word or (is_ours and not differs and not known.note):
            same.append(name)
            continue
        if renamed:
            here, remark = f"`{renamed}`", ""
        elif is_ours:
            here, remark = differs or "taken", known.note
        elif reason is not None:
            here, remark = "ignored", known.note or reason
        else:
            here, remark = "refused", "leave it out"
        default = f"`{known.default}`" if known.default else ""
        rows.append(f"| `{name}` | {default} | {here} | {remark} |")
    head = ["| option | default of qpidd | here | |", "|---|---|---|---|"]
    alike = ", ".join(f"`{name}`" for name in same)
    return "\n".join([f"The same: {alike}.", "", *head, *rows])


def _names(entries: list[Entry]) -> str:
    return ", ".join(f"`{each.name}`" for each in entries)


def arguments(origin: str, kinds: tuple[Kind, ...]) -> str:
    """List the arguments that another broker has: those that are followed, and all others."""
    parts = []
    for kind in kinds:
        entries = [each for each in TABLE if each.kind is kind and each.origin == origin]
        known = [each for each in entries if each.fate is Fate.KNOWN]
        others = [each for each in entries if each.fate is not Fate.KNOWN]
        if not entries:
            continue
        parts.append(f"Followed ({kind.value}): {_names(known)}." if known else "")
        if others:
            rows = [f"| {kind.value} | here | instead |", "|---|---|---|"]
            for each in others:
                here = f"`{each.alias_of}`" if each.alias_of else f"refused: {each.text}"
                instead = each.text if each.alias_of else each.hint
                rows.append(f"| `{each.name}` | {here} | {instead} |")
            parts.append("\n".join(rows))
    return "\n\n".join(part for part in parts if part)


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
    rows = ["| tool | here |", "|---|---|"]
    for name, text in QPID_TOOLS.items():
        is_there = name in SCRIPTS
        is_promised = not text.startswith("as scripts know it")
        rows.append(f"| `{name}` | {text if is_there or is_promised else 'not there yet'} |")
    return "\n".join(rows)


def qpid_config_options() -> str:
    """List the options of qpid-config that stand for arguments."""
    rows = ["| option of `qpid-config add` | argument |", "|---|---|"]
    rows += [f"| `{name}` | `{argument}` |" for name, argument in (QPID_CONFIG | FLAGS).items()]
    return "\n".join(rows)


def rabbitmqctl() -> str:
    """List the commands of rabbitmqctl and rabbitmq-queues."""
    rows = ["| command | here |", "|---|---|"]
    rows += [f"| `rabbitmqctl {name}` | {text} |" for name, text in RABBITMQCTL.items()]
    rows += [f"| `rabbitmq-queues {name}` | {text} |" for name, text in RABBITMQ_QUEUES.items()]
    return "\n".join(rows)


def rabbitmq_definitions() -> str:
    """List what of an exported file is somewhere else, or not here."""
    rows = ["| in the file | here |", "|---|---|"]
    rows += [f"| `{name}` | {text} |" for name, text in (ELSEWHERE | DONE_OTHERWISE).items()]
    rows += [f"| exchange `{name}` | `{other}` |" for name, other in SAME_EXCHANGE.items()]
    return "\n".join(rows)


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
