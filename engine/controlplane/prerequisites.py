"""What a computer has to have for real machines, and what of it can be installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from falaj.engine import debian
from falaj.engine.controlplane.machine import CONTROL_GROUPS

#: Debian's package by command.
_PACKAGES: Final = {
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "mount": "mount",
    "nft": "nftables",
    "runc": "runc",
    "conntrack": "conntrack",
    "iptables": "iptables",
    "ipset": "ipset",
}
#: What builds the images that tests run there.
BUILDER: Final = "buildah"
#: Hierarchies of control groups that a kubelet and runc need.
_CONTROLLERS: Final = ("cpu", "cpuacct", "cpuset", "memory", "pids", "devices", "freezer")
_SECONDS: Final = 60


def lacking() -> list[str]:
    """What this computer lacks to run real machines, each with what to do; nothing: it can."""
    if sys.platform != "linux":
        return [f"Linux: this is {sys.platform}"]
    found: list[str] = []
    if os.geteuid() != 0:
        found.append("root, who makes namespaces, mounts and control groups: run it as root")
    found += [
        f"the command {each}: on Debian, as root, apt-get install {_PACKAGES[each]}"
        for each in _missing()
    ]
    filesystems = Path("/proc/filesystems").read_text(encoding="utf-8").split()
    if "overlay" not in filesystems:
        found.append("the file system overlay, in which containers have theirs: load its module")
    missing = [each for each in _CONTROLLERS if not (CONTROL_GROUPS / each).is_dir()]
    if missing:
        found.append(
            f"control groups of version 1 ({', '.join(missing)}) below {CONTROL_GROUPS}: machines "
            "with version 2 alone aren't known yet"
        )
    if not found and (reason := _kernel()):
        found.append(reason)
    return found


def install_missing(*more: str) -> list[str]:
    """Install the packages whose commands are missing; their names.

    Args:
        more: further commands that are wanted, each called as its package is.

    Raises:
        EngineError: they can't be installed from here.
    """
    packages = sorted(
        {_PACKAGES[each] for each in _missing()}
        | {each for each in more if shutil.which(each) is None}
    )
    if packages:
        debian.install(packages)
    return packages


def _missing() -> list[str]:
    return [each for each in _PACKAGES if shutil.which(each) is None]


def _kernel() -> str:
    """What the kernel refuses of what policies need; empty where it has all."""
    wanted = (
        "nft add table ip t",
        "ipset create t hash:ip",
        "iptables -A FORWARD -m comment --comment t -m set --match-set t src -j ACCEPT",
    )
    tried = subprocess.run(
        ["unshare", "--net", "sh", "-ec", "\n".join(wanted)],
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
    )
    if tried.returncode == 0:
        return ""
    errors = tried.stderr.strip().splitlines()
    return f"nf_tables and sets of addresses in the kernel: {errors[0] if errors else 'none'}"
