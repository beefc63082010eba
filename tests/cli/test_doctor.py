"""What is installed, and what is missing for what."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from qpidha.cli import doctor
from tests.cli.conftest import Said

Run = Callable[..., Said]
SAID = [
    "python-qpid-proton<0.41,>=0.40",
    "uvicorn[standard]>=0.32; extra == 'console'",
    "fastapi; extra == 'console'",
    "pytest; extra == 'dev'",
]


@pytest.fixture(autouse=True)
def _data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that a broker of this machine could have."""
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "data"))


def test_all_that_the_package_says_it_needs_is_listed(qpid_ha: Run) -> None:
    said = qpid_ha("version", "--doctor", "-o", "json")
    parts = {row["name"]: row for row in json.loads(said.out)["parts"]}
    assert said.code == 0 and parts["python-qpid-proton"]["for"] == "everything"
    assert {"python", "openssl", "typer", "pyroute2"} <= parts.keys()
    assert "pytest" not in parts and all(row["version"] for row in parts.values())


@pytest.mark.parametrize(
    ("gone", "code", "told"),
    [
        ((), 0, ""),
        (
            ("uvicorn", "fastapi"),
            0,
            "missing for console: uvicorn, fastapi. Try: pip install 'qpidha[console]'\n",
        ),
        (
            ("python-qpid-proton",),
            1,
            "missing for everything: python-qpid-proton. Try: pip install qpidha\n",
        ),
    ],
)
def test_wish_31_what_is_missing_is_named_with_what_to_do(
    qpid_ha: Run, monkeypatch: pytest.MonkeyPatch, gone: tuple[str, ...], code: int, told: str
) -> None:
    def installed(name: str) -> str:
        if name in gone:
            raise PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(doctor, "requires", lambda name: SAID)
    monkeypatch.setattr(doctor, "version", installed)
    said = qpid_ha("version", "--doctor")
    assert (said.code, said.err) == (code, told)
    for name in gone:
        (line,) = [line for line in said.out.splitlines() if line.startswith(name)]
        assert line.split()[-1] == "-"
