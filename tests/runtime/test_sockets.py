"""Ports, the admin socket and the address of one's own."""

from __future__ import annotations

import errno
import os
import socket

import pytest

from qpidha.model.exit_codes import CONFIG, NO_PERMISSION, UNAVAILABLE
from qpidha.model.settings import Settings
from qpidha.model.url import parse_url
from qpidha.runtime.exits import CannotStart
from qpidha.runtime.sockets import (
    admin_group,
    admin_socket_path,
    bind_admin,
    bind_port,
    inherited,
    listen,
    own_address,
)

LOOPBACK = Settings(interface=("127.0.0.1",))


def test_a_port_in_use_is_named_with_what_to_do():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CannotStart) as caught:
            bind_port(LOOPBACK, port, "port")
    assert (
        str(port) in caught.value.text
        and "another port" in caught.value.hint
        and caught.value.code == UNAVAILABLE
    )


def test_a_port_that_somebody_took_meanwhile_is_an_error_too():
    first = bind_port(LOOPBACK, 0, "port")
    second = bind_port(LOOPBACK, first[0].getsockname()[1], "port")
    listen(first, 1, "port")
    with pytest.raises(CannotStart) as caught:
        listen(second, 1, "port")
    assert caught.value.code == UNAVAILABLE
    for one in first + second:
        one.close()


def test_any_free_port_is_the_same_on_all_interfaces():
    bound = bind_port(Settings(), 0, "port")
    assert len({one.getsockname()[1] for one in bound}) == 1 and bound[0].getsockname()[1] > 0
    for one in bound:
        one.close()


def test_an_interface_can_be_given_by_name():
    (one,) = bind_port(Settings(interface=("lo",)), 0, "port")
    assert one.getsockname()[0] == "127.0.0.1"
    one.close()


def test_an_unknown_interface_is_refused():
    with pytest.raises(CannotStart) as caught:
        bind_port(Settings(interface=("no such",)), 0, "port")
    assert "no such" in caught.value.text and caught.value.code == CONFIG


def test_a_socket_of_the_parent_is_taken_over():
    with socket.socket() as parent:
        parent.bind(("127.0.0.1", 0))
        (one,) = inherited(Settings(socket_fd=(str(parent.dup().detach()),)))
        assert one.getsockname() == parent.getsockname()
        one.close()
    with pytest.raises(CannotStart):
        inherited(Settings(socket_fd=("60000",)))


def test_the_admin_socket_of_a_dead_daemon_is_replaced_and_that_of_a_live_one_is_not(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    bind_admin("admin.sock").close()
    alive = bind_admin("admin.sock")
    alive.listen()
    with pytest.raises(CannotStart) as caught:
        bind_admin("admin.sock")
    assert "another daemon" in caught.value.text and caught.value.code == UNAVAILABLE
    alive.close()


@pytest.mark.parametrize("fault", ["", "may be written by others", "is no directory", "belongs to"])
def test_code_7_the_folder_that_anybody_may_make_first_is_used_if_it_is_ours(
    tmp_path, monkeypatch, fault
):
    folder = tmp_path / "qpidha-1"
    monkeypatch.setattr("qpidha.runtime.sockets.SHARED", str(tmp_path))
    if fault == "is no directory":
        (tmp_path / "other").mkdir(0o700)
        folder.symlink_to(tmp_path / "other")
    else:
        folder.mkdir(0o700)
        folder.chmod(0o777 if fault == "may be written by others" else 0o700)
    if fault == "belongs to":
        monkeypatch.setattr("os.getuid", lambda: 4711)
    if not fault:
        bind_admin(str(folder / "admin.sock")).close()
        return
    with pytest.raises(CannotStart, match=fault) as caught:
        bind_admin(str(folder / "admin.sock"))
    assert caught.value.code == NO_PERMISSION


def test_a_group_that_there_is_not_is_refused():
    assert admin_group(Settings()) is None
    assert admin_group(Settings(admin_socket_group="root")) == 0
    with pytest.raises(CannotStart, match="no-such is no group") as caught:
        admin_group(Settings(admin_socket_group="no-such"))
    assert caught.value.code == CONFIG


def test_a_group_to_which_the_broker_does_not_belong_is_refused(tmp_path, monkeypatch):
    def refused(*args: object) -> None:
        raise PermissionError(errno.EPERM, "not permitted")

    monkeypatch.setattr("os.chown", refused)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CannotStart, match="is not a member of it") as caught:
        bind_admin("admin.sock", 60001)
    assert caught.value.code == NO_PERMISSION and "usermod" in caught.value.hint
    assert os.stat("admin.sock").st_mode & 0o777 == 0o600


def test_a_path_too_long_for_a_socket_is_refused():
    with pytest.raises(CannotStart) as caught:
        bind_admin("/tmp/" + "x" * 110)
    assert "107 bytes" in caught.value.text


def test_the_admin_socket_is_where_it_is_looked_for():
    assert admin_socket_path(Settings(admin_socket="/a/b", data_dir="/d"), 1, {}) == "/a/b"
    assert admin_socket_path(Settings(data_dir="/d"), 1, {}) == "/d/admin.sock"
    assert admin_socket_path(Settings(), 5672, {}).endswith("/admin-5672.sock")


@pytest.mark.parametrize(
    ("settings", "address"),
    [
        (Settings(advertised_address="broker:7"), "broker:7"),
        (Settings(advertised_address="broker"), "broker:1000"),
        (Settings(advertised_address="[::1]"), "[::1]:1000"),
        (Settings(advertised_address="[::1]:8"), "[::1]:8"),
        (Settings(ha_brokers_url=parse_url("192.0.2.1:1000,127.0.0.1:1000")), "127.0.0.1:1000"),
        (
            Settings(
                ha_brokers_url=parse_url("127.0.0.1:1000,127.0.0.2:1000"), interface=("127.0.0.2",)
            ),
            "127.0.0.2:1000",
        ),
        (Settings(ha_brokers_url=parse_url("ssl:127.0.0.1:1000")), "ssl:127.0.0.1:1000"),
        (Settings(ha_brokers_url=parse_url("ssl:127.0.0.1:1001")), "ssl:127.0.0.1:1001"),
        (Settings(interface=("127.0.0.1",)), "127.0.0.1:1000"),
    ],
)
def test_the_own_address_is_what_others_use(settings, address):
    assert str(own_address(settings, [1000, 1001])) == address
