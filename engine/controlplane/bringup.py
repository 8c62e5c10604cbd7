"""Bring up one control plane in a folder: certificates, configuration, processes, readiness."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from falaj.engine.controlplane import commands, configuration, controllers
from falaj.engine.controlplane.access import answers
from falaj.engine.controlplane.certificates import Authority, service_account_keys
from falaj.engine.controlplane.commands import LOOPBACK, Files, Ports
from falaj.engine.controlplane.record import Settings
from falaj.engine.controlplane.supervisor import Supervisor, wait_until
from falaj.engine.ports import free_ports

READY_SECONDS = 300.0
"""A bound for a loaded machine; on two idle cores it takes about five seconds."""
ADMIN = "admin"
MASTERS = "system:masters"
STAGES = Path(__file__).with_name("stages.yaml")
READY_PATH = "/readyz"
_CORE_PORTS = 6


@dataclass(frozen=True)
class Given:
    """One run: what was asked for, where it is, and who keeps its processes."""

    settings: Settings
    files: Files
    ports: Ports
    supervisor: Supervisor


def pick_ports() -> Ports:
    """Free loopback ports for every listener."""
    found = free_ports(_CORE_PORTS + controllers.PORTS)
    return Ports(*found[:_CORE_PORTS], controllers=tuple(found[_CORE_PORTS:]))


def prepare(files: Files, ports: Ports) -> None:
    """Write everything that the processes read."""
    for folder in (files.folder, files.configuration("").parent / "configuration", files.logs):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority = Authority(files.certificates)
    local = ("localhost", LOOPBACK)
    service = tuple(
        f"kubernetes{rest}"
        for rest in ("", ".default", ".default.svc", ".default.svc.cluster.local")
    )
    authority.server("etcd", local)
    authority.server("apiserver", (*local, *service, commands.FIRST_SERVICE))
    for name in ("kube-scheduler", "kube-controller-manager", "kwok-server"):
        authority.server(name, local)
    service_account_keys(files.certificates)
    for file, user, groups in (
        (ADMIN, "falaj-admin", (MASTERS,)),
        ("scheduler-client", "system:kube-scheduler", ()),
        ("controller-manager-client", "system:kube-controller-manager", ()),
        # Simulated machines do what every kubelet and the clouds' own controllers may.
        ("kwok-client", "kwok", (MASTERS,)),
    ):
        authority.client(user, groups, file=file)

    def access(path: Path, client: str) -> None:
        text = configuration.kubeconfig(ports.server, files.authority, files.pair(client))
        configuration.write_private(path, text)

    access(files.kubeconfig, ADMIN)
    for name in ("kube-scheduler", "kube-controller-manager", "kwok"):
        client = f"{name.removeprefix('kube-')}-client"
        access(files.configuration(f"{name}.kubeconfig"), client)
    for name, content in (
        ("encryption.json", configuration.encryption()),
        ("audit-policy.json", configuration.audit_policy()),
        (
            "scheduler.json",
            configuration.scheduler(files.configuration("kube-scheduler.kubeconfig")),
        ),
        ("kwok.yaml", STAGES.read_text(encoding="utf-8")),
    ):
        configuration.write_private(files.configuration(name), content)


def run(given: Given) -> None:
    """Start all processes and wait until each is ready.

    Raises EngineError: one of them ended, or none of them gets ready.
    """
    files, ports, supervisor = given.files, given.ports, given.supervisor
    binaries = Path(given.settings.binaries["kubernetes"])
    ready = partial(answers, authority=files.authority, pair=files.pair(ADMIN))
    supervisor.start("etcd", commands.etcd(binaries / "etcd", files, ports))
    supervisor.start(
        "kube-apiserver",
        commands.api_server(
            binaries / "kube-apiserver", files, ports, webhooks=given.settings.webhooks
        ),
    )
    wait_until(lambda: ready(ports.api, READY_PATH), supervisor, "the API server", READY_SECONDS)
    supervisor.start(
        "kube-scheduler", commands.scheduler(binaries / "kube-scheduler", files, ports)
    )
    supervisor.start(
        "kube-controller-manager",
        commands.controller_manager(binaries / "kube-controller-manager", files, ports),
    )
    supervisor.start("kwok", commands.kwok(binaries / "kwok", files, ports))
    for port, what in (
        (ports.scheduler, "the scheduler"),
        (ports.controller_manager, "the controller manager"),
    ):
        wait_until(lambda port=port: ready(port, "/healthz"), supervisor, what, READY_SECONDS)
