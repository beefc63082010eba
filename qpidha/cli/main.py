"""`qpid-ha`: find the command, hand it the global options, and turn whatever happens into an exit
code.

The calls of monitors and resource agents (`ping`, `status`) run before anything large is imported;
every other command loads only its own module.
"""

from __future__ import annotations

import errno
import sys
from importlib import import_module

from qpidha.cli.status import ping, status
from qpidha.client.command.arguments import Options, hoist
from qpidha.client.command.exits import Failure, report
from qpidha.client.command.streams import mend_streams, output_is_closed, silence_output
from qpidha.model.exit_codes import INTERRUPTED, IO_ERROR, NO, OK, SOFTWARE, USAGE

NOT_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of a write; where it names no file, it was to standard output."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    mend_streams()
    options = Options(output="json" if "json" in given else "text")
    try:
        options, rest = hoist(given)
        code = _hot(options, rest)
        if code is None:
            # Loaded late: the import of the command line library alone costs more than a whole
            # status call.
            code = int(import_module("qpidha.cli.app").run(options, rest))
        sys.stdout.flush()
        return code
    except Failure as failure:
        return report(failure, as_json=options.as_json)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has enough; let the interpreter's own flush go nowhere.
        silence_output()
        return OK
    except Exception as error:
        if options.verbose:
            raise
        found = _failure_of(error)
        if found.code == IO_ERROR:
            silence_output()
        return report(found, as_json=options.as_json)


def _failure_of(error: Exception) -> Failure:
    if isinstance(error, UnicodeEncodeError):
        # Bytes of the command line that are no text are surrogates in Python.
        return Failure(
            USAGE,
            f"{error.object!r} is not text in UTF-8",
            hint="names and addresses are; messages may be anything",
        )
    if isinstance(error, OSError) and not error.filename and _is_not_written(error):
        return Failure(
            IO_ERROR,
            f"cannot write: {str(error.strerror).lower()}",
            hint="is standard output closed, or its disk full? What was asked for may be done",
        )
    if isinstance(error, OSError) and error.filename:
        return Failure(
            NO,
            f"{error.filename}: {error.strerror}",
            hint="another path; or again with -v for the traceback",
        )
    return Failure(
        SOFTWARE,
        f"internal error: {type(error).__name__}: {error}",
        hint="again with -v for the traceback",
    )


def _is_not_written(error: OSError) -> bool:
    # Any wrong use of a descriptor is EBADF: only where standard output was closed is it that.
    return error.errno in NOT_WRITTEN or (error.errno == errno.EBADF and output_is_closed())


def _hot(options: Options, rest: list[str]) -> int | None:
    """Do the most frequent calls; None if it is not one of them, or is not well formed."""
    if options.for_lists or options.watch is not None:
        return None
    if rest == ["ping"]:
        return ping(options)
    if not rest or rest[0] != "status":
        return None
    every = is_primary = False
    expect: str | None = None
    words = iter(rest[1:])
    for word in words:
        if word == "--all":
            every = True
        elif word == "--is-primary":
            is_primary = True
        elif word == "--expect":
            expect = next(words, None)
            if expect is None:
                raise Failure(USAGE, "option --expect needs a value", hint="--expect ready")
        elif word.startswith("--expect="):
            expect = word.removeprefix("--expect=")
        else:
            return None
    return status(options, every=every, expect=expect, is_primary=is_primary)


if __name__ == "__main__":
    sys.exit(main())
