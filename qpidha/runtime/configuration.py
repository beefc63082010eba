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

from qpidha.model.errors import InvalidArgument
from qpidha.model.exit_codes import CONFIG
from qpidha.model.password_file import password_in
from qpidha.model.paths import default_data_dir
from qpidha.model.settings import Settings, load_with_origins
from qpidha.model.sources import COMMANDS
from qpidha.runtime.exits import CannotStart, reason_of
from qpidha.runtime.from_qpidd import Judgement, judge

MAIN_FILE = "/etc/qpidha/qpidha.conf"
MORE_FILES = "/etc/qpidha/conf.d/*.conf"
WORDS = {f"--{command}": command for command in COMMANDS} | {"-v": "version", "-h": "help"}
"""Word of the command line -> the command that it stands for."""


@dataclass(slots=True)
class Configuration:
    """What the daemon is to do, and with which settings."""

    command: str = ""
    """check, print-config, version or help; empty is to serve."""
    settings: Settings = field(default_factory=Settings)
    warnings: list[str] = field(default_factory=list)
    origins: dict[str, str] = field(default_factory=dict)
    judgement: Judgement | None = None
    """What a qpidd.conf means here, if that is asked."""


def configure(
    argv: Sequence[str], env: Mapping[str, str], *, uid: int | None = None
) -> Configuration:
    """Read command line, environment and files, for a daemon of this user or of `uid`. Raises
    CannotStart.
    """
    command, config, qpidd, rest = _commands(argv)
    if command in ("help", "version"):
        return Configuration(command)
    if qpidd:
        if command != "check" or config:
            raise CannotStart(
                "--from-qpidd is for --check, and takes the place of --config (command line)",
                hint=f"write --check --from-qpidd {qpidd}",
                code=CONFIG,
            )
        return Configuration(command, judgement=judge(qpidd, _read(qpidd), rest))
    config = config or env.get("QPIDHA_CONFIG", "") or env.get("QPID_CONFIG", "")
    paths = (
        [config]
        if config
        else [path for path in (MAIN_FILE, *sorted(glob.glob(MORE_FILES))) if os.path.exists(path)]
    )
    try:
        settings, warnings, origins = load_with_origins(
            [(path, _read(path)) for path in paths],
            env,
            rest,
            together=command != "print-config",
            data_dir=default_data_dir(env, os.getuid() if uid is None else uid),
        )
    except InvalidArgument as error:
        raise CannotStart(error.text, hint=error.hint, code=CONFIG) from error
    if settings.ha_password_file and command != "print-config":
        password = read_password("ha-password-file", settings.ha_password_file)
        settings = replace(settings, ha_password=password)
    return Configuration(command, settings, warnings, origins)


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


def _commands(argv: Sequence[str]) -> tuple[str, str, str, list[str]]:
    """Split the command line into command, configuration file, qpidd's file and options."""
    command = ""
    files = {"--config": "", "--from-qpidd": ""}
    rest: list[str] = []
    words = list(argv)
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if word in WORDS:
            # help wins over everything, so that it is there when all else is wrong.
            command = WORDS[word] if command != "help" else command
        elif name in files:
            if not equals and not words:
                raise CannotStart(
                    f"{name} needs a file (command line)", hint=f"write {name} FILE", code=CONFIG
                )
            files[name] = value if equals else words.pop(0)
        else:
            rest.append(word)
    return command, files["--config"], files["--from-qpidd"], rest


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
