"""`qpid-ha`: find the command, hand it the global options, and turn whatever happens into an exit
code.

The calls of monitors and resource agents (`ping`, `status`) run before anything large is imported;
every other command loads only its own module.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

from qpidha.cli.status import ping, status
from qpidha.client.command.arguments import Options, hoist
from qpidha.client.command.exits import Failure, report
from qpidha.model.exit_codes import INTERRUPTED, NO, OK, SOFTWARE, USAGE


def main(arguments: list[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
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
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except Exception as error:
        if options.verbose:
            raise
        return report(_failure_of(error), as_json=options.as_json)


def _failure_of(error: Exception) -> Failure:
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


def _hot(options: Options, rest: list[str]) -> int | None:
    """Do the most frequent calls; None if it is not one of them, or is not well formed."""
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
