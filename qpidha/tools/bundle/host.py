"""The host of a bundle: versions of what runs here, and what the machine has."""

from __future__ import annotations

import os
import platform
import resource
import ssl
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from qpidha.tools.bundle.local import tool

FILES = (
    "/proc/meminfo",
    "/proc/loadavg",
    "/proc/uptime",
    "/etc/os-release",
    "/proc/sys/fs/file-nr",
)
LIMITS = ("NOFILE", "MEMLOCK", "NPROC", "AS", "CORE", "FSIZE")
LONGEST = 1 << 16
"""Characters of one file of the system."""


def versions() -> dict[str, Any]:
    """Return the versions of Python, of the packages beside us, of OpenSSL and of the kernel."""
    found = {one.metadata["Name"]: one.version for one in distributions() if one.metadata["Name"]}
    kernel = os.uname()
    return {
        "qpidha": found.get("qpidha", "unknown"),
        "proton": found.get("python-qpid-proton", "unknown"),
        "python": sys.version,
        "executable": sys.executable,
        "openssl": ssl.OPENSSL_VERSION,
        "kernel": f"{kernel.sysname} {kernel.release} {kernel.version} {kernel.machine}",
        "platform": platform.platform(),
        "packages": dict(sorted(found.items())),
    }


def host() -> dict[str, Any]:
    """Return what this machine has, and what this user may have of it."""
    limits = {
        name.lower(): resource.getrlimit(getattr(resource, f"RLIMIT_{name}")) for name in LIMITS
    }
    return {
        "host": platform.node(),
        "cpus": os.cpu_count(),
        "usable_cpus": len(os.sched_getaffinity(0)),
        "limits_of_this_user": limits,
        "files": {path: _content(path) for path in FILES},
        "pacemaker": tool("crm_mon", "-1", "-A", "-r"),
    }


def _content(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")[:LONGEST]
    except OSError as error:
        return str(error.strerror)
