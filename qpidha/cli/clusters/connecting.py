"""Connecting: what `qpid-ha local` says of how a client gets into a secure cluster. A password is
told by its file alone.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from qpidha.pipeline.workload.run_dirs import program


def lines_for_clients(clients: Mapping[str, str]) -> list[str]:
    """Say how clients connect, as the manager told it; nothing where everybody gets in."""
    if "user" not in clients:
        return []
    url, trusted, user, file = (
        clients[name] for name in ("url", "ssl_trusted", "user", "password_file")
    )
    login = shlex.join(
        ["-b", url, "--ssl-trusted", trusted, "--user", user, "--password-file", file]
    )
    return [
        f"clients  {url}",
        f"CA file  {trusted}",
        f"user     {user}, password in {file}",
        f"try      {program()} queue add orders {login}",
        f"         {program()} send orders hello {login}",
        f"         {program()} receive orders -m 1 {login}",
        *_proton(url, trusted, user, file),
        *_rhea(url, trusted, user, file),
    ]


def _proton(url: str, trusted: str, user: str, file: str) -> list[str]:
    # proton compares the names of a certificate alone, and no addresses.
    ports = [address.rpartition(":")[2] for address in _addresses(url)]
    urls = [f"amqps://localhost:{port}" for port in ports]
    return [
        "proton   domain = SSLDomain(SSLDomain.MODE_CLIENT)",
        f"         domain.set_trusted_ca_db({trusted!r})",
        "         domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)",
        f"         container.connect(urls={urls!r}, ssl_domain=domain,",
        f"             user={user!r}, password=open({file!r}).readline().strip())",
    ]


def _rhea(url: str, trusted: str, user: str, file: str) -> list[str]:
    places = [address.rpartition(":") for address in _addresses(url)]
    servers = ", ".join(f"{{host: {host!r}, port: {port}}}" for host, _, port in places)
    return [
        f"rhea     const servers = [{servers}];",
        f"         const ca = fs.readFileSync({trusted!r});",
        "         let next = 0;",
        "         container.connect({connection_details: () => ({",
        "             ...servers[next++ % servers.length], transport: 'tls', options: {ca}}),",
        f"             username: {user!r}, password: fs.readFileSync({file!r}, 'utf8').trim()}});",
    ]


def _addresses(url: str) -> list[str]:
    return url.removeprefix("amqps://").split(",")
