"""The doctor: whether this installation, this machine and the brokers on it have what they need,
one line for each check, with what to do.

First what is installed of all that the package can use, and what is missing for which extra; then
the machine, for each broker of the contacted cluster that runs here, or for the configuration of
one that does not run yet; then how far apart the clocks of the members are.
"""

from __future__ import annotations

import os
import platform
import re
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

from qpidha.amqp.peer.engine import built
from qpidha.cli.host_checks import ERROR, GOOD, WARNING, Finding, Looked, check_clock, check_host
from qpidha.client.command.arguments import Options
from qpidha.client.command.ask import Brokers, ask, connect
from qpidha.client.command.exits import Failure
from qpidha.client.command.output import print_json, print_table, talk
from qpidha.client.command.ports import holders
from qpidha.client.command.target import Target, local_cluster, resolve
from qpidha.model.exit_codes import NO, OK
from qpidha.model.paths import CONFIGURATION, default_data_dir
from qpidha.model.settings import Settings
from qpidha.node import VERSION
from qpidha.runtime.configuration import configure, main_file
from qpidha.runtime.exits import CannotStart
from qpidha.tools.bundle.local import LocalBroker, process_at, running

PACKAGE = "qpidha"
DEVELOPMENT = ("dev", "docs")
"""Extras for those who change the package."""
REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*([^;]*)(?:;\s*(.*))?")
EXTRA = re.compile(r"extra == ['\"]([^'\"]+)['\"]")
EVERYTHING = "everything"
ASKED = 3
"""How often a clock is read: the quickest answer says most."""
APART = 1.0
"""Seconds that clocks may be apart: messages expire by them, and logs are read side by side."""


def doctor(options: Options) -> int:
    """Print what is there, what is not, and what is wrong; the exit code is 1 if the package lacks
    what it needs always, or a check found an error.
    """
    told = diagnosis(options)
    parts, checks = told["parts"], told["checks"]
    if options.as_json:
        print_json(told)
    else:
        heads = ("NAME", "FOR", "WANTED", "VERSION")
        print_table(
            heads, [[row["name"], row["for"], row["wanted"], row["version"]] for row in parts]
        )
        print()
        print_table(
            ("LEVEL", "BROKER", "CHECK", "FOUND"),
            [
                (row["level"], row["broker"], row["check"], f"{row['text']}{_try(row['hint'])}")
                for row in checks
            ],
        )
    missing = [row for row in parts if row["version"] is None]
    for extra in dict.fromkeys(str(row["for"]) for row in missing):
        names = ", ".join(str(row["name"]) for row in missing if row["for"] == extra)
        what = PACKAGE if extra == EVERYTHING else f"'{PACKAGE}[{extra}]'"
        talk(options, f"missing for {extra}: {names}. Try: pip install {what}")
    is_bad = any(row["for"] == EVERYTHING for row in missing)
    is_bad |= any(row["level"] == ERROR for row in checks)
    return NO if is_bad else OK


def diagnosis(options: Options) -> dict[str, Any]:
    """Return what is there, and what each check found."""
    checks = [
        {
            "broker": broker,
            "check": found.check,
            "level": found.level,
            "text": found.text,
            "hint": found.hint,
        }
        for broker, found in _examined(options)
    ]
    return {"schema_version": 1, "parts": _parts(), "checks": checks}


def _try(hint: str) -> str:
    return f". Try: {hint}" if hint else ""


# -- brokers --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Member:
    """A broker of the contacted cluster: what it is called, how it is reached, and its status, or
    why it gave none.
    """

    label: str
    target: Target
    answer: Any


def _examined(options: Options) -> Iterator[tuple[str, Finding]]:
    """Yield what each check found, with the broker that it is about; empty for the machine."""
    yield "", _proton()
    yield "", check_clock()
    members = _members(options)
    is_any_here = False
    for member in members:
        yield member.label, _answers(member)
        for found in _local(member):
            is_any_here = True
            yield member.label, found
    if not is_any_here:
        for found in _not_running(options.config):
            yield "", found
    for label, found in _clocks(options, members):
        yield label, found


def _proton() -> Finding:
    number, tls, sasl = built()
    with_sasl = "Cyrus SASL" if sasl else "simple SASL (PLAIN, EXTERNAL, ANONYMOUS)"
    text = f"{number}, built with{'' if tls else 'out'} TLS, with {with_sasl}"
    if tls:
        return Finding("proton", GOOD, text)
    return Finding(
        "proton",
        WARNING,
        f"{text}: brokers and qpid-ha do without, applications with its own classes have no TLS",
        "install OpenSSL's headers (libssl-dev), then pip install --force-reinstall "
        "--no-cache-dir python-qpid-proton",
    )


def _members(options: Options) -> list[_Member]:
    """Find the brokers of the contacted cluster; none if none was named, and none runs here."""
    try:
        brokers = Brokers.find(options)
    except Failure as failure:
        if not options.broker and local_cluster() is None:
            return []
        try:
            return [_Member(str(one), one, failure) for one in resolve(options)]
        except Failure as unresolved:
            return [_Member(options.broker, Target(), unresolved)]
    found = []
    for address, answer in brokers.statuses():
        try:
            found.append(_member(address, brokers.target(address), answer))
        except Failure as failure:
            found.append(_Member(address, Target(), failure))
    if brokers.first not in [member.target for member in found]:
        try:
            answer = ask(options, "status", target=brokers.first)
        except Failure as failure:
            answer = failure
        found.insert(0, _member(str(brokers.first), brokers.first, answer))
    return found


def _member(address: str, target: Target, answer: Any) -> _Member:
    name = "" if isinstance(answer, Failure) else str(answer.get("name", ""))
    return _Member(name or address, target, answer)


def _answers(member: _Member) -> Finding:
    if isinstance(member.answer, Failure):
        hint = member.answer.hint or f"qpid-ha report -b {member.target.socket or member.label}"
        return Finding("broker", ERROR, member.answer.explanation, hint)
    told = str(member.answer.get("version", "unknown"))
    text = f"{member.answer['state']}, version {told}"
    if told != VERSION:
        text += f"; installed here is {VERSION}"
        return Finding("broker", WARNING, text, "restart it at a good moment: docs/upgrade.md")
    return Finding("broker", GOOD, text)


def _local(member: _Member) -> Iterator[Finding]:
    """Look at a broker that runs on this machine, whether it answers or not; nothing for others."""
    target = member.target
    if target.socket:
        asked = [process_at(target.socket)]
    else:
        asked = [*holders(target.port)] if _is_here(target.host) else []
    for pid in filter(None, asked):
        broker = running(member.label, pid)
        if broker is not None:
            yield from _configured(broker)
            return
    rows = (local_cluster() or {}).get("brokers", [])
    config = next((str(row["config"]) for row in rows if row["admin_socket"] == target.socket), "")
    if any(asked):
        text = f"process {asked[0]} is no qpidhad, or cannot be looked at by this user"
        yield Finding("process", WARNING, text, "run this as root, or as the broker's user")
    elif config:
        yield from _configured(_stopped(config))


def _is_here(host: str) -> bool:
    """Whether a host is this machine: only its own addresses can be bound."""
    try:
        places = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM) if host else []
        for family, kind, _, _, place in places:
            with socket.socket(family, kind) as one:
                one.bind(place)
    except OSError:
        return False
    return bool(places)


def _not_running(config: str) -> Iterator[Finding]:
    """Look at this machine for a broker that is to run on it."""
    if config or main_file():
        yield from _configured(_stopped(config))
        return
    text = f"there is no {CONFIGURATION}: looked at with defaults"
    yield Finding("configuration", GOOD, text, "--config FILE, or -b with a broker that runs")
    settings = replace(Settings(), data_dir=default_data_dir(os.environ, os.getuid()))
    yield from check_host(Looked(settings))


def _stopped(config: str) -> LocalBroker:
    """Describe a broker that does not run; without a file it is that of the usual ones."""
    words = ["--config", os.path.abspath(config)] if config else []
    return LocalBroker("", words, dict(os.environ))


def _configured(broker: LocalBroker) -> Iterator[Finding]:
    """Check the machine for a broker, as it is configured."""
    try:
        found = configure(broker.absolute, broker.env, uid=broker.uid)
    except CannotStart as error:
        yield Finding("configuration", ERROR, error.text, error.hint)
        return
    for warning in found.warnings:
        yield Finding("configuration", WARNING, warning, "qpidhad --check")
    yield from check_host(Looked(found.settings, broker.pid, broker.directory))


# -- clocks ---------------------------------------------------------------------------------------


def _clocks(options: Options, members: list[_Member]) -> Iterator[tuple[str, Finding]]:
    """Compare the clock of each member that answers with the one here."""
    asked = [one for one in members if not isinstance(one.answer, Failure)]
    with ThreadPoolExecutor(max(len(asked), 1)) as threads:
        told = list(threads.map(lambda one: _ahead(options, one.target), asked))
    known = []
    for member, found in zip(asked, told, strict=True):
        if isinstance(found, str):
            yield member.label, Finding("skew", WARNING, f"its clock was not read: {found}")
            continue
        ahead, bound = found
        known.append(found)
        side = "ahead of" if ahead >= 0 else "behind"
        text = (
            f"{abs(ahead) * 1000:,.1f} ms {side} the clock here, give or take {bound * 1000:,.1f}"
        )
        is_far = abs(ahead) - bound > APART
        hint = "run chrony on both machines, or timedatectl set-ntp true" if is_far else ""
        yield member.label, Finding("skew", WARNING if is_far else GOOD, text, hint)
    if len(known) > 1:
        least, most = min(known), max(known)
        apart = most[0] - least[0]
        is_far = apart - most[1] - least[1] > APART
        text = f"the members' clocks are {apart * 1000:,.1f} ms apart at most"
        hint = "run chrony on all of them" if is_far else ""
        yield "", Finding("skew", WARNING if is_far else GOOD, text, hint)


def _ahead(options: Options, target: Target) -> tuple[float, float] | str:
    """Return by how many seconds a broker's clock is ahead of the one here, and how sure that is;
    or why nobody knows.
    """
    found = []
    try:
        link = connect(target, options)
        try:
            for _ in range(ASKED):
                begun = time.monotonic_ns(), time.time_ns()
                status = link.call("status")
                trip = time.monotonic_ns() - begun[0]
                if "wall_ns" not in status:
                    return f"version {status.get('version', 'unknown')} does not tell it"
                found.append((trip / 2e9, (status["wall_ns"] - begun[1] - trip // 2) / 1e9))
        finally:
            link.close()
    except Failure as failure:
        return failure.explanation
    bound, ahead = min(found)
    return ahead, bound


# -- what is installed ----------------------------------------------------------------------------


def _parts() -> list[dict[str, Any]]:
    python = platform.python_version()
    return [
        {"name": "python", "for": EVERYTHING, "wanted": "", "version": python},
        {"name": "openssl", "for": "TLS", "wanted": "", "version": _openssl()},
        *_requirements(),
    ]


def _openssl() -> str | None:
    try:
        found = import_module("ssl").OPENSSL_VERSION
    except ImportError:
        return None
    return str(found).removeprefix("OpenSSL ")


def _requirements() -> list[dict[str, Any]]:
    """List what the package says that it needs, with what is installed of it."""
    rows = []
    for text in _said():
        match = REQUIREMENT.match(text)
        assert match is not None
        name, wanted, marker = match[1], match[2].strip(), match[3] or ""
        extra = EXTRA.search(marker)
        reason = extra[1] if extra else EVERYTHING
        if reason not in DEVELOPMENT:
            rows.append({"name": name, "for": reason, "wanted": wanted, "version": _version(name)})
    return rows


def _said() -> list[str]:
    try:
        return requires(PACKAGE) or []
    except PackageNotFoundError:
        return []


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
