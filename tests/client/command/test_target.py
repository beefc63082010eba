"""Which broker is meant, and where it is."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from qpidha.client.command.arguments import Options
from qpidha.client.command.exits import Failure
from qpidha.client.command.target import Target, daemon_socket, known_brokers, parse, resolve
from qpidha.client.endpoint import parse_endpoint
from qpidha.model.exit_codes import CONFIG
from qpidha.model.paths import admin_folder
from qpidha.model.settings import Settings
from qpidha.model.url import parse_url
from qpidha.runtime.sockets import admin_socket_path


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("QPIDHA_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("os.getuid", lambda: 1000)
    folders = {0: str(tmp_path / "of-root")}  # root's daemons of this machine are not ours
    monkeypatch.setattr(
        "qpidha.model.paths.admin_folder",
        lambda env, uid: folders.get(uid) or admin_folder(env, uid),
    )
    return tmp_path


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("host", Target(host="host")),
        ("host:5673", Target(host="host", port=5673)),
        ("[::1]:5673", Target(host="::1", port=5673)),
        ("amqp://u:p%40w@host:1", Target(host="host", port=1, user="u", password="p@w")),
        ("u/p@host", Target(host="host", user="u", password="p")),
        ("amqps://host", Target(host="host", port=5671, encrypted=True)),
        ("ssl:host:9", Target(host="host", port=9, encrypted=True)),
        ("/run/x/admin.sock", Target(socket="/run/x/admin.sock")),
        ("./admin.sock", Target(socket="./admin.sock")),
    ],
)
def test_a_broker_is_an_address_or_the_path_of_a_socket(text: str, target: Target) -> None:
    assert parse(text) == target


@pytest.mark.parametrize(
    "text",
    ["host:x", "host:0", "host:70000", "http://host", "amqp://u%zz@host", "amqp://u%ff@host"],
)
def test_other_texts_are_usage_errors(text: str) -> None:
    with pytest.raises(Failure) as failure:
        parse(text)
    assert failure.value.code == 2


@pytest.mark.parametrize("text", ["u:hush@h:x", "amqp://u:hush%@h", "x://u:hush@h", "u:hush@1:2:3"])
def test_an_error_never_shows_a_password(text: str) -> None:
    with pytest.raises(Failure) as failure:
        parse(text)
    assert "hush" not in repr(failure.value) + str(failure.value)


def test_a_broker_of_the_local_cluster_is_known_by_its_name(nowhere: Path) -> None:
    brokers = [{"name": "b2", "address": "127.0.0.1:2", "admin_socket": "/d/b2/admin.sock"}]
    (nowhere / "cluster.json").write_text(json.dumps({"brokers": brokers}))
    assert resolve(Options(broker="b2"))[0] == Target(socket="/d/b2/admin.sock")
    with pytest.raises(Failure, match="has no b3; it has b2"):
        resolve(Options(broker="b3"))


def test_without_a_local_cluster_a_name_of_one_is_explained_and_with_a_port_it_is_a_host(
    nowhere: Path,
) -> None:
    with pytest.raises(Failure) as failure:
        resolve(Options(broker="b1"))
    assert (
        failure.value.text == f"no local cluster in {nowhere}"
        and "QPIDHA_DIR" in failure.value.hint
    )
    assert resolve(Options(broker="b1:5672"))[0] == parse("b1:5672") == Target(host="b1")


def test_a_cluster_beside_us_is_found_by_its_brokers_names(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("QPIDHA_DIR")
    monkeypatch.setenv("XDG_STATE_HOME", str(nowhere / "state"))
    monkeypatch.chdir(nowhere)
    for place, port, socket in (
        ("state/qpidha/local", 1, "ended.sock"),
        ("cluster", 2, "admin.sock"),
    ):
        (nowhere / place).mkdir(parents=True)
        brokers = [
            {"name": "b1", "address": f"127.0.0.1:{port}", "admin_socket": str(nowhere / socket)}
        ]
        (nowhere / place / "cluster.json").write_text(json.dumps({"brokers": brokers}))
    (nowhere / "admin.sock").touch()
    assert resolve(Options(broker="b1"))[0] == Target(socket=str(nowhere / "admin.sock"))
    assert known_brokers(Options(broker="b1")) == ["127.0.0.1:2"]


@pytest.mark.parametrize("fault", ["", "written by others", "link", "of another"])
def test_code_7_a_socket_where_anybody_may_put_one_is_not_believed(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    folder = nowhere / "qpidha"
    monkeypatch.setattr("qpidha.client.command.target.SHARED", str(nowhere))
    monkeypatch.setattr("qpidha.client.command.target.admin_socket", lambda *_: f"{folder}/a")
    monkeypatch.setattr("qpidha.client.command.target._state", lambda path: "active")
    (nowhere / "other").mkdir(0o700)
    (nowhere / "other" / "admin-1.sock").touch()
    if fault == "link":
        folder.symlink_to(nowhere / "other")
    else:
        (nowhere / "other").rename(folder)
    if fault == "written by others":
        folder.chmod(0o777)
    if fault != "of another":
        monkeypatch.setattr("os.getuid", os.geteuid)
    assert daemon_socket() == ("" if fault else f"{folder}/admin-1.sock")


def test_a_configuration_gives_port_credentials_and_timeout(nowhere: Path) -> None:
    config = nowhere / "qpidd.conf"
    config.write_text(
        "# a broker\nport=5999 # the usual "
        "one\nha-username=ha\nha-password=a=b\nha-mechanism=PLAIN\nlink-heartbeat-interval=5\n"
    )
    options = Options(config=str(config))
    assert resolve(options)[0] == Target(
        host="localhost", port=5999, user="ha", password="a=b", mechanism="PLAIN"
    )
    assert options.timeout == 5.0


def test_the_login_of_a_configuration_may_stand_in_its_addresses(nowhere: Path) -> None:
    config = nowhere / "qpidd.conf"
    for more, user, password in (
        ("", "ha", "p"),
        ("ha-username=ha\nha-password=x", "ha", "x"),
        ("ha-username=other", "other", ""),
    ):
        config.write_text(f"ha-brokers-url=amqp:ha/p@a,b\n{more}\n")
        target = resolve(Options(config=str(config)))[0]
        assert (target.user, target.password) == (user, password)


def test_a_missing_configuration_is_a_missing_input(nowhere: Path) -> None:
    with pytest.raises(Failure) as failure:
        resolve(Options(config=str(nowhere / "none.conf")))
    assert failure.value.code == 66


def test_without_anything_it_is_localhost() -> None:
    assert resolve(Options())[0] == Target(host="localhost")


@pytest.mark.parametrize("content", [b"# fine\nport=1\nnot a setting\n", b"\xff\xfe"])
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "qpidd.conf"
    path.write_bytes(content)
    with pytest.raises(Failure) as refused:
        resolve(Options(config=str(path)))
    assert refused.value.code == CONFIG


@pytest.fixture
def sockets(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Admin sockets of a user who is not root, path -> state of the broker behind it; empty if
    there is none any more.
    """
    monkeypatch.setattr("os.getuid", lambda: 1000)
    found: dict[str, str] = {}
    monkeypatch.setattr("qpidha.client.command.target._state", lambda path: found.get(path, ""))
    return found


def put(sockets: dict[str, str], nowhere: Path, port: int, state: str) -> str:
    path = Path(admin_socket_path(Settings(), port, {"XDG_RUNTIME_DIR": str(nowhere)}))
    path.parent.mkdir(exist_ok=True)
    path.touch()
    sockets[str(path)] = state
    return str(path)


def test_a_daemon_without_a_data_directory_is_found_by_its_admin_socket(
    nowhere: Path, sockets: dict[str, str]
) -> None:
    put(sockets, nowhere, 6000, "")
    assert resolve(Options())[0] == Target(host="localhost")
    other = put(sockets, nowhere, 5673, "ready")
    assert resolve(Options())[0] == Target(socket=other)
    put(sockets, nowhere, 5674, "ready")
    assert resolve(Options())[0] == Target(host="localhost")  # Which of them is meant?
    usual = put(sockets, nowhere, 5672, "ready")
    assert resolve(Options())[0] == Target(socket=usual)


def test_the_daemon_of_the_machine_is_found_by_who_may_use_its_socket(
    nowhere: Path, sockets: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members of `admin-socket-group`; to others it does not answer."""
    machines = nowhere / "run"
    machines.mkdir()
    own = admin_folder({"XDG_RUNTIME_DIR": str(nowhere)}, 1000)
    monkeypatch.setattr(
        "qpidha.model.paths.admin_folder", lambda env, uid: own if uid else str(machines)
    )
    usual = machines / "admin-5672.sock"
    usual.touch()
    sockets[str(usual)] = ""
    assert resolve(Options())[0] == Target(host="localhost")
    sockets[str(usual)] = "active"
    assert resolve(Options())[0] == Target(socket=str(usual))
    mine = put(sockets, nowhere, 5672, "ready")
    assert resolve(Options())[0] == Target(socket=mine)


def test_names_of_local_brokers_are_hosts_behind_a_scheme() -> None:
    assert resolve(Options(broker="amqps://b1,b2", user="u", password_file="")) == [
        Target(host="b1", port=5671, user="u", encrypted=True),
        Target(host="b2", port=5671, user="u", encrypted=True),
    ]
    with pytest.raises(Failure, match="no local cluster"):
        resolve(Options(broker="b1,b2"))


@pytest.mark.parametrize(
    "login", ["u:p", "u/p", "u:v/p", "u/p:w", "u%3Av:p%40%2F%25", "u", "u:", "%C3%A4:p"]
)
@pytest.mark.parametrize("scheme", ["", "amqp://", "amqps://"])
def test_a_login_reads_alike_in_each_kind_of_address(scheme: str, login: str) -> None:
    text = f"{scheme}{login}@host"
    url, endpoint, target = parse_url(text), parse_endpoint(text), parse(text)
    assert (url.user, url.password) == (endpoint.user, endpoint.password)
    assert (url.user, url.password) == (target.user, target.password)
