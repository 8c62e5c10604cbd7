"""A real machine: `python -m falaj.engine.controlplane.machine FOLDER`, its first process.

It runs a kubelet, containerd, kube-proxy and the enforcement of network policies in namespaces of
its own: network, processes, mounts, host name, control groups. It is this computer's kernel and
files for all that, and no more separated from it than a privileged container. When its first
process ends, the kernel ends everything in it, containers too, and its mounts are gone.

The program is started three times: it joins the machine's control groups, becomes `nsenter` and
`unshare`, which start it anew as the first process inside.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final, Self

from falaj.engine.controlplane.machine_network import NAMESPACES
from falaj.engine.controlplane.processes import (
    CALLS_PER_SECOND,
    CLUSTER_DOMAIN,
    NODE_LEASE_SECONDS,
    RESOLVER,
    SERVICE_RANGE,
    Supervisor,
    write_private,
)
from falaj.engine.errors import EngineError

PROGRAM: Final = "falaj.engine.controlplane.machine"
CONTROL_GROUPS: Final = Path("/sys/fs/cgroup")
SOCKET: Final = "/run/containerd/containerd.sock"
_MOST_PODS: Final = 60
_READY_SECONDS: Final = 60.0
_STEP_SECONDS: Final = 0.2
_RESTART_SECONDS: Final = 1.0
_INSIDE: Final = "inside"


@dataclass(frozen=True)
class Machine:
    """What a machine is; written into its folder by who starts it."""

    name: str
    folder: str
    namespace: str
    """Of the network."""
    group: str
    """Its control group, below each hierarchy's root."""
    address: str
    pods: str
    """The range of its pods' addresses."""
    cluster: str
    """The range of all pods' addresses."""
    gateway: str
    """The control plane's address."""
    binaries: dict[str, str]
    """Folder of built commands by module."""
    sandbox_image: str
    """What holds a pod's namespaces, by digest."""
    registry: str
    """Address of the registry, whose name every image's host has."""
    labels: dict[str, str]
    taints: list[dict[str, str]]

    @property
    def here(self) -> Path:
        """Its folder."""
        return Path(self.folder)

    def write(self) -> None:
        """Write it into its folder."""
        write_private(self.here / "machine.json", asdict(self))

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read it from its folder."""
        return cls(**json.loads((folder / "machine.json").read_text(encoding="utf-8")))

    def program(self, module: str, command: str) -> str:
        """The path of a built command."""
        return str(Path(self.binaries[module]) / command)


# Control groups: one in each hierarchy of version 1.


def hierarchies() -> list[str]:
    """Names of the hierarchies that this process is in, as they are mounted."""
    lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    names = (line.split(":")[1] for line in lines)
    return [name.removeprefix("name=") for name in names if name]


def make_group(group: str) -> None:
    """Make a control group in each hierarchy; who has one already keeps it."""
    for hierarchy in hierarchies():
        path = CONTROL_GROUPS / hierarchy
        for part in Path(group).parts:
            path /= part
            path.mkdir(exist_ok=True)
            if hierarchy == "cpuset":
                # Without processors and memory nobody may join; a new group has none.
                for setting in ("cpuset.cpus", "cpuset.mems"):
                    if not (path / setting).read_text().strip():
                        (path / setting).write_text((path.parent / setting).read_text())


def remove_group(group: str) -> None:
    """Remove a control group with all below it; what still runs in it is ended.

    A container that was just starting outlives the first process of its machine by a moment.

    Raises:
        EngineError: something in it doesn't end.
    """
    until = time.monotonic() + _END_SECONDS
    for hierarchy in hierarchies():
        above = CONTROL_GROUPS / hierarchy / group
        while left := _remove_folders(above):
            if time.monotonic() > until:
                raise EngineError(f"processes in {left[0]} don't end; see its cgroup.procs")
            for folder in left:
                for number in (folder / "cgroup.procs").read_text().split():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(number), signal.SIGKILL)
            time.sleep(0.1)


_END_SECONDS: Final = 20


def _remove_folders(above: Path) -> list[Path]:
    """Remove folders of groups from below; those that are in use are left and returned."""
    left: list[Path] = []
    for name, _, _ in os.walk(above, topdown=False):
        folder = Path(name)
        try:
            folder.rmdir()
        except OSError as error:
            if error.errno not in (errno.EBUSY, errno.ENOTEMPTY):
                raise
            if error.errno == errno.EBUSY:
                left.append(folder)
    return left


# What its programs read.


def containerd_configuration(machine: Machine) -> str:
    """https://github.com/containerd/containerd/blob/main/docs/cri/config.md"""
    runtime, images = "io.containerd.cri.v1.runtime", "io.containerd.cri.v1.images"
    here = machine.here
    return f"""\
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.tracing.processor.v1.otlp"]

[grpc]
address = "{SOCKET}"

[plugins."{runtime}"]
# Without CAP_SYS_RESOURCE nobody may be spared more than he is: runc would end.
restrict_oom_score_adj = true

[plugins."{runtime}".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."{runtime}".containerd.runtimes.runc.options]
BinaryName = "{shutil.which("runc")}"

[plugins."{runtime}".cni]
bin_dirs = ["{machine.binaries["containerd"]}"]
conf_dir = "{here / "cni"}"

[plugins."{images}".pinned_images]
sandbox = "{machine.sandbox_image}"

[plugins."{images}".registry]
config_path = "{here / "registries"}"
"""


def network_configuration(machine: Machine) -> dict[str, Any]:
    """Each pod by an interface of its own to its machine, which routes: policies see all packets.

    https://www.cni.dev/plugins/current/main/ptp/
    """
    return {
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [
            {
                "type": "ptp",
                "ipMasq": False,
                "ipam": {
                    "type": "host-local",
                    "dataDir": "/run/cni",
                    "routes": [{"dst": "0.0.0.0/0"}],
                    "ranges": [[{"subnet": machine.pods}]],
                },
            }
        ],
    }


def registry_configuration(machine: Machine) -> str:
    """One registry answers for every name: nothing is asked abroad.

    https://github.com/containerd/containerd/blob/main/docs/hosts.md
    """
    address = f"https://{machine.registry}"
    authority = machine.here / "ca.crt"
    return f'server = "{address}"\n\n[host."{address}"]\nca = "{authority}"\n'


def kubelet_configuration(machine: Machine) -> dict[str, Any]:
    """https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/"""
    here = machine.here
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(here / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(here / "kubelet-server.crt"),
        "tlsPrivateKeyFile": str(here / "kubelet-server.key"),
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        # Sparing it from the kernel's choice needs CAP_SYS_RESOURCE.
        "oomScoreAdj": 0,
        "clusterDNS": [RESOLVER],
        "clusterDomain": CLUSTER_DOMAIN,
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "resolvConf": str(here / "resolv.conf"),
        "maxPods": _MOST_PODS,
        "seccompDefault": True,
        "serializeImagePulls": False,
        "nodeLeaseDurationSeconds": NODE_LEASE_SECONDS,
        "nodeStatusUpdateFrequency": "5s",
        # Certificates that controllers make themselves reach their pods within this time.
        "syncFrequency": "5s",
        # All machines share one disk, which isn't theirs to clean up.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "registerWithTaints": machine.taints,
        "shutdownGracePeriod": "0s",
    }


def proxy_configuration(machine: Machine) -> dict[str, Any]:
    """https://kubernetes.io/docs/reference/config-api/kube-proxy-config.v1alpha1/"""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "hostnameOverride": machine.name,
        "clusterCIDR": machine.cluster,
        "clientConnection": {
            "kubeconfig": str(machine.here / "kube-proxy.kubeconfig"),
            "qps": CALLS_PER_SECOND,
            "burst": 2 * CALLS_PER_SECOND,
        },
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        # Limits of the whole computer.
        "conntrack": {"maxPerCore": 0, "min": 0},
        "nftables": {"minSyncPeriod": "0.2s"},
    }


def prepare(machine: Machine) -> None:
    """Write all that its programs read, but for what names it to the API server."""
    here = machine.here
    for folder in ("cni", "registries/_default", "containerd", "kubelet", "log"):
        (here / folder).mkdir(parents=True, exist_ok=True, mode=0o700)
    for name, content in (
        ("containerd.toml", containerd_configuration(machine)),
        ("cni/pods.conflist", network_configuration(machine)),
        ("registries/_default/hosts.toml", registry_configuration(machine)),
        ("kubelet.json", kubelet_configuration(machine)),
        ("kube-proxy.json", proxy_configuration(machine)),
        ("resolv.conf", f"nameserver {machine.gateway}\n"),
        ("hosts", f"127.0.0.1 localhost\n{machine.address} {machine.name}\n"),
    ):
        write_private(here / name, content)


# Outside: from this computer into the machine.


def command(machine: Machine) -> list[str]:
    """Starts a machine."""
    # The package knows this module already, which runpy warns of.
    return [sys.executable, "-P", "-W", "ignore::RuntimeWarning", "-m", PROGRAM, machine.folder]


def is_first(line: Sequence[str]) -> bool:
    """Whether a command line is of a machine's first process, and not of what started it."""
    return line[:1] == [sys.executable] and PROGRAM in line and line[-1] == _INSIDE


def program_of(executable: str) -> str:
    """What a machine calls the program that runs a file of that name."""
    return {"kube-router": "network-policies"}.get(executable, executable)


def _enter(machine: Machine) -> None:
    make_group(machine.group)
    for hierarchy in hierarchies():
        procs = CONTROL_GROUPS / hierarchy / machine.group / "cgroup.procs"
        procs.write_text(str(os.getpid()))
    enter = [
        "nsenter", f"--net={NAMESPACES / machine.namespace}", "--",
        "unshare", "--mount", "--uts", "--ipc", "--cgroup", "--pid", "--fork",
        "--propagation", "private", "--kill-child=SIGKILL", "--",
        *command(machine), _INSIDE,
    ]  # fmt: skip
    os.execvp(enter[0], enter)  # noqa: S606  no shell wanted


# Inside: the machine's first process.


def _mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise EngineError(f"`mount {' '.join(arguments)}` failed: {done.stderr.strip()}")


def _mount_own(machine: Machine) -> None:
    """Give the machine its own view of processes, network, control groups and files."""
    here = machine.here
    names = hierarchies()
    _mount("-t", "proc", "proc", "/proc")
    _mount("-t", "sysfs", "sysfs", "/sys")
    _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", str(CONTROL_GROUPS))
    for name in names:
        (CONTROL_GROUPS / name).mkdir()
        option = name if name != "systemd" else "none,name=systemd"
        _mount("-t", "cgroup", "-o", option, "cgroup", str(CONTROL_GROUPS / name))
    _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    # Nothing of this computer's own state is needed, and nothing is written there.
    _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/var/lib")
    for name in ("containerd", "kubelet"):
        target = Path("/var/lib") / name
        target.mkdir()
        _mount("--bind", str(here / name), str(target))
    # Volumes that a kubelet mounts have to be seen by what it starts.
    _mount("--make-rshared", "/var/lib/kubelet")
    Path("/var/lib/cni").mkdir()
    _mount("--bind", str(here / "log"), "/var/log")
    for name in ("resolv.conf", "hosts"):
        _mount("--bind", str(here / name), f"/etc/{name}")


def _set_kernel() -> None:
    for name, value in (
        ("net/ipv4/ip_forward", "1"),
        ("net/ipv4/conf/all/rp_filter", "0"),
        ("net/ipv4/conf/default/rp_filter", "0"),
    ):
        (Path("/proc/sys") / name).write_text(value, encoding="utf-8")


def _programs(machine: Machine) -> dict[str, tuple[list[str], dict[str, str]]]:
    here = machine.here
    labels = ",".join(f"{key}={value}" for key, value in sorted(machine.labels.items()))
    return {
        "containerd": (
            [
                machine.program("containerd", "containerd"),
                "--config",
                str(here / "containerd.toml"),
            ],
            {},
        ),
        "kubelet": (
            [
                machine.program("kubelet", "kubelet"),
                f"--config={here / 'kubelet.json'}",
                f"--kubeconfig={here / 'kubelet.kubeconfig'}",
                f"--hostname-override={machine.name}",
                f"--node-ip={machine.address}",
                f"--node-labels={labels}",
                "--v=1",
            ],
            {},
        ),
        "kube-proxy": (
            [machine.program("kubelet", "kube-proxy"), f"--config={here / 'kube-proxy.json'}"],
            {},
        ),
        "network-policies": (
            [
                machine.program("network-policies", "kube-router"),
                "--run-firewall=true",
                "--run-router=false",
                "--run-service-proxy=false",
                "--run-loadbalancer=false",
                f"--kubeconfig={here / 'network-policies.kubeconfig'}",
                f"--hostname-override={machine.name}",
                f"--service-cluster-ip-range={SERVICE_RANGE}",
                "--iptables-sync-period=30s",
                "--health-port=0",
            ],
            {},
        ),
    }


def _run(machine: Machine) -> None:
    socket.sethostname(machine.name)
    _mount_own(machine)
    _set_kernel()
    supervisor = Supervisor(Path("/var/log"))
    programs = _programs(machine)
    start = dict.fromkeys(programs, 0.0)
    while True:
        held = {path.name for path in (machine.here / "held").glob("*")}
        for name, (line, environment) in programs.items():
            running = name in supervisor.processes
            if running and supervisor.has_ended(name):
                supervisor.stop(name)
                start[name], running = time.monotonic() + _RESTART_SECONDS, False
            if name in held:
                if running:
                    supervisor.kill(name)
            elif not running and time.monotonic() >= start[name]:
                if name != "containerd" and not Path(SOCKET).exists():
                    continue
                supervisor.start(name, line, environment)
        _reap(set(supervisor.processes.values()))
        time.sleep(_STEP_SECONDS)


def _reap(own: set[int]) -> None:
    """Take the leave of processes whose parent has ended; those of the supervisor are its own."""
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if found is None or found.si_pid in own:
            return
        os.waitpid(found.si_pid, os.WNOHANG)


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


def main(arguments: Sequence[str]) -> int:
    """Start a machine, or be its first process."""
    machine = Machine.read(Path(arguments[0]))
    if _INSIDE not in arguments[1:]:
        _enter(machine)
    signal.signal(signal.SIGTERM, _leave)
    try:
        _run(machine)
    except (EngineError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
