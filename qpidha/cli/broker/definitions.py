"""`qpid-ha definitions`: the queues, exchanges, bindings and policies of a cluster in a file, and
from a file.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from qpidha.cli.app import add_group, settings_of
from qpidha.client.command.arguments import Options
from qpidha.client.command.ask import BrokerLink, Brokers, chosen, connect
from qpidha.client.command.exits import Failure
from qpidha.client.command.output import print_json, print_table, talk
from qpidha.model.broker_states import BACKUP_STATES
from qpidha.model.errors import RefusedRequest
from qpidha.model.exit_codes import CANNOT_CREATE, DATA_ERROR, NO, NO_INPUT, OK, USAGE
from qpidha.tools.definitions import (
    FAILED,
    Outcome,
    Present,
    Step,
    carry_out,
    exported,
    named,
    planned,
    read,
    written,
)
from qpidha.tools.foreign import Note, Translation, Verdict
from qpidha.tools.qpid_definitions import read as read_qpid
from qpidha.tools.rabbitmq_definitions import read as read_rabbitmq

STANDARD = "-"
"""In place of a file: standard input or output."""
HEADS = ("OUTCOME", "KIND", "NAME", "REASON")
NOTE_HEADS = ("VERDICT", "OF", "KEY", "REASON")
RABBITMQ, QPID = "rabbitmq", "qpid"
ORIGINS = (RABBITMQ, QPID)
"""Brokers whose definitions are read, beside those of this one."""
TEXT = "utf-8-sig"
"""UTF-8; the mark that some editors put before it is passed over."""


def add(app: typer.Typer) -> None:
    """Put the commands into the tree."""
    add_group(
        app,
        "definitions",
        "Queues, exchanges, bindings and policies in a file, and from a file.",
        {"export": _export, "import": _import},
    )


def _export(
    context: typer.Context,
    file: Annotated[str, typer.Argument(help="where to write them; - is standard output")] = "-",
) -> None:
    """Write the queues, exchanges, bindings and policies of a cluster as JSON.

    Messages are not part of it, nor is what ends with a connection, which is named. The primary is
    asked. A file is replaced when all is written.

    Example: qpid-ha definitions export orders.json
    """
    options = settings_of(context)
    link = primary_link(options)
    try:
        definitions, left = exported(link.call)
    finally:
        link.close()
    _write(file, written(definitions))
    for why in left:
        talk(options, f"left out: {why}")
    if file != STANDARD:
        talk(options, f"{len(definitions):,} definitions are in {file}")


def _import(
    context: typer.Context,
    file: Annotated[str, typer.Argument(help="what was exported; - is standard input")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="say what would be done, and do nothing")
    ] = False,
    skip: Annotated[
        bool,
        typer.Option(
            "--skip-if-unchanged", help="ask for nothing if the broker has all of it already"
        ),
    ] = False,
    origin: Annotated[
        str,
        typer.Option("--from", help="rabbitmq or qpid: read what these brokers' own tools wrote"),
    ] = "",
    vhost: Annotated[
        str, typer.Option(help="with --from rabbitmq: the virtual host whose objects are taken")
    ] = "",
) -> None:
    """Make a cluster have the queues, exchanges, bindings and policies of a file.

    Nothing is deleted, and it can be done again. Policies and what bindings say are changed; a
    queue or exchange that is there as something else stays as it is. A file with anything in it
    that no broker would take is refused as a whole.

    Of a file of RabbitMQ or Qpid each key is kept, mapped, ignored or left out, with the reason; -v
    shows those that are kept as well.

    Exit code: 0 the cluster has all of it; 1 something differs, was refused or was left out; 65 a
    bad file.

    Example: qpid-ha definitions import orders.json --dry-run
    """
    options = settings_of(context)
    found = _read(file, origin, vhost)
    definitions = found.definitions
    link = primary_link(options)
    try:
        steps = planned(definitions, Present.ask(link.call))
        is_there = all(step.outcome is Outcome.UNCHANGED for step in steps)
        if not dry_run and not (skip and is_there):
            try:
                carry_out(steps, link.call)
            except Failure as failure:
                _print_steps(options, steps, found.notes, dry_run=False, all_there=False)
                failure.hint = failure.hint or "import it again: what is there already stays"
                raise
    finally:
        link.close()
    _print_steps(options, steps, found.notes, dry_run=dry_run, all_there=skip and is_there)
    lost = any(note.verdict is Verdict.LEFT_OUT for note in found.notes)
    raise typer.Exit(NO if lost or any(step.outcome in FAILED for step in steps) else OK)


def primary_link(options: Options) -> BrokerLink:
    """Open a conversation with the primary: it alone has what is not replicated."""
    target = chosen(options)
    link = connect(target, options, follow=True)
    known = link.call("status")
    place = (known.get("primary") or {}).get("address", "")
    if known["state"] not in BACKUP_STATES or not place:
        return link
    link.close()
    return connect(Brokers(options, target, known).target(place), options)


def _read(file: str, origin: str, vhost: str) -> Translation:
    """Read a file of definitions, of this broker or of another one. Raises Failure."""
    if origin not in ("", *ORIGINS):
        raise Failure(USAGE, f"--from {origin!r} is not known", hint=f"one of {', '.join(ORIGINS)}")
    if vhost and origin != RABBITMQ:
        raise Failure(
            USAGE, "--vhost is for files of RabbitMQ", hint="--from rabbitmq, or leave it out"
        )
    title = "standard input" if file == STANDARD else file
    text = _text_of(file)
    try:
        if origin == RABBITMQ:
            return read_rabbitmq(text, vhost)
        if origin == QPID:
            return read_qpid(text)
        return Translation(read(text))
    except RefusedRequest as error:
        raise Failure(
            DATA_ERROR,
            f"{title}: {error.text}",
            reason=error.reason,
            hint=f"{error.hint or 'mend it'}; nothing was changed",
        ) from None


def _text_of(file: str) -> str:
    try:
        if file == STANDARD:
            return sys.stdin.buffer.read().decode(TEXT)
        with open(file, "rb") as stream:
            return stream.read().decode(TEXT)
    except OSError as error:
        raise Failure(
            NO_INPUT, f"cannot read {file}: {error.strerror}", hint="name a file of definitions"
        ) from error
    except UnicodeDecodeError as error:
        raise Failure(
            DATA_ERROR, f"{file} is not text in UTF-8", hint="name a file of definitions"
        ) from error


def _write(file: str, text: str) -> None:
    """Write a file so that it is the former one until it is whole."""
    if file == STANDARD:
        sys.stdout.write(text)
        return
    folder = os.path.dirname(os.path.abspath(file))
    made = ""
    try:
        if os.path.exists(file) and not os.path.isfile(file):
            with open(file, "w", encoding="utf-8") as device:
                device.write(text)
            return
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=folder, prefix=".definitions-", delete=False
        ) as stream:
            made = stream.name
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(made, file)
    except OSError as error:
        if made and os.path.exists(made):
            os.unlink(made)
        raise Failure(
            CANNOT_CREATE, f"cannot write {file}: {error.strerror}", hint="name another file"
        ) from error


def _print_steps(
    options: Options,
    steps: Sequence[Step],
    notes: Sequence[Note],
    *,
    dry_run: bool,
    all_there: bool,
) -> None:
    counts = Counter(step.outcome for step in steps)
    if options.as_json:
        print_json(
            {
                "schema_version": 1,
                "dry_run": dry_run,
                "counts": {outcome.value: counts[outcome] for outcome in Outcome},
                "definitions": [_row(step) for step in steps],
                "translation": [
                    {
                        "verdict": note.verdict.value,
                        "of": note.of,
                        "key": note.key,
                        "reason": note.reason,
                    }
                    for note in notes
                ],
            }
        )
    else:
        _print_notes(options, notes)
    if not options.as_json and not all_there and steps:
        print_table(
            HEADS,
            [
                [step.outcome, step.definition.kind, step.definition.name, _why(step)]
                for step in steps
            ],
        )
    told = ", ".join(f"{counts[outcome]:,} {outcome}" for outcome in Outcome if counts[outcome])
    talk(options, f"{'nothing was changed; it would be: ' if dry_run else ''}{told or 'nothing'}")


def _print_notes(options: Options, notes: Sequence[Note]) -> None:
    """Show what became of each key; what is said of many objects alike is one line."""
    alike: dict[tuple[Verdict, str, str], list[str]] = {}
    for note in notes:
        if note.verdict is not Verdict.KEPT or options.verbose:
            alike.setdefault((note.verdict, note.key, note.reason), []).append(note.of)
    if alike:
        print_table(
            NOTE_HEADS,
            [
                [verdict, of[0] if len(of) == 1 else named(of), key, reason]
                for (verdict, key, reason), of in alike.items()
            ],
        )
    counts = Counter(note.verdict for note in notes)
    told = ", ".join(f"{counts[verdict]:,} {verdict}" for verdict in Verdict if counts[verdict])
    if told:
        talk(options, f"of the file: {told}")


def _row(step: Step) -> dict[str, Any]:
    one = step.definition
    found: dict[str, Any] = {"kind": one.kind.value, "name": one.name}
    return found | {"outcome": step.outcome.value, "reason": step.reason, "hint": step.hint}


def _why(step: Step) -> str:
    return ". Try: ".join(part for part in (step.reason, step.hint) if part)
