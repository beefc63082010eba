"""`qpid-ha vip` where it cannot work: one clear sentence each. What it does on real interfaces is
in tests/manager/vip/test_vip.py.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qpidha.manager.vip.state import Wanted
from qpidha.model.errors import InvalidArgument
from tests.manager.vip_hosts import VIP, need_namespaces
from tests.patience import STATE


def test_without_pyroute2_it_says_what_to_install(
    qpid_ha: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "pyroute2", None)
    monkeypatch.delitem(sys.modules, "qpidha.manager.vip.addresses", raising=False)
    for words in (("add", VIP), ("remove", VIP), ("show",)):
        said = qpid_ha("vip", *words, "--vips", str(tmp_path))
        assert (said.code, said.out) == (69, "")
        assert said.err == (
            "error: virtual addresses need pyroute2, which is not installed. Try: pip "
            "install 'qpidha[vip]'\n"
        )


@pytest.mark.parametrize("words", [("add", "127.0.0.9"), ("add", VIP), ("remove", "127.0.0.1")])
def test_who_may_not_change_addresses_is_told_so(words: tuple[str, ...], tmp_path: Path) -> None:
    need_namespaces()
    if shutil.which("setpriv") is None:
        pytest.skip("needs setpriv (Debian: util-linux)")
    network = (
        "ip link set lo up && ip link add eth0 type veth peer name eth1 && ip link set eth0 "
        "up && ip addr add 10.99.0.1/24 dev eth0"
    )
    command = shlex.join(
        [sys.executable, "-m", "qpidha.cli.main", "vip", *words, "--vips", str(tmp_path)]
    )
    # A root without these capabilities is as good as any user.
    drop = "setpriv --bounding-set=-net_admin,-net_raw"
    said = subprocess.run(
        ["unshare", "--net", "sh", "-c", f"{network} && {drop} {command}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=STATE,
    )
    assert (said.returncode, said.stderr) == (
        77,
        "error: only root may change addresses. Try: run it as root\n",
    )
    assert list(tmp_path.iterdir()) == [], "nothing is noted that is not there"


def test_nothing_held_is_an_empty_table(qpid_ha: Callable[..., Any], tmp_path: Path) -> None:
    pytest.importorskip("pyroute2", reason="needs pyroute2 (extra vip)")
    said = qpid_ha("vip", "show", "-o", "json", "--vips", str(tmp_path / "none"))
    assert (said.code, json.loads(said.out)) == (0, {"schema_version": 1, "addresses": []})
    assert (
        qpid_ha("vip", "show", "--vips", str(tmp_path / "none")).out
        == "ADDRESS  PREFIX  INTERFACE  PRESENT\n"
    )


@pytest.mark.parametrize(
    "words",
    [
        ("add", "1.2.3"),
        ("add", "10.0.0.1/99"),
        ("add", "0.0.0.0"),
        ("remove", "abc"),
        ("remove", ""),
    ],
)
def test_what_is_no_address_is_a_usage_error(
    qpid_ha: Callable[..., Any], tmp_path: Path, words: tuple[str, ...]
) -> None:
    said = qpid_ha("vip", *words, "--vips", str(tmp_path))
    assert (said.code, said.out) == (2, "")
    assert (
        "is no address" in said.err and "Try: an address as 10.0.0.100 or 10.0.0.100/24" in said.err
    )


def test_a_wrong_subcommand_is_answered_with_the_right_ones(qpid_ha: Callable[..., Any]) -> None:
    said = qpid_ha("vip", "dance")
    assert said.code == 2 and "qpid-ha vip with one of add, remove, show" in said.err


@pytest.mark.parametrize("words", [("10.1.2.3/24@",), ("10.1.2.3/24@lo", "--interface", "eth0")])
def test_an_interface_is_named_once_and_not_empty(
    qpid_ha: Callable[..., Any], words: tuple[str, ...], tmp_path: Path
) -> None:
    said = qpid_ha("vip", "add", *words, "--vips", str(tmp_path))
    assert said.code == 2 and "interface" in said.err and "10.1.2.3/24@eth0" in said.err


def test_first_use_m26_the_interface_may_stand_behind_the_address(
    qpid_ha: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[Wanted] = []

    class Addresses:
        def remove(self, address: str) -> bool:
            return False

        def add(self, wanted: Wanted, *, force: bool) -> Any:
            asked.append(wanted)
            raise InvalidArgument("no")

    monkeypatch.setattr("qpidha.cli.clusters.vip._addresses", lambda folder: Addresses())
    for words in (("10.1.2.3/24@lo",), ("10.1.2.3/24", "--interface", "lo")):
        qpid_ha("vip", "add", *words, "--vips", str(tmp_path))
    assert asked == [Wanted("10.1.2.3", 24, "lo")] * 2
    assert qpid_ha("vip", "remove", "10.1.2.3/24@lo").code == 0
