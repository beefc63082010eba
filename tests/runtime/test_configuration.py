"""Files, commands and generated texts."""

from __future__ import annotations

import subprocess
import sys

import pytest

from qpidha.model.exit_codes import CONFIG
from qpidha.model.paths import default_data_dir
from qpidha.model.settings import GROUPS, OPTIONS, Settings
from qpidha.runtime.configuration import configure
from qpidha.runtime.describe import config_text, help_text
from qpidha.runtime.exits import CannotStart
from tests.patience import STATE
from tests.runtime.daemons import ENVIRONMENT


def test_the_named_file_is_read_and_its_errors_name_it(tmp_path):
    path = tmp_path / "qpidd.conf"
    path.write_text("port=1\nauth=no\n")
    for argv, env in (
        (["--config", str(path)], {}),
        ([f"--config={path}"], {}),
        ([], {"QPID_CONFIG": str(path)}),
    ):
        assert configure(argv, env).settings.port == 1
    path.write_text("prot=1\n")
    with pytest.raises(CannotStart) as caught:
        configure(["--config", str(path)], {})
    assert (
        f"line 1 of {path}" in caught.value.text
        and caught.value.hint == "did you mean port?"
        and caught.value.code == CONFIG
    )


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")
    for path in (tmp_path / "missing", tmp_path, binary):
        with pytest.raises(CannotStart) as caught:
            configure(["--config", str(path)], {})
        assert str(path) in caught.value.text and caught.value.code == CONFIG


def test_qpid_13_qpidds_own_file_is_found_where_there_is_none_of_ours(place):
    """In a real daemon, whose paths are elsewhere than in /etc."""
    (place / "qpidd.conf").write_text("name=theirs\nlog-enable=notice+\n")
    code = (
        "import sys; from qpidha.model import paths as p; "
        "p.CONFIGURATION, p.QPIDD_CONFIGURATION = sys.argv[1:3]; "
        "from qpidha.runtime import configuration as c; c.MORE_FILES = ''; "
        "from qpidha.runtime.daemon import main; sys.exit(main(sys.argv[3:]))"
    )

    def said(*words):
        files = [str(place / "qpidha.conf"), str(place / "qpidd.conf")]
        line = [sys.executable, "-c", code, *files, "--interface", "127.0.0.1", *words]
        return subprocess.run(line, capture_output=True, text=True, env=ENVIRONMENT, timeout=STATE)

    ways = ["--data-dir", str(place / "data"), "--log-to-file", str(place / "log")]
    port = said("-d", "-p0", *ways).stdout.strip()
    assert f"with {place}/qpidd.conf (there is no {place}/qpidha.conf)" in (
        (place / "log").read_text()
    )
    assert said("-q", "-p", port, *ways).returncode == 0
    (place / "qpidha.conf").write_text("name=ours\n")
    printed = said("--print-config").stdout
    assert "name=ours" in printed and "name=theirs" not in printed


def test_first_use_d10_the_brokers_password_may_be_in_a_file_of_its_own(tmp_path):
    (tmp_path / "conf").write_text("auth=no\nha-username=ha\nha-password-file=secret\n")
    argv = ["--config", str(tmp_path / "conf")]
    with pytest.raises(CannotStart, match="ha-password-file .*secret cannot be used: no such"):
        configure(argv, {})
    (tmp_path / "secret").write_text("hidden\n")
    assert configure(argv, {}).settings.ha_password == "hidden"
    printed = configure([*argv, "--print-config"], {})
    assert "ha-password=(secret)" not in config_text(printed.settings, printed.origins)


def test_help_is_there_when_all_else_is_wrong():
    assert configure(["--nonsense", "--config", "/missing", "--help"], {}).command == "help"


def test_help_lists_every_option_in_its_group():
    text = help_text()
    assert all(f"\n  --{name} " in text for name in OPTIONS) and all(
        f"\n{group}:\n" in text for group in GROUPS
    )
    assert max(map(len, text.splitlines())) <= 110


def test_printed_configuration_reads_back(tmp_path):
    argv = [
        "--port",
        "7",
        "--ha-brokers-url",
        "amqp:a,ssl:b",
        "--log-enable",
        "debug+:ha",
        "--interface=127.0.0.1",
        "--ha-backup-timeout=1.5",
    ]
    first = configure(argv, {})
    path = tmp_path / "printed"
    path.write_text(config_text(first.settings, first.origins))
    again = configure(["--config", str(path)], {})
    assert again.settings == first.settings
    assert "# From command line.\nport=7\n" in path.read_text()


def test_every_default_is_in_the_printed_configuration_commented_out():
    lines = config_text(Settings(), {}).splitlines()
    assert all(line.startswith("#") or not line for line in lines)
    assert all(any(line.startswith(f"#{name}=") for line in lines) for name in OPTIONS)


def test_what_could_not_be_served_is_printed():
    assert configure(["--print-config", "--no-data-dir"], {}).settings == Settings()
    with pytest.raises(CannotStart, match="no client could log in"):
        configure(["--check"], {})


def test_secrets_are_not_printed():
    configuration = configure(["--auth=no", "--ha-username", "ha", "--ha-password", "hush"], {})
    assert "hush" not in config_text(configuration.settings, configuration.origins)


@pytest.mark.parametrize(
    ("env", "uid", "place"),
    [
        ({"HOME": "/root"}, 0, "/var/lib/qpidha"),
        ({"HOME": "/var/lib/qpidha"}, 998, "/var/lib/qpidha"),
        ({"HOME": "/home/ann"}, 1000, "/home/ann/.qpidha"),
        ({}, 1000, "/var/lib/qpidha"),
        ({"HOME": "/home/ann", "STATE_DIRECTORY": "/srv/a:/srv/b"}, 1000, "/srv/a"),
    ],
)
def test_the_default_data_dir_is_that_of_whoever_starts_it(
    env: dict[str, str], uid: int, place: str
) -> None:
    assert default_data_dir(env, uid) == place
    assert configure(["--interface", "127.0.0.1"], env, uid=uid).settings.data_dir == place


@pytest.mark.parametrize("argv", [["--no-data-dir"], ["--no-data-dir=yes"], ["--data-dir", ""]])
def test_no_data_dir_is_to_have_none(argv: list[str]) -> None:
    found = configure([*argv, "--interface", "127.0.0.1", "--ha-cluster"], {"QPID_DATA_DIR": "/x"})
    assert found.settings.data_dir == ""
    assert any("without data-dir" in warning for warning in found.warnings)


def test_no_data_dir_that_says_no_is_told_to_be_of_no_use() -> None:
    found = configure(["--interface", "127.0.0.1", "--no-data-dir=no"], {"QPIDHA_DATA_DIR": "/x"})
    assert found.settings.data_dir == "/x" and "no-data-dir" in found.warnings[0]
