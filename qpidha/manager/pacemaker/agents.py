"""Installing the OCF agents: copies them from the package to where Pacemaker looks for them, on
this node.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from qpidha.model.errors import NotFound

PACKAGE = Path(__file__).resolve().parents[2]
SOURCES = (PACKAGE / "ocf", PACKAGE.parent / "ocf")
"""Where the agents are: inside an installed package, or beside it in the source tree."""
AGENTS = ("broker", "vip", "qpidd", "qpidd-primary")
AGENTS_FOLDER = "usr/lib/ocf/resource.d/qpidha"
LIBRARY_FOLDER = "usr/lib/ocf/lib/qpidha"


def install(destination: str = "/") -> list[Path]:
    """Copy the agents below `destination`; return what was written. Raises OSError, or NotFound if
    the package has none.
    """
    source = next(
        (place for place in SOURCES if all((place / name).exists() for name in AGENTS)), None
    )
    if source is None:
        raise NotFound(
            "the OCF agents are not in this installation",
            hint=f"install the package again; looked in {SOURCES[0]}",
        )
    written = [
        _copy(path, Path(destination) / LIBRARY_FOLDER, 0o644)
        for path in sorted(source.glob("qpidha_*.py"))
    ]
    # The agents last: they need the library.
    written += [_copy(source / name, Path(destination) / AGENTS_FOLDER, 0o755) for name in AGENTS]
    return written


def _copy(path: Path, folder: Path, mode: int) -> Path:
    """Put a file in place at once, so that an action that runs meanwhile sees the old or the new
    one.
    """
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    fresh = folder / f".{path.name}.new"
    shutil.copyfile(path, fresh)
    fresh.chmod(mode)
    return fresh.replace(folder / path.name)
