"""Sockets: what the daemon listens on, bound before the node is made so that its address is known.

Plain and TLS ports on every interface or on those given, sockets handed over by the parent, and the
admin socket with the kernel's word for who is at its other end. Also finds the address that others
should use for this broker.
"""

from __future__ import annotations

import errno
import fcntl
import grp
import os
import pwd
import socket
import stat
import struct
from collections.abc import Mapping, Sequence

from qpidha.model.exit_codes import CONFIG, NO_PERMISSION, UNAVAILABLE
from qpidha.model.paths import SHARED, admin_socket
from qpidha.model.settings import Settings
from qpidha.model.url import Address, parse_address
from qpidha.runtime.exits import CannotStart, code_of, reason_of

_SIOCGIFADDR = 0x8915
_UNIX_PATH_LIMIT = 107
_CREDENTIALS, _ID = struct.Struct("3i"), struct.Struct("I")
SO_PEERGROUPS = 59
"""Linux' name for the groups of the process at the other end; Python has none."""
MOST_GROUPS = 256
"""Of one process; Python reads no more, and who is in more counts as in his own one only."""


def bind_port(settings: Settings, port: int, option: str) -> list[socket.socket]:
    """Sockets bound to `port` on the interfaces that are asked for; port 0 picks one that is free
    on all of them.
    """
    bound: list[socket.socket] = []
    wildcard = not settings.interface
    try:
        for family, host in (
            [(socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")] if wildcard else _hosts(settings)
        ):
            chosen = bound[0].getsockname()[1] if bound else port
            try:
                bound.append(_bind(family, host, chosen))
            except OSError as error:
                # A machine without IPv6 still listens on IPv4.
                if wildcard and bound and error.errno in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                    continue
                raise _cannot_listen(option, host, chosen, error) from error
    except CannotStart:
        for one in bound:
            one.close()
        raise
    return bound


def _bind(family: int, host: str, port: int) -> socket.socket:
    one = socket.socket(family, socket.SOCK_STREAM)
    try:
        one.setblocking(False)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.bind((host, port))
    except OSError:
        one.close()
        raise
    return one


def _cannot_listen(option: str, host: str, port: int, error: OSError) -> CannotStart:
    if error.errno == errno.EADDRINUSE:
        return CannotStart(
            f"{option} {port} is in use on {host}",
            hint=f"stop what listens there, or give another {option}",
            code=UNAVAILABLE,
        )
    if isinstance(error, PermissionError):
        return CannotStart(
            f"{option} {port} on {host} is not permitted",
            hint="ports below 1024 need CAP_NET_BIND_SERVICE",
            code=NO_PERMISSION,
        )
    return CannotStart(
        f"cannot listen on {host} {option} {port}: {reason_of(error)}",
        hint="check interface and port",
        code=CONFIG,
    )


def listen(sockets: list[socket.socket], backlog: int, option: str) -> None:
    """Start to listen; of two daemons that bound the same port one hears of it only here."""
    for one in sockets:
        try:
            one.listen(backlog)
        except OSError as error:
            host, port = one.getsockname()[:2]
            raise _cannot_listen(option, host, port, error) from error


def _hosts(settings: Settings) -> list[tuple[int, str]]:
    """Addresses of the interfaces that the settings name."""
    found: list[tuple[int, str]] = []
    for name in settings.interface:
        device = _address_of_device(name)
        if device:
            found.append((socket.AF_INET, device))
            continue
        try:
            answers = socket.getaddrinfo(
                name.strip("[]"), None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
        except OSError as error:
            raise CannotStart(
                f"interface {name} is neither an address nor an interface of this "
                f"machine: {reason_of(error)}",
                hint="give addresses of this machine, or names as shown by ip address",
                code=CONFIG,
            ) from error
        found.extend((family, str(address[0])) for family, _, _, _, address in answers)
    return list(dict.fromkeys(found))


def _address_of_device(name: str) -> str:
    """IPv4 address of a network interface such as eth0, or empty."""
    if len(name) > 15 or not name.isascii():
        return ""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()))
        except OSError:
            return ""
    return socket.inet_ntoa(answer[20:24])


def inherited(settings: Settings) -> list[socket.socket]:
    """Sockets that the parent process bound for us."""
    found = []
    for text in settings.socket_fd:
        try:
            one = socket.socket(fileno=int(text))
            one.getsockname()
        except (OSError, ValueError) as error:
            raise CannotStart(
                f"socket-fd {text} is not an open socket: {error}",
                hint="pass a bound socket to this process",
                code=CONFIG,
            ) from error
        one.setblocking(False)
        found.append(one)
    return found


def admin_socket_path(
    settings: Settings, port: int, env: Mapping[str, str], *, in_data: bool = True
) -> str:
    """Where the admin socket is: as set, else in the data directory if that was given (`in_data`),
    else in the user's runtime directory under its port, where commands look by themselves.
    """
    if settings.admin_socket:
        return os.path.abspath(settings.admin_socket)
    if settings.data_dir and in_data:
        return os.path.join(os.path.abspath(settings.data_dir), "admin.sock")
    return admin_socket(env, os.getuid(), port)


def admin_group(settings: Settings) -> int | None:
    """Return the id of the group whose members may use the admin socket; None for none."""
    name = settings.admin_socket_group
    if not name:
        return None
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError as error:
        raise CannotStart(
            f"admin-socket-group {name} is no group of this machine",
            hint=f"make it with groupadd --system {name}, or leave admin-socket-group out",
            code=CONFIG,
        ) from error


def bind_admin(path: str, group: int | None = None) -> socket.socket:
    """Bind the admin socket, replacing one that a dead daemon left; members of a group may connect,
    or nobody but its owner.
    """
    if len(os.fsencode(path)) > _UNIX_PATH_LIMIT:
        raise CannotStart(
            f"admin-socket {path} is longer than the {_UNIX_PATH_LIMIT} bytes that a "
            "UNIX socket may have",
            hint="give a shorter path with admin-socket",
            code=CONFIG,
        )
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        one.setblocking(False)
        folder = os.path.dirname(os.path.abspath(path))
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if folder.startswith(SHARED):
            _check_own(folder)
        _remove_stale(path)
        one.bind(path)
        os.chmod(path, 0o600)
        if group is not None:
            _give_to_group(path, group)
    except OSError as error:
        one.close()
        raise CannotStart(
            f"admin-socket {path} cannot be used: {reason_of(error)}",
            hint="give another path with admin-socket",
            code=code_of(error),
        ) from error
    except CannotStart:
        one.close()
        raise
    return one


def _give_to_group(path: str, group: int) -> None:
    """Let members of a group connect to a socket."""
    try:
        os.chown(path, -1, group)
    except PermissionError as error:
        name = group_name(group)
        raise CannotStart(
            f"admin-socket {path} cannot be given to the group {name}: {user_name(os.getuid())} is "
            "not a member of it",
            hint=f"usermod --append --groups {name} {user_name(os.getuid())}, and start again",
            code=NO_PERMISSION,
        ) from error
    os.chmod(path, 0o660)


def _check_own(folder: str) -> None:
    """Refuse a folder that somebody else made where everybody may make one. Raises OSError."""
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        raise PermissionError(errno.EPERM, f"{folder} is no directory")
    if found.st_uid != os.getuid():
        raise PermissionError(errno.EPERM, f"{folder} belongs to {user_name(found.st_uid)}")
    if found.st_mode & 0o022:
        raise PermissionError(errno.EPERM, f"{folder} may be written by others")


def _remove_stale(path: str) -> None:
    """Remove the socket of a daemon that is gone; refuse if it answers."""
    if not os.path.lexists(path):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise CannotStart(
        f"admin-socket {path} is in use by another daemon",
        hint="stop it, or give another path with admin-socket",
        code=UNAVAILABLE,
    )


def peer_of(fd: int) -> tuple[int, int]:
    """(process id, user id) at the other end of a UNIX socket, as the kernel knows them."""
    duplicate = socket.socket(fileno=os.dup(fd))
    with duplicate:
        pid, uid, _ = _CREDENTIALS.unpack(
            duplicate.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
    return pid, uid


def groups_of(fd: int) -> frozenset[int]:
    """Return the ids of the groups of the process at the other end of a UNIX socket, as they were
    when it connected.
    """
    with socket.socket(fileno=os.dup(fd)) as duplicate:
        _, _, own = _CREDENTIALS.unpack(
            duplicate.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        try:
            others = duplicate.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, MOST_GROUPS * _ID.size)
        except OSError:
            others = b""
    return frozenset((own, *(one for (one,) in _ID.iter_unpack(others))))


def group_name(gid: int) -> str:
    """Name of a local group."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return f"gid {gid}"


def user_name(uid: int) -> str:
    """Name of a local user."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def own_address(settings: Settings, ports: Sequence[int]) -> Address:
    """The address that others should use: as set, else the entry of ha-brokers-url that is ours,
    else a guess with the first port.
    """
    port = ports[0]
    if settings.advertised_address:
        given = parse_address(settings.advertised_address)
        has_port = settings.advertised_address.rstrip("]").rpartition(":")[
            2
        ].isdigit() and not settings.advertised_address.endswith("]")
        return given if has_port else Address(given.protocol, given.host, port)
    hosts = [_address_of_device(name) or name.strip("[]") for name in settings.interface]
    for address in settings.ha_brokers_url:
        if address.port in ports and _is_ours(address.host, hosts):
            return address
    protocol = "ssl" if settings.require_encryption else "tcp"
    for host in hosts:
        if host not in ("0.0.0.0", "::"):
            return Address(protocol, host, port)
    name = socket.gethostname()
    return Address(
        protocol, name if not settings.ha_cluster or _is_ours(name, []) else "127.0.0.1", port
    )


def _is_ours(host: str, interfaces: list[str]) -> bool:
    """Whether `host` is an address of this machine (one can bind to it) and, if we listen on some
    only, of those.
    """
    try:
        answers = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except OSError:
        return False
    for family, kind, _, _, address in answers:
        if interfaces and host not in interfaces and address[0] not in interfaces:
            continue
        with socket.socket(family, kind) as probe:
            try:
                probe.bind(address)
            except OSError:
                continue
            return True
    return False
