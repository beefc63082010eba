"""The packages, and a Debian to install them in: made once for all tests here, while other tests
run. Where they cannot be made the tests are skipped, and say why.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RELEASE = "bookworm"
TREE = ROOT / "build" / RELEASE
MAKERS = ("packages/wheels", "packages/man", "packages/deb")
TOOLS = ("dpkg-deb", "dpkg-shlibdeps", "strip", "gcc", "pkg-config")
OVERLAY = """
mount -t tmpfs tmpfs "$1" && mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o lowerdir=/usr,upperdir="$1/upper",workdir="$1/work" "$1/root"
"""
HINT = "'.ci/setup packages' installs what is missing"


def why_no_packages() -> str:
    """Say why packages cannot be made on this machine; nothing if they can."""
    system = Path("/etc/os-release")
    if not system.exists() or f"VERSION_CODENAME={RELEASE}" not in system.read_text():
        return f"packages are made on Debian 12 ({RELEASE}) only"
    if importlib.util.find_spec("sphinx") is None:
        return "there is no Sphinx for their man pages: .ci/setup docs"
    if missing := [name for name in TOOLS if shutil.which(name) is None]:
        return f"packages cannot be made without {', '.join(missing)}: {HINT}"
    ready = subprocess.run(
        [
            "/usr/bin/python3",
            "-c",
            "import ensurepip, venv, sysconfig as s; print(s.get_path('include'))",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if ready.returncode or not Path(ready.stdout.strip(), "Python.h").exists():
        return f"packages cannot be made without python3-venv and python3-dev: {HINT}"
    return ""


def why_no_hosts(folder: Path) -> str:
    """Say why there can be no hosts to install packages on; nothing if there can."""
    if os.geteuid() != 0:
        return "hosts to install packages on are made as root"
    if shutil.which("mmdebstrap") is None:
        return f"hosts are made with mmdebstrap: {HINT}"
    tried = subprocess.run(
        ["unshare", "--mount", "--net", "--uts", "--propagation", "private"]
        + ["sh", "-ec", OVERLAY, "sh", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    return f"no namespaces on this machine: {tried.stderr.strip()}" if tried.returncode else ""


def make(*words: str) -> str:
    """Run what makes something; return what it said if it failed."""
    done = subprocess.run(
        words,
        cwd=ROOT,
        env={**os.environ, "PYTHON": sys.executable} if "man" in words[0] else None,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return f"{words[0]}: {done.stdout}" if done.returncode else ""


@pytest.fixture(scope="session")
def packages() -> list[Path]:
    """Make the packages, and return their files."""
    if reason := why_no_packages():
        pytest.skip(reason)
    for maker in MAKERS:
        failed = make(maker)
        assert not failed, failed
    found = sorted((ROOT / "dist").glob("*.deb"))
    assert len(found) == 2
    return found


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a Debian 12 without the packages; it is kept for the next time."""
    if reason := why_no_hosts(tmp_path_factory.mktemp("overlay")):
        pytest.skip(reason)
    failed = make("packages/tree", str(TREE))
    if failed and not os.environ.get("CI"):
        pytest.skip(f"there is no Debian to install packages in: {failed}")
    assert not failed, failed
    return TREE
