"""What is in the packages, and what lintian says of them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from qpidha.node import VERSION
from tests.packages.test_files import ROOT, SERVICES
from tests.patience import LONG_TEST, STATE
from tests.tools.qpid_tools_page import SCRIPTS, TOOLS

SITE = "/usr/lib/qpidha/lib/python3.11/site-packages"
LINE = re.compile(r"(?m)^(\S{10}) (\S+) +\d+ \S+ \S+ \.(/\S*)")
"""A line of `dpkg-deb --contents`: mode, owner, path."""

pytestmark = pytest.mark.timeout(2 * LONG_TEST)


def call(*words: str | Path) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=STATE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def contents(packages: list[Path]) -> dict[str, tuple[str, str]]:
    """Return path -> mode and owner, of both packages; no path is in both but for folders."""
    found: dict[str, tuple[str, str]] = {}
    for package in packages:
        lines = LINE.findall(call("dpkg-deb", "--contents", package))
        here = {path: (mode, owner) for mode, owner, path in lines}
        assert all(path.endswith("/") for path in here.keys() & found.keys())
        found |= here
    return found


def test_each_file_that_a_host_needs_is_there(contents: dict[str, tuple[str, str]]) -> None:
    wanted = {f"/lib/systemd/system/{service}" for service in SERVICES}
    wanted |= {f"/usr/bin/{name}" for name in SCRIPTS}
    wanted |= {"/etc/default/qpidha-console", "/etc/qpidha/qpidha.conf"}
    wanted |= {f"/usr/lib/{kind}.d/qpidha.conf" for kind in ("sysusers", "tmpfiles")}
    wanted |= {"/usr/share/man/man8/qpidhad.8.gz"}
    wanted |= {f"/usr/share/man/man1/{name}.1.gz" for name in ("qpid-ha", *TOOLS)}
    wanted |= {f"/usr/lib/ocf/resource.d/qpidha/{name}" for name in ("broker", "vip")}
    wanted |= {f"{SITE}/cproton_ffi.abi3.so", f"{SITE}/qpidha/console/templates/base.html"}
    assert not wanted - contents.keys()
    examples = {path.name for path in (ROOT / "examples").iterdir()}
    assert not {f"/usr/share/doc/qpidha/examples/{name}" for name in examples} - contents.keys()


def test_nothing_is_there_that_a_host_does_not_need(contents: dict[str, tuple[str, str]]) -> None:
    unwanted = re.compile(r"__pycache__|\.pyc$|/\.|/direct_url\.json|/tests?/|/(pytest|mypy|pip)/")
    found = [path for path in contents if unwanted.search(path)]
    assert [path for path in found if not path.startswith(f"{SITE}/cffi/")] == []


def test_root_owns_all_of_it_and_nobody_else_may_write(
    contents: dict[str, tuple[str, str]],
) -> None:
    for path, (mode, owner) in contents.items():
        assert owner == "root/root", path
        assert mode[0] == "l" or (mode[5] == mode[8] == "-" and "s" not in mode), path


def test_nothing_names_the_folder_where_they_were_made(
    packages: list[Path], tmp_path: Path
) -> None:
    for package in packages:
        call("dpkg-deb", "--raw-extract", package, tmp_path / package.stem)
    named = [
        path
        for path in tmp_path.rglob("*")
        if path.is_file() and not path.is_symlink() and str(ROOT).encode() in path.read_bytes()
    ]
    assert named == []


def test_the_packages_have_the_version_of_the_daemon(packages: list[Path]) -> None:
    for package in packages:
        assert call("dpkg-deb", "--field", package, "Version").strip() == VERSION


@pytest.mark.skipif(shutil.which("lintian") is None, reason="lintian is not installed")
def test_lintian_has_nothing_to_say(packages: list[Path]) -> None:
    """Nor of an override that overrides nothing."""
    words = ["lintian", "--info", "--display-info", "--fail-on", "error,warning,info", *packages]
    assert call(*words) == ""
