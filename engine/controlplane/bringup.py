"""Bring up one control plane in a folder: ports, certificates, files, processes, readiness."""

from __future__ import annotations

import itertools
import os
import socket
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from falaj.engine.controlplane import controllers, processes
from falaj.engine.controlplane.certificates import Authority, service_account_keys
from falaj.engine.controlplane.machine_network import Network
from falaj.engine.controlplane.processes import (
    LOOPBACK,
    Files,
    Ports,
    Supervisor,
    answers,
    wait_until,
)
from falaj.engine.controlplane.record import Settings
from falaj.engine.errors import EngineError

# Ports of the loopback for servers that are started a moment later.

_LOOPBACK = "127.0.0.1"
_FIRST, _LAST = 10_000, 32_000
"""Below the ports that systems give to connections by themselves (Linux: from 32,768)."""
_APART = 7_919
"""Between the places at which processes of neighbouring numbers begin to look."""
_places = itertools.count(os.getpid() * _APART)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens at, each time others.

    Processes that look at the same time look at different places, and connections have ports of
    another range: what was free now still is when a server wants it some seconds later.

    Raises:
        EngineError: there are not so many.
    """
    ports: list[int] = []
    with ExitStack() as held:
        for place in itertools.islice(_places, _LAST - _FIRST):
            port = _FIRST + place % (_LAST - _FIRST)
            listener = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            try:
                listener.bind((_LOOPBACK, port))
            except OSError:
                listener.close()
                continue
            ports.append(port)
            if len(ports) == count:
                return ports
    raise EngineError(
        f"{count} free ports are needed at {_LOOPBACK}, and from {_FIRST} to {_LAST - 1} only "
        f"{len(ports)} are: end what listens there"
    )


READY_SECONDS = 300.0
"""A bound for a loaded machine; on two idle cores it takes about five seconds."""
ADMIN = "admin"
MASTERS = "system:masters"
STAGES = Path(__file__).with_name("stages.yaml")
READY_PATH = "/readyz"
_CORE_PORTS = 6
_REGISTRY_PORTS = 1


@dataclass(frozen=True)
class Given:
    """One run: what was asked for, where it is, and who keeps its processes."""

    settings: Settings
    files: Files
    ports: Ports
    supervisor: Supervisor

    @property
    def network(self) -> Network | None:
        """The control plane's own; None where it has no real machines."""
        return network_of(self.settings)


def network_of(settings: Settings) -> Network | None:
    """The network that settings name."""
    return Network(**settings.network) if settings.network is not None else None


def pick_ports(network: Network | None = None) -> Ports:
    """Free ports for every listener; those that machines know are the usual ones."""
    found = free_ports(_CORE_PORTS + controllers.PORTS + _REGISTRY_PORTS)
    core, *rest = found[:_CORE_PORTS], *found[_CORE_PORTS:]
    ports = Ports(*core, controllers=tuple(rest[:-1]), registry=rest[-1])
    # In a network of their own both are free; policies of networks name the API server's.
    return ports if network is None else replace(ports, api=6443, registry=443)


def prepare(
    files: Files, ports: Ports, network: Network | None = None, registry: str = ""
) -> None:
    """Write everything that the processes read.

    ``network`` is the control plane's own, and ``registry`` the name by which pods know the
    registry beside it, where it has real machines.
    """
    for folder in (files.folder, files.configuration("").parent / "configuration", files.logs):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority = Authority(files.certificates)
    local = ("localhost", LOOPBACK)
    service = tuple(
        f"kubernetes{rest}"
        for rest in ("", ".default", ".default.svc", ".default.svc.cluster.local")
    )
    authority.server("etcd", local)
    reached = (network.gateway, network.inner) if network is not None else ()
    authority.server("apiserver", (*local, *service, processes.FIRST_SERVICE, *reached))
    for name in ("kube-scheduler", "kube-controller-manager", "kwok-server"):
        authority.server(name, local)
    if network is not None:
        authority.server("registry", (*local, *reached, registry))
        authority.client("kube-apiserver-kubelet-client", (MASTERS,), file="kubelet-client")
        authority.client("system:kube-proxy", (), file="kube-proxy-client")
        authority.client("falaj-network-policies", (), file="network-policies-client")
        Authority(files.front_proxy, processes.FRONT_PROXY).client(processes.FRONT_PROXY)
    service_account_keys(files.certificates)
    for file, user, groups in (
        (ADMIN, "falaj-admin", (MASTERS,)),
        ("scheduler-client", "system:kube-scheduler", ()),
        ("controller-manager-client", "system:kube-controller-manager", ()),
        # Simulated machines do what every kubelet and the clouds' own controllers may.
        ("kwok-client", "kwok", (MASTERS,)),
    ):
        authority.client(user, groups, file=file)

    def access(path: Path, client: str, server: str = ports.server) -> None:
        text = processes.kubeconfig(server, files.authority, files.pair(client))
        processes.write_private(path, text)

    # Whoever uses the cluster isn't in its network.
    outside = ports.server if network is None else ports.server_at(network.inner)
    access(files.kubeconfig, ADMIN, outside)
    for name in ("kube-scheduler", "kube-controller-manager", "kwok"):
        client = f"{name.removeprefix('kube-')}-client"
        access(files.configuration(f"{name}.kubeconfig"), client)
    for name, content in (
        ("encryption.json", processes.encryption()),
        ("audit-policy.json", processes.audit_policy()),
        (
            "scheduler.json",
            processes.scheduler_configuration(files.configuration("kube-scheduler.kubeconfig")),
        ),
        ("kwok.yaml", STAGES.read_text(encoding="utf-8")),
    ):
        processes.write_private(files.configuration(name), content)


def serve(given: Given) -> None:
    """Start etcd and the API server and wait until it is ready.

    Raises EngineError: one of them ended, or doesn't get ready.
    """
    files, ports, supervisor = given.files, given.ports, given.supervisor
    binaries = Path(given.settings.binaries["kubernetes"])
    supervisor.start("etcd", processes.etcd(binaries / "etcd", files, ports))
    supervisor.start(
        "kube-apiserver",
        processes.api_server(
            binaries / "kube-apiserver",
            files,
            ports,
            webhooks=given.settings.webhooks,
            address=given.network.gateway if given.network is not None else None,
        ),
    )
    wait_until(
        lambda: _is_ready(given, ports.api, READY_PATH),
        supervisor,
        "the API server",
        READY_SECONDS,
    )


def run(given: Given) -> None:
    """Start what runs beside the API server and wait until each is ready.

    Controllers of quotas and of garbage know from their start on what is defined before it, and
    look for what is defined later every half minute.

    Raises EngineError: one of them ended, or doesn't get ready.
    """
    files, ports, supervisor = given.files, given.ports, given.supervisor
    binaries = Path(given.settings.binaries["kubernetes"])
    supervisor.start(
        "kube-scheduler", processes.scheduler(binaries / "kube-scheduler", files, ports)
    )
    supervisor.start(
        "kube-controller-manager",
        processes.controller_manager(binaries / "kube-controller-manager", files, ports),
    )
    supervisor.start("kwok", processes.kwok(binaries / "kwok", files, ports))
    for port, what in (
        (ports.scheduler, "the scheduler"),
        (ports.controller_manager, "the controller manager"),
    ):
        wait_until(
            lambda port=port: _is_ready(given, port, "/healthz"), supervisor, what, READY_SECONDS
        )


def _is_ready(given: Given, port: int, path: str) -> bool:
    files = given.files
    return answers(port, path, authority=files.authority, pair=files.pair(ADMIN))
