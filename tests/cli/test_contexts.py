"""Contexts: kept, used, and never mixed with what a command line says."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from qpidha.client.command.arguments import hoist
from qpidha.client.command.contexts import use_context
from qpidha.client.command.exits import Failure
from qpidha.client.command.target import resolve
from tests.cli.conftest import FakeBroker, Said

Run = Callable[..., Said]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without contexts, and a file with a password."""
    for name in ("QPIDHA_DIR", "QPIDHA_CONTEXT", "QPIDHA_USER", "QPIDHA_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pw").write_text("secret\n")
    return tmp_path


def kept(home: Path) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads(
        (home / "config" / "qpidha" / "contexts.json").read_text()
    )["contexts"]
    return found


def test_a_context_is_used_where_no_broker_is_named(
    home: Path, broker: FakeBroker, qpid_ha: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("QPIDHA_DIR")
    assert qpid_ha("context", "set", "here", "-b", broker.socket).err == (
        "context here is set, which is used\n"
    )
    assert qpid_ha("status").out == "active\n"
    assert qpid_ha("context", "set", "away", "-b", "127.0.0.1:1").code == 0
    assert qpid_ha("status").out == "active\n"
    assert qpid_ha("--context", "away", "status").code == 69
    assert qpid_ha("context", "use", "away").code == 0
    assert qpid_ha("status").code == 69
    assert qpid_ha("status", "--context=here").out == "active\n"
    assert qpid_ha("status", "-b", broker.socket).out == "active\n"
    monkeypatch.setenv("QPIDHA_CONTEXT", "here")
    assert qpid_ha("status").out == "active\n"
    monkeypatch.delenv("QPIDHA_CONTEXT")
    assert qpid_ha("context", "delete", "away").code == 0
    assert qpid_ha("context", "list", "-o", "name").out == "here\n"
    assert qpid_ha("context", "use", "-").err == "no context is used\n"


def test_what_common_options_say_is_kept_and_holds_everywhere(
    home: Path, qpid_ha: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "amqps://n1,n2:5671"
    words = ("-b", url, "--user", "ops", "--password-file", "pw", "--ssl-trusted", "pw")
    assert qpid_ha("context", "set", "prod", *words).code == 0
    path = str(home / "pw")
    assert kept(home)["prod"] == {
        "broker": url,
        "user": "ops",
        "password_file": path,
        "ssl_trusted": path,
    }
    file = home / "config" / "qpidha" / "contexts.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    monkeypatch.chdir("/")
    options = hoist(["list"])[0]
    targets = resolve(options)
    assert [(str(one), one.user, one.password, one.encrypted) for one in targets] == [
        ("n1:5671", "ops", "secret", True),
        ("n2:5671", "ops", "secret", True),
    ]
    assert options.ssl_trusted == path
    (row,) = json.loads(qpid_ha("context", "list", "-o", "json").out)["contexts"]
    assert row["current"] is True and row["target"] == url and "secret" not in json.dumps(row)


def test_the_password_of_a_context_goes_with_its_user_alone(
    home: Path, qpid_ha: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QPIDHA_PASSWORD", "other")
    qpid_ha("context", "set", "prod", "-b", "n1", "--user", "ops", "--password-file", "pw")
    for words, login in (
        (["list"], ("ops", "secret")),
        (["list", "--user", "ops"], ("ops", "secret")),
        (["list", "--user", "ann"], ("ann", "other")),
        (["list", "--password", "mine"], ("ops", "mine")),
        (["list", "-b", "n2"], ("", "other")),
    ):
        (target,) = resolve(hoist(words)[0])
        assert (target.user, target.password) == login, words


def test_managers_and_local_clusters_mean_no_cluster_by_chance(
    home: Path, qpid_ha: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    qpid_ha("context", "set", "prod", "-b", "n1")
    named, _ = hoist(["--context", "prod", "--cluster-manager", "promote"])
    use_context(named)
    assert named.broker == "n1"
    by_chance, _ = hoist(["--cluster-manager", "promote"])
    use_context(by_chance)
    assert by_chance.broker == ""
    monkeypatch.setenv("QPIDHA_DIR", str(home))
    local, _ = hoist(["list"])
    use_context(local)
    assert local.broker == ""


@pytest.mark.parametrize(
    ("line", "code", "told"),
    [
        ("context set", 2, "name"),
        ("context set x", 2, "needs -b ADDR or --config FILE"),
        ("context set x -b n1 --config pw", 2, "not both"),
        ("context set x -b n1:nine", 2, "is not a port"),
        ("context set x -b amqp://u:pw@n1", 2, "keeps no password"),
        ("context set x -b n1 --user u --password p", 2, "keeps no password"),
        ("context set x -b n1 --user u --password-file -", 2, "standard input"),
        ("context set x -b n1 --ssl-trusted none", 66, "there is no file"),
        ("context set x -b n1 --context y", 2, "--context does not go"),
        ("context use prd", 2, "did you mean prod?"),
        ("context delete zzz", 2, "there is no context 'zzz'"),
        ("list --context prd", 2, "did you mean prod?"),
        ("list --context prod -b n1", 2, "--context and -b exclude each other"),
        ("list --context=", 2, "empty value"),
    ],
)
def test_wrong_words(home: Path, qpid_ha: Run, line: str, code: int, told: str) -> None:
    assert qpid_ha("context", "set", "prod", "-b", "n1").code == 0
    said = qpid_ha(*line.split())
    assert (said.code, said.out) == (code, "") and told in said.err
    assert [*kept(home)] == ["prod"]


@pytest.mark.parametrize("name", ["", " ", "a\nb", "-"])
def test_names_that_are_none(home: Path, qpid_ha: Run, name: str) -> None:
    assert qpid_ha("context", "set", "-b", "n1", "--", name).code == 2


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"current": "", "contexts": {"a": {"password": "x"}}}', "\x00"]
)
def test_a_damaged_file_says_so_and_a_named_broker_goes_past_it(
    home: Path, broker: FakeBroker, qpid_ha: Run, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.delenv("QPIDHA_DIR")
    file = home / "config" / "qpidha" / "contexts.json"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    said = qpid_ha("status")
    assert (said.code, said.out) == (78, "") and "contexts.json is damaged" in said.err
    assert qpid_ha("status", "-b", broker.socket).out == "active\n"
    file.unlink()
    file.parent.rmdir()
    file.parent.write_text("")
    said = qpid_ha("context", "set", "x", "-b", "n1")
    assert said.code == 74 and "cannot write" in said.err


def test_without_a_home_there_are_no_contexts(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", "/nonexistent")
    options, _ = hoist(["list"])
    use_context(options)
    assert options.broker == ""
    with pytest.raises(Failure, match="no context"):
        use_context(hoist(["list", "--context", "x"])[0])
