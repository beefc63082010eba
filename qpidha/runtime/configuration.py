"""Configuration: which files are read, and the settings that come of the daemon's whole
surroundings.

The node gets only `Settings`; here are the files and the few words of the command line that are no
settings.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

from qpidha.model.duration import SECOND
from qpidha.model.errors import InvalidArgument
from qpidha.model.exit_codes import CONFIG
from qpidha.model.options import FALSE, TRUE, Duration
from qpidha.model.password_file import password_in
from qpidha.model.paths import CONFIGURATION, QPIDD_CONFIGURATION, default_data_dir
from qpidha.model.settings import OPTIONS, Settings, load_with_origins
from qpidha.model.sources import RUNNING, WORDS, long_words
from qpidha.runtime.exits import CannotStart, reason_of
from qpidha.runtime.from_qpidd import Judgement, judge

MORE_FILES = "/etc/qpidha/conf.d/*.conf"
QPIDD = "qpidd"
"""The program by whose name --check is Qpid's: it tells whether the broker runs."""
LONGEST_WAIT = 10 * 86400 * SECOND
WITHOUT_CHECKS = ("print-config", "running", "quit", "kill")
"""Commands that work with options that contradict each other."""


@dataclass(slots=True)
class Configuration:
    """What the daemon is to do, and with which settings."""

    command: str = ""
    """check, print-config, version, help, running, quit or kill; empty is to serve."""
    tells_process: bool = False
    """Whether to print the id of the process that is ended."""
    daemon: bool = False
    """Whether to serve in the background."""
    wait: float = 600.0
    """Seconds that a start in the background, or an end, may take."""
    files: list[str] = field(default_factory=list)
    """What was read."""
    settings: Settings = field(default_factory=Settings)
    warnings: list[str] = field(default_factory=list)
    origins: dict[str, str] = field(default_factory=dict)
    judgement: Judgement | None = None
    """What a qpidd.conf means here, if that is asked."""


def configure(
    argv: Sequence[str], env: Mapping[str, str], *, uid: int | None = None, program: str = ""
) -> Configuration:
    """Read command line, environment and files, for a daemon of this user or of `uid` that is
    called by the name of `program`. Raises CannotStart.
    """
    found, config, qpidd, rest = _commands(argv, program)
    if found.command in ("help", "version"):
        return found
    if qpidd:
        if found.command != "check" or config:
            _refuse(
                "--from-qpidd is for --check, and takes the place of --config",
                f"write --check --from-qpidd {qpidd}",
            )
        found.judgement = judge(qpidd, _read(qpidd), rest)
        return found
    config = config or env.get("QPIDHA_CONFIG", "") or env.get("QPID_CONFIG", "")
    found.files = [config] if config else [*main_file(), *sorted(glob.glob(MORE_FILES))]
    may_contradict = found.command in WITHOUT_CHECKS
    try:
        found.settings, found.warnings, found.origins = load_with_origins(
            [(path, _read(path)) for path in found.files],
            env,
            rest,
            together=not may_contradict,
            data_dir=default_data_dir(env, os.getuid() if uid is None else uid),
        )
    except InvalidArgument as error:
        raise CannotStart(error.text, hint=error.hint, code=CONFIG) from error
    if found.settings.ha_password_file and not may_contradict:
        password = read_password("ha-password-file", found.settings.ha_password_file)
        found.settings = replace(found.settings, ha_password=password)
    return found


def main_file() -> list[str]:
    """Return the configuration file of this machine, if there is one: ours, else qpidd's."""
    return [path for path in (CONFIGURATION, QPIDD_CONFIGURATION) if os.path.exists(path)][:1]


def read_password(option: str, path: str) -> str:
    """Read the password in the first line of the file that an option names. Raises CannotStart."""
    try:
        with open(path, "rb") as file:
            return password_in(file.read())
    except (OSError, ValueError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else str(error)
        raise CannotStart(
            f"{option} {path} cannot be used: {reason}",
            hint="give a file whose first line is the password",
            code=CONFIG,
        ) from error


def _commands(argv: Sequence[str], program: str) -> tuple[Configuration, str, str, list[str]]:
    """Split the command line into what is to be done, the configuration file, qpidd's file and
    options. Raises CannotStart.
    """
    found, values = Configuration(), {"config": "", "from-qpidd": "", "wait": ""}
    rest: list[str] = []
    if {"-h", "--help"} & {*argv}:
        # It is there when all else is wrong.
        return Configuration("help"), "", "", rest
    try:
        words = long_words(OPTIONS, argv)
    except InvalidArgument as error:
        raise CannotStart(error.text, hint=error.hint, code=CONFIG) from error
    asked: list[str] = []
    while words:
        word = words.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        if word == RUNNING:
            asked.append("running")
        elif not word.startswith("--") or name not in WORDS:
            rest.append(word)
        elif name in values:
            value = value if equals else words.pop(0) if words else ""
            what = "seconds" if name == "wait" else "a file"
            hint = f"write --{name} {what.rpartition(' ')[2].upper()}"
            values[name] = value or _refuse(f"--{name} needs {what}", hint)
        elif name == "daemon":
            found.daemon = _is_on(name, value if equals else "yes")
        elif _is_on(name, value if equals else "yes"):
            asked.append("running" if (name, program) == ("check", QPIDD) else name)
    if values["wait"]:
        found.wait = _seconds(values["wait"])
    found.command = asked[-1] if asked else ""
    ending = [word for word in asked if word in ("quit", "kill")]
    if ending and "running" in asked:
        found.command, found.tells_process = ending[-1], True
    return found, values["config"], values["from-qpidd"], rest


def _is_on(name: str, value: str) -> bool:
    if value.lower() not in TRUE + FALSE:
        _refuse(f"--{name}={value}: it is neither yes nor no", f"write --{name} alone")
    return value.lower() in TRUE


def _seconds(text: str) -> float:
    kind = Duration(maximum=LONGEST_WAIT)
    hint = f"wait takes {kind.accepts}, at most ten days"
    try:
        wait = kind.parse(text)
    except ValueError as error:
        _refuse(f"--wait={text}: {error}", hint)
    if not kind.check(wait):
        _refuse(f"--wait={text} is out of range", hint)
    return wait / SECOND


def _refuse(text: str, hint: str) -> NoReturn:
    raise CannotStart(f"{text} (command line)", hint=hint, code=CONFIG)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise CannotStart(
            f"configuration file {path} cannot be read: {reason_of(error)}",
            hint="check the path and its permissions",
            code=CONFIG,
        ) from error
    except UnicodeDecodeError as error:
        raise CannotStart(
            f"configuration file {path} is not UTF-8 text: {error.reason}",
            hint="save it as UTF-8",
            code=CONFIG,
        ) from error
