"""Plug-ins: the manager that runs a broker is found, an installed one too;
docs/resource-managers.md shows one that works.
"""

from __future__ import annotations

import json
import re
import socket
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from qpidha.manager import plugins
from qpidha.manager.builtin.manager import BuiltinManager
from qpidha.manager.builtin.manager import find as find_builtin
from qpidha.manager.plugins import GROUP, load, manager_of
from qpidha.manager.resource_manager import BrokerPlace, ResourceManager
from qpidha.model.errors import InvalidArgument, NotAllowed

ROOT = Path(__file__).resolve().parents[2]
CHAPTER = ROOT / "docs" / "resource-managers.md"


@pytest.fixture
def folder() -> Iterator[Path]:
    """The folder of a cluster whose manager listens."""
    with (
        tempfile.TemporaryDirectory(prefix="qpidha-") as path,
        socket.socket(socket.AF_UNIX) as listening,
    ):
        broker = {
            "name": "b1",
            "address": "127.0.0.1:5701",
            "admin_socket": f"{path}/b1/admin.sock",
        }
        (Path(path) / "cluster.json").write_text(json.dumps({"brokers": [broker]}))
        listening.bind(f"{path}/manager.sock")
        listening.listen()
        yield Path(path)


def test_ours_can_all_be_loaded() -> None:
    assert [point.name for point in plugins.OURS] == ["builtin", "pacemaker", "rgmanager"]
    assert all(callable(load(point)) for point in plugins.OURS)


def test_the_built_in_manager_is_found_by_the_socket_or_address_of_its_broker(folder: Path) -> None:
    keeps: ResourceManager = BuiltinManager("somewhere")
    assert keeps.name == "builtin"
    for place in (
        BrokerPlace(f"{folder}/b1/admin.sock"),
        BrokerPlace("", "127.0.0.1:5701"),
        BrokerPlace("", "localhost:5701"),
    ):
        found = find_builtin(place._replace(folders=("/nowhere", str(folder))))
        assert found is not None
        assert found.path == f"{folder}/manager.sock"
    for place in (
        BrokerPlace("/else/admin.sock"),
        BrokerPlace("", "127.0.0.1:5702"),
        BrokerPlace(),
    ):
        assert find_builtin(place._replace(folders=(str(folder),))) is None


def test_a_cluster_whose_manager_is_gone_has_none(folder: Path) -> None:
    (folder / "manager.sock").unlink()
    assert find_builtin(BrokerPlace("", "127.0.0.1:5701", (str(folder),))) is None


def test_the_built_in_manager_is_asked_first(folder: Path) -> None:
    found = manager_of(BrokerPlace("", "127.0.0.1:5701", (str(folder),)))
    assert found is not None
    assert found.name == "builtin"
    with pytest.raises(NotAllowed, match="promotes by itself"):
        found.promote("b1")


def test_a_plug_in_that_cannot_be_loaded_is_named() -> None:
    with pytest.raises(InvalidArgument, match="plug-in 'broken' cannot be loaded"):
        load(EntryPoint("broken", "no_such_module_of_a_plug_in:find", GROUP))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1 / 0", "'raises' cannot be loaded: ZeroDivisionError"),
        ("def find(:", "'raises' cannot be loaded: SyntaxError"),
        (
            "def find(place): return place.nothing",
            "'raises' does not say whose the broker is: AttributeError",
        ),
        ("find = 5", "'raises' does not say whose the broker is: TypeError"),
    ],
)
def test_a_plug_in_that_raises_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    (tmp_path / "raising_plug_in.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "raising_plug_in", raising=False)
    monkeypatch.setattr(plugins, "OURS", (EntryPoint("raises", "raising_plug_in:find", GROUP),))
    with pytest.raises(InvalidArgument, match=says) as refusal:
        manager_of(BrokerPlace("", "10.0.0.9:5672"))
    assert "raising_plug_in:find" in refusal.value.hint


def installed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the example of the chapter as pip would."""
    blocks = re.findall(r"```(python|toml)\n(.*?)```", CHAPTER.read_text(), re.DOTALL)
    example = next(text for kind, text in blocks if kind == "python")
    registered = next(text for kind, text in blocks if kind == "toml")
    name, value = re.findall(r'^(\w+) = "(.+)"$', registered, re.MULTILINE)[-1]
    (folder / f"{value.partition(':')[0]}.py").write_text(example)
    info = folder / "example-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: example\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{name} = {value}\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, value.partition(":")[0], raising=False)


def test_the_example_of_the_chapter_is_found_and_obeyed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, monkeypatch)
    tools = tmp_path / "bin"
    tools.mkdir()
    calls = tmp_path / "calls"
    (tools / "brokerctl").write_text(
        f'#!/bin/sh\necho "$*" >>{calls}\n[ "$1" = nodes ] && echo "10.0.0.1:5672 '
        'primary\n10.0.0.2:5672 backup"\nexit 0\n'
    )
    (tools / "brokerctl").chmod(0o755)
    monkeypatch.setenv("PATH", str(tools), prepend=":")
    found = manager_of(BrokerPlace("", "10.0.0.2:5672"))
    assert found is not None
    assert [(member.address, member.state) for member in found.members()] == [
        ("10.0.0.1:5672", "active"),
        ("10.0.0.2:5672", "unknown"),
    ]
    found.switch_over("10.0.0.2:5672")
    found.fence("10.0.0.1:5672")
    assert not found.record_in_sync(1, 1, ("a",))
    assert found.newest_in_sync().members == ()
    assert calls.read_text().splitlines()[-2:] == [
        "move 10.0.0.2:5672",
        "kill --wait 10.0.0.1:5672",
    ]
    assert manager_of(BrokerPlace("", "10.0.0.9:5672")) is None
