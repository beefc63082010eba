"""The in-sync record in Pacemaker's store: a cluster property, replicated by Pacemaker to every
node.

It is written only while the partition is quorate, so that a minority cannot move it back, and only
in the place of the one that was read, so that a late writer cannot either. Two brokers have no
majority when one is gone, so this is what then says which of them had everything. The watch beside
the primary writes it; an operator's command reads it. Source: rules S2 and S3 in
docs/internals/safety.md.
"""

from __future__ import annotations

from qpidha.manager.in_sync_record import InSyncRecord
from qpidha.manager.pacemaker.watch_commands import (
    NO_SUCH_OBJECT,
    RECORD_NAME,
    parse_record,
    record_command,
)
from qpidha.manager.tool_runner import QUICK, ToolFailed, run
from qpidha.model.errors import InvalidArgument

QUERY = ("crm_attribute", "--type", "crm_config", "--name", RECORD_NAME, "--query", "--quiet")


def newest() -> InSyncRecord:
    """Say which set is kept; one without members if none is."""
    try:
        text = run(*QUERY, timeout=QUICK)
    except ToolFailed as error:
        if error.code == NO_SUCH_OBJECT:
            return InSyncRecord()
        raise
    try:
        return parse_record(text)
    except ValueError as error:
        hint = (
            f"crm_attribute --type crm_config --name {RECORD_NAME} --delete, and the "
            "brokers' own records count alone"
        )
        raise InvalidArgument(
            f"the cluster property {RECORD_NAME} is {text.strip()!r}, not EPOCH:VERSION:ID,ID",
            hint=hint,
        ) from error


def record(given: InSyncRecord) -> bool:
    """Keep a set if it is newer than the one that is kept and the partition is quorate; return
    whether it is the one that is kept.
    """
    if not given.members or not is_quorate():
        return False
    kept = newest()
    if given.order <= kept.order:
        return given == kept
    try:
        run(*record_command(given, kept))
    except ToolFailed as error:
        if error.code == NO_SUCH_OBJECT:
            return False  # Another writer came first, or quorum is lost.
        raise
    return True


def is_quorate() -> bool:
    """Whether this part of the cluster has a majority of the nodes."""
    return run("crm_node", "--quorum", timeout=QUICK).strip() == "1"
