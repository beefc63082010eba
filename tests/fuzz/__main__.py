"""`python -m tests.fuzz --seconds 60 --seed 1`: sessions and decoders, each by a seed of its own.

Prints how many cases there were. Exit code 1 and the seed if one finds a mistake; `--only` plays
one session again.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback

from tests.fuzz.run import Sessions, decode_damaged

DAMAGED = 20
"""Damaged values for each session."""
LIFE = 2000
"""Sessions that one node lives through."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int)
    options = parser.parse_args()
    if options.only is not None:
        Sessions().play(options.only)
        return 0
    begun, seed, sessions = time.monotonic(), options.seed, Sessions()
    while time.monotonic() - begun < options.seconds:
        if sessions.count > LIFE:
            sessions = Sessions()
        try:
            sessions.play(seed)
            for number in range(DAMAGED):
                decode_damaged(DAMAGED * seed + number)
        except Exception:
            traceback.print_exc()
            print(f"fuzz: seed {seed}, session {sessions.count} of its node")
            return 1
        seed += 1
    done = seed - options.seed
    print(f"fuzz: {done:,} sessions and {DAMAGED * done:,} damaged values, nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
