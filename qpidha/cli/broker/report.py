"""`qpid-ha report`: the support bundle, one file with what is known of brokers, and no secret."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from qpidha.cli.app import settings_of
from qpidha.cli.doctor import diagnosis
from qpidha.client.command.arguments import Options
from qpidha.client.command.ask import Brokers, connect
from qpidha.client.command.exits import Failure
from qpidha.client.command.output import EPILOG, print_json, talk
from qpidha.client.command.passwords import PASSWORD
from qpidha.client.command.target import Target, local_cluster, resolve
from qpidha.model.exit_codes import CANNOT_CREATE, UNAVAILABLE
from qpidha.runtime.configuration import main_file
from qpidha.tools.bundle.archive import write
from qpidha.tools.bundle.host import host, versions
from qpidha.tools.bundle.local import LocalBroker, LocalFiles, process_at, running, tail
from qpidha.tools.bundle.masking import Masking

METHODS = (
    "status",
    "query",
    "members",
    "explain",
    "statistics",
    "list_queues",
    "list_exchanges",
    "list_bindings",
    "list_connections",
    "list_policies",
    "list_operator_policies",
    "acl",
)
"""What a broker is asked; all of them only read."""
LOG_TAIL = 1 << 20
README = """Support bundle of qpidha, made on {host} at {when} by `qpid-ha report`.

versions.json   qpidha, proton, Python, OpenSSL, kernel, packages of the host where it was made
host.json       CPUs, memory, limits of that host; Pacemaker, if it is there
doctor.json     what `qpid-ha version --doctor` finds on that host
status.json     status of all brokers of the cluster, as in `qpid-ha status --all -o json`
cluster/        files of a local cluster: its record and the log of its manager
BROKER/         what each broker answered, one file a method; and of brokers on that host:
  configuration.json  every option with its value and origin, command line, environment
  process.txt         what the kernel says of the process and its threads
  log.txt             the end of its log
  events.jsonl        the end of its event log
  data-dir.txt        names and sizes of its files

Passwords, private keys, verifiers and credentials in URLs are replaced by (secret).
What is not in it:
{missing}
"""
File = Annotated[
    str, typer.Option("-f", "--file", metavar="OUT", help="where to; OUT.tar.gz, by default here")
]


def add(app: typer.Typer) -> None:
    """Put the command into the tree."""
    app.command("report", epilog=EPILOG)(_report)


def _report(context: typer.Context, file: File = "") -> None:
    """Gather what somebody needs who helps: one file, which only you may read.

    Takes configuration with origins, status of all brokers, what the contacted brokers answer
    (queues, policies, connections, statistics), and of brokers of this machine the ends of their
    logs and event logs, their processes and limits. A broker that hangs, or is gone, is described
    by what is on this machine: name it with -b, or its file with --config. Secrets are masked.

    Example: qpid-ha report -f /tmp/b1.tar.gz -b node1
    """
    options = replace(settings_of(context), may_ask=False)
    when = time.strftime("%Y%m%dT%H%M%S%z")
    name = f"qpidha-report-{_plain(socket.gethostname())}-{when}"
    path = file or f"{name}.tar.gz"
    masking = Masking()
    masking.learn_environment(os.environ)
    masking.add(options.password, os.environ.get(PASSWORD, ""))
    gathered = _Gathered(options, masking)
    files = gathered.files()
    missing = gathered.missing
    text = README.format(
        host=socket.gethostname(),
        when=when,
        missing="".join(f"- {line}\n" for line in missing) or "- nothing is missing\n",
    )
    try:
        written = write(path, name, {"README.txt": text, **files}, masking)
    except OSError as error:
        raise Failure(
            CANNOT_CREATE,
            f"cannot write {path}",
            reason=error.strerror or "",
            hint="-f with a place that has room",
        ) from error
    missing = [masking.text(line) for line in missing]
    if options.as_json:
        print_json({"schema_version": 1, "file": path, "files": written, "missing": missing})
        return
    for line in missing:
        talk(options, f"not in it: {line}")
    print(path)


class _Gathered:
    """What was found, and `missing`, what was not."""

    def __init__(self, options: Options, masking: Masking) -> None:
        self.missing: list[str] = []
        self._options = options
        self._masking = masking
        self._silent: set[str] = set()
        """Folders of brokers that could not be asked how they are."""

    def files(self) -> dict[str, Any]:
        """Return all files by name: texts, or values for JSON."""
        files: dict[str, Any] = {"versions.json": versions(), "host.json": host()}
        files["doctor.json"] = diagnosis(self._options)
        targets, statuses = self._targets()
        files["status.json"] = {"schema_version": 1, "brokers": statuses}
        for label, target in targets.items():
            if label in self._silent:
                continue
            for method, answer in self._answers(label, target):
                files[f"{label}/{method}.json"] = answer
        for broker in self._local(targets):
            local = LocalFiles(broker, self._masking)
            files |= {f"{broker.label}/{name}": value for name, value in local.all().items()}
            self.missing += local.missing
        return files | self._cluster()

    def _targets(self) -> tuple[dict[str, Target], list[dict[str, Any]]]:
        """Find the brokers to describe, by the names of their folders; and how all are."""
        rows: list[dict[str, Any]] = []
        try:
            brokers = Brokers.find(self._options)
            for address, answer in brokers.statuses():
                is_failure = isinstance(answer, Failure)
                told = {"error": answer.explanation} if is_failure else answer
                rows.append({**told, "address": address})
                if is_failure:
                    self._silent.add(_plain(address))
                    self.missing.append(f"{address}: what it answers: {answer.explanation}")
            found = [(address, brokers.target(address)) for address in brokers.addresses]
            if brokers.first not in [target for _, target in found]:
                found.append((str(brokers.first), brokers.first))
        except Failure as failure:
            rows.append({"error": failure.explanation})
            self.missing.append(f"what brokers answer: {failure.explanation}")
            try:
                found = [(str(target), target) for target in resolve(self._options)]
            except Failure as unresolved:
                self.missing.append(unresolved.explanation)
                found = []
            self._silent |= {_plain(name) for name, _ in found}
        return {_plain(name): target for name, target in found}, rows

    def _answers(self, label: str, target: Target) -> Iterator[tuple[str, Any]]:
        """Ask a broker everything; one that does not answer in time is asked no more."""
        try:
            link = connect(target, self._options)
        except Failure as failure:
            self.missing.append(f"{label}: what it answers: {failure.explanation}")
            return
        try:
            for method in METHODS:
                try:
                    yield method, link.call(method)
                except Failure as failure:
                    self.missing.append(f"{label}: {method}: {failure.explanation}")
                    if failure.code >= UNAVAILABLE and not failure.condition:
                        return
        finally:
            link.close()

    def _local(self, targets: dict[str, Target]) -> Iterator[LocalBroker]:
        """Find the brokers of this machine: those that are asked by their sockets, those of the
        local cluster, that of --config, that of the usual file.
        """
        rows = {str(row["admin_socket"]): row for row in (local_cluster() or {}).get("brokers", [])}
        told = False
        for label, target in targets.items():
            if not target.socket:
                continue
            told = True
            row = rows.get(target.socket, {})
            pid = process_at(target.socket)
            found = running(label, pid) if pid else None
            if found is None:
                found = self._by_files(label, row)
                found.pid = pid
            found.log = found.log or str(row.get("log", ""))
            if found.arguments:
                yield found
            else:
                self.missing.append(
                    f"{label}: its files: it does not run, or is not yours; name its "
                    "configuration with --config"
                )
        if not told and (self._options.config or main_file()):
            yield self._by_files(next(iter(targets), "broker"), {})

    def _by_files(self, label: str, row: dict[str, Any]) -> LocalBroker:
        """Describe a broker by its configuration file."""
        config = self._options.config or str(row.get("config", ""))
        config = config or "".join(main_file())
        words = ["--config", os.path.abspath(config)] if config else []
        return LocalBroker(label, words, log=str(row.get("log", "")))

    def _cluster(self) -> dict[str, Any]:
        """Take the record of the local cluster and the logs of its manager."""
        found = local_cluster()
        if found is None:
            return {}
        files: dict[str, Any] = {"cluster/cluster.json": found}
        for path in sorted(Path(str(found["directory"])).glob("*.log")):
            try:
                files[f"cluster/{path.name}.txt"] = tail(str(path), LOG_TAIL)
            except OSError as error:
                self.missing.append(f"{path}: {error.strerror}")
        return files


def _plain(name: str) -> str:
    """Return a name that may be one of a folder."""
    return re.sub(r"[^\w.-]+", "_", name).strip("._") or "broker"
