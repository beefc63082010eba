"""Print the part of requirements.lock that a host needs: what the package itself and its extras
`console` and `vip` need, with all that these need, each with its version and hashes.

`python -m packages.runtime_pins`, from the source tree. Tools for tests stay out.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
EXTRAS = ("console", "vip")
"""What a host gets beside the broker. `data` is a whole Spark."""
ITSELF = "qpidha"


def normal(name: str) -> str:
    """Return the name of a distribution as lock files spell it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def wanted() -> set[str]:
    """Return the distributions that pyproject.toml names for a host."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"]]
    for extra in EXTRAS:
        lines += project["optional-dependencies"][extra]
    return {normal(re.split(r"[^\w.-]", line, maxsplit=1)[0]) for line in lines}


def runtime_pins(lock: str) -> dict[str, str]:
    """Return name -> entry of the lock file, which says after `# via` what needs each of them.
    Raises ValueError if something is missing in it.
    """
    entries = {normal(entry.split("==")[0]): entry for entry in re.split(r"(?m)^(?=\w)", lock)[1:]}
    users = {
        name: {
            normal(word)
            for comment in re.findall(r"(?m)^ +#(.*)$", entry)
            for word in re.findall(r"[\w.-]+", comment.removeprefix(" via").split("(")[0])
        }
        for name, entry in entries.items()
    }
    if missing := wanted() - entries.keys():
        raise ValueError(f"not in requirements.lock: {', '.join(sorted(missing))}; make lock")
    found = wanted()
    while more := {name for name in entries if name not in found and users[name] & found}:
        found |= more
    return {name: entries[name] for name in sorted(found)}


if __name__ == "__main__":
    sys.stdout.write("".join(runtime_pins((ROOT / "requirements.lock").read_text()).values()))
