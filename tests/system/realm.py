"""A realm of Kerberos in a folder: Debian's key distribution centre on the loopback, and its
principals, keytabs and ticket caches. Nothing of it is in the system's folders, and it needs no
root.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

from tests.patience import STATE

PORTS = 5
"""So many ports are tried."""
PLACES = f"/usr/sbin:{os.environ['PATH']}"
KDC, KADMIN, KDB, KINIT, KLIST = (
    shutil.which(name, path=PLACES)
    for name in ("krb5kdc", "kadmin.local", "kdb5_util", "kinit", "klist")
)


def is_possible() -> bool:
    """Whether the packages krb5-kdc, krb5-admin-server and krb5-user, and gssapi, are there."""
    try:
        import gssapi  # noqa: F401
    except ImportError:
        return False
    return all((KDC, KADMIN, KDB, KINIT))


class Realm:
    """One realm, whose key distribution centre runs until `close`."""

    def __init__(self, folder: Path, name: str = "HA.EXAMPLE") -> None:
        self.name, self.folder = name, folder
        folder.mkdir(parents=True, exist_ok=True)
        self.environment = {
            "KRB5_CONFIG": str(folder / "krb5.conf"),
            "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
            "KRB5RCACHEDIR": str(folder),
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._configure()
        self._run(KDB, "-r", name, "-P", "master", "create", "-s")
        for _ in range(PORTS - 1):
            try:
                self.start()
                return
            except AssertionError:
                self._configure()  # Somebody else took the port meanwhile.
        self.start()

    def _configure(self) -> None:
        """Write the files of a realm at a port that is free."""
        name, folder = self.name, self.folder
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        (folder / "krb5.conf").write_text(
            f"""[libdefaults]
default_realm = {name}
dns_lookup_kdc = false
dns_lookup_realm = false
dns_canonicalize_hostname = false
rdns = false
[realms]
{name} = {{
 kdc = 127.0.0.1:{self.port}
}}
[domain_realm]
localhost = {name}
"""
        )
        (folder / "kdc.conf").write_text(
            f"""[kdcdefaults]
kdc_listen = 127.0.0.1:{self.port}
kdc_tcp_listen = 127.0.0.1:{self.port}
[realms]
{name} = {{
 database_name = {folder}/principal
 key_stash_file = {folder}/stash
 acl_file = {folder}/acl
 max_life = 1d
}}
"""
        )

    def start(self) -> None:
        """Have the key distribution centre answer."""
        self._process = subprocess.Popen(
            [str(KDC), "-n", "-r", self.name],
            env={**os.environ, **self.environment},
            stdout=subprocess.DEVNULL,
            stderr=(self.folder / "kdc.log").open("ab"),
        )
        end = time.monotonic() + STATE
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert self._process.poll() is None, (self.folder / "kdc.log").read_text()
                assert time.monotonic() < end, "the key distribution centre does not start"
                time.sleep(0.02)

    def close(self) -> None:
        """End the key distribution centre."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def keytab(self, *principals: str) -> Path:
        """Make principals with random keys, and a keytab of them."""
        path = self.folder / f"{principals[0].replace('/', '-')}.keytab"
        for principal in principals:
            self._run(KADMIN, "-r", self.name, "-q", f"addprinc -randkey {principal}")
            self._run(KADMIN, "-r", self.name, "-q", f"ktadd -k {path} {principal}")
        return path

    def ticket(self, user: str, *, lifetime: str = "1h", is_new: bool = True) -> dict[str, str]:
        """Make a user and get him a ticket; return the environment of who has it."""
        if is_new:
            self._run(KADMIN, "-r", self.name, "-q", f"addprinc -pw secret {user}")
        cache = f"FILE:{self.folder}/cache-{user.replace('/', '-')}"
        environment = {**self.environment, "KRB5CCNAME": cache}
        self._run(KINIT, "-l", lifetime, user, given="secret\n", environment=environment)
        return environment

    def has_ticket(self, environment: dict[str, str]) -> bool:
        """Whether there is a ticket that is not over."""
        words, whole = [str(KLIST), "-s"], {**os.environ, **environment}
        return subprocess.run(words, env=whole, timeout=STATE, check=False).returncode == 0

    def _run(
        self, *words: str | None, given: str = "", environment: dict[str, str] | None = None
    ) -> None:
        done = subprocess.run(
            [str(word) for word in words],
            input=given,
            env={**os.environ, **(environment or self.environment)},
            capture_output=True,
            text=True,
            timeout=STATE,
            check=False,
        )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
