"""`qpid-ha journal`: the write-ahead log of a stopped broker: is it sound, what is in it, and how
to get that out.
"""

from __future__ import annotations

import json
import os
import sys
from base64 import b64encode
from pathlib import Path
from typing import Annotated, Any

import typer

from qpidha.cli.app import add_group, settings_of
from qpidha.client.command.arguments import Options
from qpidha.client.command.exits import Failure
from qpidha.client.command.output import print_json, print_table, talk
from qpidha.ha.in_sync import SavedState
from qpidha.model.errors import LogDamaged, StateLost
from qpidha.model.exit_codes import DATA_ERROR, NO, NO_INPUT, NO_PERMISSION, OK, USAGE
from qpidha.store.codec import EnqueueRun
from qpidha.store.frames import BATCH, CHUNK
from qpidha.store.log_reader import LogReader
from qpidha.store.write_ahead_log import LOCAL_FOLDER, WriteAheadLog
from qpidha.tools.journal.compact import compact
from qpidha.tools.journal.content import Content, queue_names, records
from qpidha.tools.journal.files import Folder, Found, StoppedBroker, stopped_broker
from qpidha.tools.journal.salvage import Salvage, discarded_summary, salvage

Directory = Annotated[
    Path, typer.Argument(metavar="DIR", readable=False, help="the data-dir of a stopped broker")
]
FILE_COLUMNS = ("file", "frames", "records", "bytes", "first", "last", "state")
QUEUE_COLUMNS = ("queue", "messages", "bytes", "durable", "replicate")
DISCARDED_COLUMNS = ("name", "messages", "epoch", "first", "last", "bytes")


def add(app: typer.Typer) -> None:
    """Put the commands into the tree."""
    add_group(
        app,
        "journal",
        "Inspect, salvage and compact the write-ahead log of a stopped broker.",
        {"verify": _verify, "dump": _dump, "list": _list, "salvage": _salvage, "compact": _compact},
    )


def _verify(context: typer.Context, directory: Directory) -> None:
    """Check every frame of every file, and tell whether a broker can start from them.

    What only this broker has is in DIR/journal/local: give that, to this command or to dump, list
    and salvage, for its files.

    Exit code: 0 everything is sound; 1 a power cut left something unfinished, which a broker
    cuts off without losing anything; 65 something is damaged that had been synced.

    Example: qpid-ha journal verify /var/lib/qpidha
    """
    options = settings_of(context)
    with stopped_broker(directory) as stopped:
        folder = stopped.journal()
        damaged, torn = folder.problems()
        content = Content(folder)
        damaged += content.unread
        if not damaged:
            refusals, notes = _opening_problems(folder, stopped)
            damaged, torn = refusals, torn or notes
        local = stopped.local()
        if local is not None:
            bad, unfinished = local.problems()
            if not bad:
                bad, notes = _opening_problems(local, stopped)
                unfinished = unfinished or notes
            damaged += [f"{LOCAL_FOLDER}/ (what only this broker has): {each}" for each in bad]
            torn += [f"{LOCAL_FOLDER}/: {each}" for each in unfinished]
        damaged += _state_problems(stopped, content.epoch)
        rows = [_file_row(content, found, damaged, torn) for found in folder.files]
    verdict = "damaged" if damaged else "torn" if torn else "good"
    if options.as_json:
        print_json(
            {
                "schema_version": 1,
                "verdict": verdict,
                "damaged": damaged,
                "torn": torn,
                "files": rows,
            }
        )
    else:
        print_table(
            [column.upper() for column in FILE_COLUMNS],
            [[row[column] for column in FILE_COLUMNS] for row in rows],
        )
        if not rows:
            print("no files: a broker starts with nothing")
        for problem in damaged:
            print(f"damaged: {problem}")
        for problem in torn:
            print(
                f"unfinished: {problem}; a broker that starts cuts it off; if a power "
                "cut left it, nothing that was accepted is lost"
            )
        print(f"verdict: {verdict}")
    raise typer.Exit({"damaged": DATA_ERROR, "torn": NO}.get(verdict, OK))


def _opening_problems(folder: Folder, stopped: StoppedBroker) -> tuple[list[str], list[str]]:
    """Open it as a broker does, to nothing: it may refuse what is sound frame by frame."""
    reader = LogReader(
        WriteAheadLog(folder, stopped.system_id, segment_size=1 << 20, keep=0), stopped.system_id
    )
    try:
        for _ in reader.chunks():
            pass
    except LogDamaged as error:
        return [error.text], []
    return [], reader.notes


def _state_problems(stopped: StoppedBroker, epoch: int) -> list[str]:
    """Read the state file, without which no broker starts whose log is of an epoch; one that never
    was in a cluster needs none.
    """
    try:
        SavedState.decode(stopped.state, epoch)
    except StateLost as error:
        return [error.text]
    return []


def _file_row(
    content: Content, found: Found, damaged: list[str], torn: list[str]
) -> dict[str, Any]:
    count = 0
    for place in found.frames:
        if place.kind in (BATCH, CHUNK):
            count += sum(
                len(entry.sequences) if isinstance(entry, EnqueueRun) else 1
                for entry in content.entries(place)
            )
    batches = [place for place in found.frames if place.kind == BATCH]
    words = {"damaged": damaged, "torn": torn}
    state = next(
        (word for word, problems in words.items() if any(found.name in each for each in problems)),
        "good",
    )
    first, last = (
        (batches[0].first, batches[-1].last)
        if batches
        else (None, found.start if found.kind == "checkpoint" else None)
    )
    fields = {
        "file": found.name,
        "frames": len(found.frames),
        "records": count,
        "bytes": found.size,
        "first": first,
        "last": last,
    }
    return {**fields, "unread_bytes": found.unread, "state": state}


def _dump(
    context: typer.Context,
    directory: Directory,
    bodies: Annotated[
        bool, typer.Option("--bodies", help="print the bytes of each message too, in base64")
    ] = False,
    discarded: Annotated[
        str, typer.Option(help="read this discarded-... folder instead of the log")
    ] = "",
) -> None:
    """Print every record as a line of JSON, file by file.

    If a part of the write-ahead log is damaged, the rest is printed, and the exit code is 65.

    Example: qpid-ha journal dump /var/lib/qpidha --bodies
    """
    with stopped_broker(directory) as stopped:
        folder = Folder(_discarded_path(stopped, discarded)) if discarded else stopped.journal()
        names = queue_names(stopped.journal()) | queue_names(folder)
        for described, payload in records(folder, names):
            if bodies and payload is not None:
                described["payload"] = b64encode(payload).decode()
            print(json.dumps(described))
        damaged = folder.problems()[0]
    _tell_unread(settings_of(context), damaged)
    raise typer.Exit(DATA_ERROR if damaged else OK)


def _discarded_path(stopped: StoppedBroker, name: str) -> Path:
    if name not in stopped.discarded():
        raise Failure(
            NO_INPUT,
            f"there is no {name} in {stopped.journal_path}",
            hint="qpid-ha journal list shows what was discarded",
        )
    return stopped.journal_path / name


def _list(context: typer.Context, directory: Directory) -> None:
    """Show the queues with their messages, the end of the log, and the discarded records.

    If a part of the write-ahead log is damaged, the rest is shown, and the exit code is 65.

    Example: qpid-ha journal list /var/lib/qpidha
    """
    options = settings_of(context)
    with stopped_broker(directory) as stopped:
        content = Content(stopped.journal())
        listed = _listed(stopped, content)
    if options.as_json:
        print_json({"schema_version": 1, **listed})
    else:
        _print_listed(listed)
        _tell_unread(options, listed["unread"])
    raise typer.Exit(DATA_ERROR if listed["unread"] else OK)


def _listed(stopped: StoppedBroker, content: Content) -> dict[str, Any]:
    """Return what the write-ahead log has, as it is printed as JSON."""
    return {
        "system_id": stopped.system_id,
        "epoch": content.epoch,
        "last": content.last,
        "safe": content.committed,
        "committed": content.committed,
        **_saved(stopped),
        "bytes": sum(found.size for found in content.folder.files),
        "queues": [
            {
                "queue": queue.name,
                "uid": queue.uid,
                "messages": len(queue.messages),
                "bytes": content.size(queue),
                "durable": queue.declared.durable if queue.declared is not None else None,
                "replicate": queue.declared.replicate if queue.declared is not None else None,
            }
            for queue in content.queues.values()
        ],
        "discarded": [discarded_summary(stopped, name) for name in stopped.discarded()],
        "unread": _unread(content),
    }


def _print_listed(listed: dict[str, Any]) -> None:
    in_sync = listed["in_sync"]
    print(
        f"broker {listed['system_id']}   epoch {listed['epoch']}   "
        f"promised {listed['promised']}   log ends with {listed['last']:,}, "
        f"committed up to {listed['committed']:,}   {listed['bytes']:,} bytes"
    )
    print(
        f"in-sync set of epoch {in_sync['epoch']}, version {in_sync['version']}: "
        f"{', '.join(in_sync['members']) or 'none'}"
    )
    _print_rows(QUEUE_COLUMNS, listed["queues"])
    if listed["discarded"]:
        print("\ndiscarded, because a primary did not have it:")
        _print_rows(DISCARDED_COLUMNS, listed["discarded"])


def _print_rows(columns: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    print_table(
        [column.upper() for column in columns],
        [[row[column] for column in columns] for row in rows],
    )


def _saved(stopped: StoppedBroker) -> dict[str, Any]:
    try:
        saved = SavedState.decode(stopped.state)
    except StateLost as error:
        raise Failure(DATA_ERROR, error.text, hint=error.hint) from error
    set_ = saved.in_sync
    return {
        "promised": saved.promised,
        "in_sync": {"epoch": set_.epoch, "version": set_.version, "members": list(set_.members)},
    }


def _salvage(
    context: typer.Context,
    directory: Directory,
    discarded: Annotated[
        str,
        typer.Option(
            help="a discarded-... folder, as list shows it; default: the messages on the queues"
        ),
    ] = "",
    queue: Annotated[str, typer.Option(help="only the messages of this queue")] = "",
    to: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="send them to a running broker or cluster, each to the queue of its name",
        ),
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="write them as lines of JSON; - is standard output"),
    ] = None,
) -> None:
    """Take messages out of the write-ahead log: send them to a running broker, or write them to
    a file.

    The files stay as they are. A message that is sent twice is there twice: salvage each folder
    once, or into queues with de-duplication. If a part is damaged, the rest is salvaged, and
    the exit code is 65.

    Example: qpid-ha journal salvage /var/lib/qpidha --queue orders --to node1,node2
    """
    options = settings_of(context)
    if bool(to) == (out is not None):
        raise Failure(
            USAGE,
            f"{'both' if to else 'neither'} of --to and --out given",
            hint="--to URL or --out FILE, one of them",
        )
    with stopped_broker(directory, may_run=bool(discarded)) as stopped:
        found = salvage(stopped, discarded=discarded, queue=queue, named=bool(to))
        if out is not None:
            _write(found, out)
        else:
            found.send(options, to)
    _report(options, found, sent=bool(to), shown=out is not None and str(out) == "-")


def _write(found: Salvage, out: Path) -> None:
    if str(out) == "-":
        sys.stdout.writelines(found.lines())
        return
    try:
        # Readable by its owner only, as the write-ahead log is.
        with open(out, "x", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            try:
                file.writelines(found.lines())
                file.flush()
                os.fsync(file.fileno())
                _sync_folder(out.absolute().parent)
            except BaseException:
                # Half of the messages would be taken for all of them, and be in the way of another
                # try.
                out.unlink()
                raise
    except FileExistsError as error:
        raise Failure(
            NO,
            f"{out} is there already, and is not written over",
            hint="another FILE, or - for standard output",
        ) from error
    except OSError as error:
        if error.filename not in (None, str(out)):
            raise  # a file of the write-ahead log that cannot be read
        code = NO_PERMISSION if isinstance(error, PermissionError) else NO
        raise Failure(
            code,
            f"{out} cannot be written: {error.strerror}",
            hint="another FILE; the write-ahead log is unchanged",
        ) from error


def _sync_folder(folder: Path) -> None:
    """Make the names in a folder stay."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _report(options: Options, found: Salvage, *, sent: bool, shown: bool) -> None:
    unread = _unread(found.content)
    counts: dict[str, Any] = {
        "messages": len(found.wanted),
        "accepted": found.accepted,
        "refused": len(found.refused),
    }
    if not sent:
        counts = {"messages": len(found.wanted), "written": len(found.wanted)}
    if options.as_json and not shown:
        print_json({"schema_version": 1, **counts, "unread": unread})
    else:
        talk(options, ", ".join(f"{number:,} {name}" for name, number in counts.items()))
    for each, why in list(found.refused.items())[:10]:
        talk(options, f"{each.queue}, message {each.sequence}: {why}")
    _tell_unread(options, unread)
    raise typer.Exit(NO if found.refused else DATA_ERROR if unread else OK)


def _unread(content: Content) -> list[str]:
    """Name the places whose records are missing from what was found."""
    return content.folder.problems()[0] + content.unread


def _tell_unread(options: Options, unread: list[str]) -> None:
    for problem in unread:
        talk(options, f"not readable: {problem}")
    if unread:
        talk(
            options,
            "so messages may be missing here, and some that were consumed may be there again",
        )


def _compact(context: typer.Context, directory: Directory) -> None:
    """Write a checkpoint, and remove the segments that it replaces: the broker starts faster and
    takes less disk.

    Example: qpid-ha journal compact /var/lib/qpidha
    """
    options = settings_of(context)
    with stopped_broker(directory) as stopped:
        before = sum(found.size for found in stopped.journal().files)
        try:
            point, notes = compact(stopped)
        except LogDamaged as error:
            raise Failure(DATA_ERROR, error.text, hint=error.hint) from error
        after = sum(found.size for found in stopped.journal().files)
    if options.as_json:
        print_json(
            {"schema_version": 1, "before": before, "after": after, "point": point, "notes": notes}
        )
    else:
        for note in notes:
            talk(options, note)
        print(
            f"{before:,} bytes before, {after:,} now; the checkpoint has everything up "
            f"to record {point:,}"
        )
