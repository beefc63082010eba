"""What goes into the packages, before any is made: units, sample configuration, pins."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from packages.runtime_pins import runtime_pins
from qpidha.manager.pacemaker.verify import UNITS
from qpidha.node import VERSION
from tests.runtime.daemons import ENVIRONMENT

ROOT = Path(__file__).parents[2]
FILES = ROOT / "packages" / "debian"
SERVICES = ("qpidha.service", "qpidha-console.service")
EXPOSURE = 20
"""Tenths of systemd's points that a unit may have at most; an unprotected one has 96."""

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


def analyze(*words: str) -> tuple[int, str]:
    done = subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@needs_systemd
@pytest.mark.parametrize("service", SERVICES)
def test_systemd_understands_every_line_of_a_unit(service: str, tmp_path: Path) -> None:
    text = (FILES / service).read_text()
    # The programs are not installed here.
    programs = re.compile(r"(?m)^(Exec\w+=\+?)/usr/\S+|^EnvironmentFile=.*\n|^Documentation=.*\n")
    unit = tmp_path / service
    unit.write_text(programs.sub(lambda found: f"{found[1]}/bin/true" if found[1] else "", text))
    code, said = analyze("verify", "--man=no", str(unit))
    assert code == 0 and service not in said, said


@needs_systemd
@pytest.mark.parametrize("service", SERVICES)
def test_a_unit_is_confined(service: str) -> None:
    code, said = analyze(
        "security", "--offline=yes", "--no-pager", f"--threshold={EXPOSURE}", str(FILES / service)
    )
    assert code == 0, said


def test_pacemakers_check_knows_the_unit() -> None:
    assert "qpidha" in UNITS


def test_the_sample_configuration_is_good_with_all_that_it_proposes(tmp_path: Path) -> None:
    sample = (FILES / "qpidha.conf").read_text()
    whole = re.sub(r"(?m)^#(?=[a-z-]+=)", "", sample)
    assert whole.count("\n") == sample.count("\n") and whole != sample
    for name, text in (("as it is", sample), ("whole", whole)):
        path = tmp_path / name
        path.write_text(text)
        done = subprocess.run(
            [sys.executable, "-m", "qpidha.runtime.daemon", "--config", path, "--print-config"],
            capture_output=True,
            text=True,
            check=False,
            env=ENVIRONMENT,
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.skipif(shutil.which("systemd-sysusers") is None, reason="no systemd-sysusers here")
def test_members_of_the_group_that_the_package_makes_administer_the_broker(tmp_path: Path) -> None:
    """The broker is one, as it gives its socket to the group."""
    place = tmp_path / "usr" / "lib" / "sysusers.d"
    place.mkdir(parents=True)
    (tmp_path / "etc").mkdir()
    shutil.copy(FILES / "sysusers.conf", place / "qpidha.conf")
    command = ["systemd-sysusers", f"--root={tmp_path}", "qpidha.conf"]
    subprocess.run(command, check=True, capture_output=True)
    groups = dict(re.findall(r"(?m)^([\w-]+):.*:(.*)$", (tmp_path / "etc" / "group").read_text()))
    sample = (FILES / "qpidha.conf").read_text()
    (group,) = re.findall(r"(?m)^admin-socket-group=(.*)$", sample)
    assert groups[group] == "qpidha" and "User=qpidha" in (FILES / "qpidha.service").read_text()


def test_a_host_gets_what_it_needs_and_no_tools_for_tests() -> None:
    pins = runtime_pins((ROOT / "requirements.lock").read_text())
    assert {
        "python-qpid-proton",
        "cffi",
        "typer",
        "fastapi",
        "starlette",
        "pyroute2",
        "jinja2",
    } <= set(pins)
    assert not {"pytest", "mypy", "ruff", "hypothesis", "cli-proton-python", "playwright"} & set(
        pins
    )
    assert all("--hash=sha256:" in entry for entry in pins.values())


def test_a_pin_that_is_missing_is_named() -> None:
    with pytest.raises(ValueError, match="uvloop"):
        runtime_pins(re.sub(r"(?m)^uvloop", "other", (ROOT / "requirements.lock").read_text()))


def test_every_command_of_the_project_is_in_the_package() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    built = re.search(r"(?m)^for name in (.*); do$", (ROOT / "packages" / "deb").read_text())
    assert built is not None and sorted(built[1].split()) == sorted(scripts)


def test_the_version_stands_in_one_place() -> None:
    number = re.compile(rf"(?<![\d.]){re.escape(VERSION)}(?![\d.])")
    files = [*ROOT.glob("*.md"), *ROOT.glob("*.toml"), ROOT / "Makefile"]
    for folder in ("packages", "docs", "examples", "ocf", "agents", "vagrant", "qpidha", ".ci"):
        files += [path for path in (ROOT / folder).rglob("*") if path.suffix != ".pyc"]
    found = [
        path.relative_to(ROOT).as_posix()
        for path in files
        if path.is_file() and number.search(path.read_text(errors="replace"))
    ]
    assert found == ["qpidha/node.py"]


def test_a_wheel_has_the_pages_of_the_console() -> None:
    builder = WheelBuilder(str(ROOT))
    packed = {each.distribution_path for each in builder.recurse_included_files()}
    console = ROOT / "qpidha" / "console"
    pages = [
        path.relative_to(ROOT).as_posix()
        for folder in ("templates", "static")
        for path in (console / folder).iterdir()
    ]
    assert len(pages) > 10 and set(pages) <= packed
