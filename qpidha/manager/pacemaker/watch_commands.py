"""What the watch tells Pacemaker, through Pacemaker's own commands: the score, a failure, the
in-sync record.

The commands cost 10 to 30 ms each and run beside the event loop. A failure is told at once,
whatever else is under way: an update of the score that is still running is ended first, so that it
cannot overtake the deletion. Knows nothing of the broker. Source: crm_attribute(8),
crm_resource(8), attrd_updater(8), crm_node(8), cibadmin(8) of Pacemaker 2.1.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Mapping, Sequence
from xml.etree.ElementTree import Element, SubElement, tostring

from qpidha.manager.in_sync_record import InSyncRecord
from qpidha.model.errors import QpidHaError

RECORD_NAME = "qpidha-in-sync"
"""Cluster property that holds the newest in-sync set; PROPERTY_SET is the set that it lies in."""
PROPERTY_SET = "qpidha"
ATTRIBUTE = "qpid-ready"
"""Node attribute of the style with two primitives."""
PATIENCE = 10.0
"""Seconds for a command."""
NO_SUCH_OBJECT = 105
"""Exit code of a query for what is not there."""
_SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


class CommandFailed(QpidHaError):
    """One of Pacemaker's commands did not do what it was asked."""

    def __init__(self, text: str, *, code: int = 0) -> None:
        super().__init__(text)
        self.code = code
        """Its exit code; 0 if it had none."""


def record_text(record: InSyncRecord) -> str:
    """Write a record as EPOCH:VERSION:ID,ID."""
    return f"{record.epoch}:{record.version}:{','.join(record.members)}"


def parse_record(text: str) -> InSyncRecord:
    """Read a record; an empty text is none. Raises ValueError."""
    if not text.strip():
        return InSyncRecord()
    epoch, version, members = text.strip().split(":", 2)
    return InSyncRecord(int(epoch), int(version), tuple(filter(None, members.split(","))))


def record_command(record: InSyncRecord, kept: InSyncRecord) -> list[str]:
    """Give the command that puts a record in the place of the one that is kept.

    Pacemaker compares and sets in one step, on the node that orders all changes: where another
    record is kept by now, or the partition is not quorate, it changes nothing and the exit code is
    NO_SUCH_OBJECT. So of two writers no late one wins.
    """
    there = f".//nvpair[@name='{RECORD_NAME}']"
    condition = (
        f"not({there})" if kept == InSyncRecord() else f"{there}[@value='{record_text(kept)}']"
    )
    config = Element("crm_config")
    pair = {
        "id": f"{PROPERTY_SET}-{RECORD_NAME}",
        "name": RECORD_NAME,
        "value": record_text(record),
    }
    SubElement(SubElement(config, "cluster_property_set", id=PROPERTY_SET), "nvpair", pair)
    where = f"/cib[@have-quorum='1']/configuration/crm_config[{condition}]"
    return [
        "cibadmin",
        "--modify",
        "--xpath",
        where,
        "--xml-text",
        tostring(config, encoding="unicode"),
    ]


Begun = tuple[list[str], "subprocess.Popen[bytes] | CommandFailed"]
"""A command, and its process or why there is none."""


class Pacemaker:
    """Pacemaker, as one resource on one node talks to it. `publish` is `promotion` or
    `attribute`.
    """

    def __init__(self, resource: str, node: str, publish: str) -> None:
        self.resource = resource
        self.node = node
        self.publish = publish
        self._environment: Mapping[str, str] = {
            **os.environ,
            "OCF_RESOURCE_INSTANCE": resource,
            "PATH": ":".join(filter(None, [os.environ.get("PATH", ""), _SYSTEM_PATH])),
        }
        self._updating: subprocess.Popen[bytes] | None = None
        self._closed = False

    def score_command(self, score: int | None) -> list[str]:
        """Give the command that sets a score, or deletes it."""
        if self.publish == "attribute":
            return [
                "attrd_updater",
                "-n",
                ATTRIBUTE,
                *(["-D"] if score is None else ["-U", str(score)]),
            ]
        return [
            "crm_attribute",
            "--promotion",
            *(["-D"] if score is None else ["-v", str(score)]),
            "-q",
        ]

    def fail_command(self) -> list[str]:
        """Give the command that tells a failure."""
        return ["crm_resource", "--fail", "--resource", self.resource, "--node", self.node]

    async def set_score(self, score: int | None) -> bool:
        """Set or delete the score and return True; raise CommandFailed. While a failure is being
        told, do nothing.
        """
        if self._closed:
            return False
        command = self.score_command(score)
        process = self._updating = self._start(command)
        try:
            await asyncio.to_thread(_finish, process, command)
        finally:
            self._updating = None
        return True

    def close(self) -> None:
        """Set no score from now on; an update that is under way ends."""
        self._closed = True
        if self._updating is not None:
            self._updating.kill()

    def tell_failure(self, *again: list[str]) -> list[Begun]:
        """Begin to delete the score and to tell the failure, or what of it is to be done `again`;
        `results_of` waits for it. Never waits.
        """
        self.close()
        begun: list[Begun] = []
        for command in again or (self.score_command(None), self.fail_command()):
            try:
                begun.append((command, self._start(command)))
            except CommandFailed as error:
                begun.append((command, error))
        return begun

    async def results_of(self, begun: Sequence[Begun]) -> list[tuple[list[str], str]]:
        """Wait for the commands of `tell_failure`; return which went wrong, and how. The score may
        be set again from now on.
        """
        wrong = []
        for command, process in begun:
            try:
                if isinstance(process, CommandFailed):
                    raise process
                await asyncio.to_thread(_finish, process, command)
            except CommandFailed as error:
                wrong.append((command, error.text))
        self._closed = False
        return wrong

    async def read_record(self) -> InSyncRecord:
        """Read the newest in-sync set from Pacemaker's store; raise CommandFailed."""
        command = [
            "crm_attribute",
            "--type",
            "crm_config",
            "--name",
            RECORD_NAME,
            "--query",
            "--quiet",
        ]
        text = await asyncio.to_thread(_finish, self._start(command), command, NO_SUCH_OBJECT)
        try:
            return parse_record(text)
        except ValueError as error:
            raise CommandFailed(
                f"the property {RECORD_NAME} is no in-sync record: {text.strip()!r}"
            ) from error

    async def write_record(self, record: InSyncRecord, kept: InSyncRecord) -> None:
        """Write an in-sync set if this partition is quorate and `kept` is still the one that is
        kept; raise CommandFailed.
        """
        quorum = ["crm_node", "-q"]
        if (await asyncio.to_thread(_finish, self._start(quorum), quorum)).strip() != "1":
            raise CommandFailed("the partition is not quorate")
        command = record_command(record, kept)
        try:
            await asyncio.to_thread(_finish, self._start(command), command)
        except CommandFailed as error:
            if error.code == NO_SUCH_OBJECT:
                raise CommandFailed(
                    "another in-sync set was recorded meanwhile, or the partition is no "
                    "longer quorate"
                ) from error
            raise

    async def ask(self, command: list[str], *fine: int) -> str:
        """Run a command and return what it printed, nothing for an exit code that is `fine`; raise
        CommandFailed.
        """
        return await asyncio.to_thread(_finish, self._start(command), command, *fine)

    def _start(self, command: list[str]) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._environment,
            )
        except OSError as error:
            raise CommandFailed(f"{command[0]}: {error.strerror}") from error


def _finish(process: subprocess.Popen[bytes], command: list[str], *fine: int) -> str:
    """Wait for a command and return what it printed; `fine` are exit codes that mean nothing was
    found.
    """
    try:
        out, err = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise CommandFailed(f"{' '.join(command)}: no end within {PATIENCE:g} s") from None
    if process.returncode in fine:
        return ""
    if process.returncode:
        lines = err.decode(errors="replace").strip().splitlines()
        said = f": {lines[-1]}" if lines else ""
        raise CommandFailed(
            f"{' '.join(command)}: exit code {process.returncode}{said}", code=process.returncode
        )
    return out.decode(errors="replace")
