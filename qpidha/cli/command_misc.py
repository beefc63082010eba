"""Small commands: version and completion."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from qpidha.cli.app import COMMANDS, settings_of
from qpidha.cli.exits import USAGE, Failure
from qpidha.cli.output import EPILOG, print_json

BASH = """_qpid_ha() {{ COMPREPLY=($(compgen -W "{words}" -- "${{COMP_WORDS[COMP_CWORD]}}")); }}
complete -F _qpid_ha qpid-ha"""
ZSH = """#compdef qpid-ha
compadd {words}"""
FISH = """complete -c qpid-ha -f -n __fish_use_subcommand -a "{words}\""""
SHELLS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def add(app: typer.Typer) -> None:
    """Put the commands into the tree."""
    app.command("version", epilog=EPILOG)(_version)
    app.command("completion", epilog=EPILOG)(_completion)


def _version(context: typer.Context) -> None:
    """Print the version of qpidha."""
    try:
        found = version("qpidha")
    except PackageNotFoundError:
        found = "unknown"
    if settings_of(context).as_json:
        print_json({"schema_version": 1, "version": found})
    else:
        print(f"qpid-ha (qpidha) {found}")


def _completion(context: typer.Context, shell: Annotated[str, typer.Argument(help="bash, zsh or fish")]) -> None:
    """Print a completion script: qpid-ha completion bash > /etc/bash_completion.d/qpid-ha"""
    if shell not in SHELLS:
        raise Failure(USAGE, f"no completion for {shell!r}", hint=f"one of {', '.join(SHELLS)}")
    print(SHELLS[shell].format(words=" ".join(COMMANDS)))
