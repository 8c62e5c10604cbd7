"""Real machines beside a control plane: what they need of this computer, their life and death.

Who keeps the control plane keeps them as well: it makes their folders, starts them, and ends one
while a file asks for it. What runs in one says `machine`.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import psutil
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from falaj.engine.controlplane import machine, names, operators, processes, registry, volumes
from falaj.engine.controlplane.bringup import READY_SECONDS, Given
from falaj.engine.controlplane.certificates import Authority
from falaj.engine.controlplane.machine import Machine
from falaj.engine.controlplane.machine_network import PODS, Network
from falaj.engine.controlplane.machines import Pool, Site, is_ready, machines
from falaj.engine.controlplane.machines import labels as node_labels
from falaj.engine.controlplane.objects import MANAGER, Objects, wait_for
from falaj.engine.controlplane.operators import Operators
from falaj.engine.controlplane.processes import Files, Supervisor, wait_until
from falaj.engine.controlplane.registry import Image, Registry
from falaj.engine.controlplane.volumes import Volumes
from falaj.engine.errors import EngineError

MOST: Final = 8
"""Of one control plane: each kubelet takes about 100 MB, and its containers."""
PROGRAMS: Final = ("containerd", "kubelet", "kube-proxy", "network-policies")
"""What runs on each."""
PROCESSORS: Final = 8
"""That each says it has. All share those of this computer: what pods ask for is a share of time,
and a platform's controllers ask for more than the two of a small one."""
_POLICIES_USER: Final = "falaj-network-policies"
_OVERCOMMITMENT: Final = "falaj-real-machines"
_PAUSE: Final = "pause"
_CLAIMS_SECONDS: Final = 1.0


def labels(site: Site) -> dict[str, str]:
    """What nodes of real machines say: they are of the pool of plain processors.

    Who they are and what they run on, the kubelet says itself.
    """
    pool = Pool(machines()["cpu"], "", 1)
    every = node_labels(pool, 0, site)
    return {key: value for key, value in every.items() if not key.startswith("kubernetes.io/")}


def machine_names(number: int) -> list[str]:
    """Of so many machines."""
    return [f"real-{each}" for each in range(1, number + 1)]


class RealMachines:
    """The real machines of a control plane that runs, for whoever uses it."""

    def __init__(self, objects: Objects, files: Files, number: int, registry: str) -> None:
        self._objects = objects
        self._files = files
        self.names = machine_names(number)
        self.registry = Registry(registry, files.authority)
        """Where they get images from."""

    def log(self, name: str, program: str) -> Path:
        """The log of a machine's program, one of `PROGRAMS`."""
        return self._files.machine(name) / "log" / f"{program}.log"

    def cut_power(self, name: str) -> None:
        """End a machine at once: everything on it is gone, and the cluster isn't told."""
        (self._files.machine(name) / "off").touch(mode=0o600)
        wait_for(lambda: not self._runs(name), f"{name} is off")

    def give_power(self, name: str) -> None:
        """Start a machine that was off: with its disk, as after a power cut."""
        (self._files.machine(name) / "off").unlink(missing_ok=True)
        self._wait_until_ready(name)

    def hold(self, name: str, program: str) -> None:
        """Kill a program of a machine, and keep it from starting again."""
        held = self._files.machine(name) / "held"
        held.mkdir(mode=0o700, exist_ok=True)
        (held / program).touch(mode=0o600)
        wait_for(lambda: program not in self._programs(name), f"{program} of {name} is held")

    def release(self, name: str, program: str) -> None:
        """Let a program of a machine start again."""
        (self._files.machine(name) / "held" / program).unlink(missing_ok=True)
        wait_for(lambda: program in self._programs(name), f"{program} of {name} runs")

    def _process(self, name: str) -> psutil.Process | None:
        """A machine's first process, by its number outside of it."""
        folder = str(self._files.machine(name))
        for each in psutil.process_iter():
            try:
                line = each.cmdline()
            except psutil.Error:
                continue
            if machine.is_first(line) and folder in line:
                return each
        return None

    def _runs(self, name: str) -> bool:
        return self._process(name) is not None

    def _programs(self, name: str) -> set[str]:
        first = self._process(name)
        found: set[str] = set()
        for each in first.children() if first is not None else ():
            with contextlib.suppress(psutil.Error):  # it has ended meanwhile
                found.add(machine.program_of(Path(each.exe()).name))
        return found

    def _wait_until_ready(self, name: str) -> None:
        wait_for(
            lambda: self._runs(name) and is_ready(self._objects.get("v1", "Node", name)),
            f"{name} is ready",
            READY_SECONDS,
        )


@dataclass
class MachineSupervisor:
    """The machines of one control plane, as the control plane itself has them."""

    given: Given
    network: Network
    supervisor: Supervisor
    """Of the machines alone: one that ends doesn't end the control plane."""
    _look_at_claims: float = 0.0

    @cached_property
    def volumes(self) -> Volumes:
        """What claims get."""
        files = self.given.files
        return Volumes(volumes.root(files), Objects.of(str(files.kubeconfig)))

    @cached_property
    def operators(self) -> Operators:
        """What certificates and entries of a secret store get."""
        files = self.given.files
        return Operators(files, Objects.of(str(files.kubeconfig)))

    def start_registry(self) -> dict[str, str]:
        """Start the registry; references below it of what each machine and the cluster need.

        Raises:
            EngineError: it ended, or doesn't get ready.
        """
        given, files = self.given, self.given.files
        binaries, port = given.settings.binaries, given.ports.registry
        (files.folder / "registry").mkdir(mode=0o700, exist_ok=True)
        given.supervisor.start(
            "registry", registry.command(Path(binaries["registry"]) / "registry", files, port)
        )
        wait_until(
            lambda: processes.listens(port), given.supervisor, "the registry", READY_SECONDS
        )
        here = Registry(f"{processes.LOOPBACK}:{port}", files.authority)
        found: dict[str, str] = {}
        for name in (_PAUSE, names.NAME):
            content = registry.with_libraries(f"/{name}", Path(binaries[name]) / name)
            digest = here.push(f"falaj/{name}", Image.of_program(content, [f"/{name}"]))
            found[name] = f"falaj/{name}@{digest}"
        return found

    def start(self) -> None:
        """Start the registry and all machines; returns when all are ready.

        Raises:
            EngineError: one doesn't get ready.
        """
        given, files = self.given, self.given.files
        settings = given.settings
        images = self.start_registry()
        objects = Objects.of(str(files.kubeconfig))
        try:
            _allow_policies(objects)
            machines = machine_names(settings.real)
            objects.apply(_overcommitment(machines), MANAGER)
            for number, name in enumerate(machines, 1):
                self._write(number, name, images[_PAUSE])
                self._start(number, name)
            resolver = f"{settings.real_registry}/{images[names.NAME]}"
            known = {settings.real_registry: self.network.gateway}
            objects.apply(names.manifests(resolver, known), MANAGER)

            def all_ready() -> bool:
                ended = [each for each in machines if self.supervisor.has_ended(each)]
                if ended:
                    raise EngineError(
                        f"{ended[0]} did not get ready:\n{self.supervisor.last_words(ended[0])}"
                    )
                return all(is_ready(objects.get("v1", "Node", each)) for each in machines)

            def resolver_runs() -> bool:
                found = objects.get("apps/v1", "Deployment", names.NAME, "kube-system") or {}
                return bool(found.get("status", {}).get("readyReplicas"))

            wait_for(all_ready, f"{', '.join(machines)} are ready", READY_SECONDS)
            wait_for(resolver_runs, "the cluster's resolver is ready", READY_SECONDS)
        except TimeoutError as error:
            raise EngineError(f"{error}; logs: {files.machines}/*/log") from error
        finally:
            objects.close()

    def keep(self) -> None:
        """End machines that are to be off, start those that aren't any more."""
        for number, name in enumerate(machine_names(self.given.settings.real), 1):
            off = (self.given.files.machine(name) / "off").exists()
            running = name in self.supervisor.processes
            if running and (off or self.supervisor.has_ended(name)):
                self.supervisor.kill(name)
            elif not running and not off:
                self._start(number, name)
        if time.monotonic() >= self._look_at_claims:
            self._look_at_claims = time.monotonic() + _CLAIMS_SECONDS
            try:
                self.volumes.keep()
                self.operators.keep()
            except (ApiException, HTTPError, EngineError) as error:
                # An API server that is away, or refuses: they wait.
                sys.stderr.write(f"claims, certificates and entries wait: {error}\n")

    def _start(self, number: int, name: str) -> None:
        """As after a power cut: nothing is left of its network."""
        self.network.remove_machine(number)
        others = range(1, self.given.settings.real + 1)
        self.network.add_machine(number, [each for each in others if each != number])
        self.supervisor.start(name, machine.command(Machine.read(self.given.files.machine(name))))

    def _write(self, number: int, name: str, pause: str) -> None:
        """Write a machine's folder."""
        given, files, network = self.given, self.given.files, self.network
        folder = files.machine(name)
        folder.mkdir(parents=True, mode=0o700)
        address = network.address(number)
        registry_address = f"{network.gateway}:{given.ports.registry}"
        made = Machine(
            name=name,
            folder=str(folder),
            namespace=network.machine_namespace(number),
            group=f"{network.namespace}/{name}",
            address=address,
            pods=network.pods(number),
            cluster=str(PODS),
            gateway=network.gateway,
            binaries=given.settings.binaries,
            sandbox_image=f"{registry_address}/{pause}",
            registry=registry_address,
            labels=given.settings.real_labels,
            taints=[],
        )
        made.write()
        machine.prepare(made)
        authority = Authority(files.certificates)
        server = authority.server(f"{name}-kubelet", (name, address))
        shutil.copyfile(server.certificate, folder / "kubelet-server.crt")
        shutil.copyfile(server.key, folder / "kubelet-server.key")
        shutil.copyfile(files.authority, folder / "ca.crt")
        kubelet = authority.client(f"system:node:{name}", ("system:nodes",), file=f"{name}-node")
        for file, pair in (
            ("kubelet", kubelet),
            ("kube-proxy", files.pair("kube-proxy-client")),
            ("network-policies", files.pair("network-policies-client")),
        ):
            text = processes.kubeconfig(
                given.ports.server_at(network.gateway), files.authority, pair
            )
            processes.write_private(folder / f"{file}.kubeconfig", text)


def remove(files: Files, network: Network) -> None:
    """Remove what machines leave, after their processes have ended."""
    remove_network(network)
    shutil.rmtree(files.machines, ignore_errors=True)
    shutil.rmtree(volumes.root(files), ignore_errors=True)
    shutil.rmtree(operators.store(files), ignore_errors=True)
    shutil.rmtree(operators.issuer(files).folder, ignore_errors=True)
    shutil.rmtree(files.folder / "registry", ignore_errors=True)


def remove_network(network: Network) -> None:
    """Remove namespaces and control groups, after their processes have ended."""
    network.remove()
    machine.remove_group(network.namespace)


def _overcommitment(names: Sequence[str]) -> list[dict[str, Any]]:
    """Let machines say that they have `PROCESSORS`, whatever their kubelets count.

    https://kubernetes.io/docs/reference/access-authn-authz/mutating-admission-policy/
    """
    about = {"name": _OVERCOMMITMENT}
    kind = "admissionregistration.k8s.io/v1"
    patches = ", ".join(
        f'JSONPatch{{op: "add", path: "/status/{each}/cpu", value: "{PROCESSORS}"}}'
        for each in ("capacity", "allocatable")
    )
    return [
        {"apiVersion": kind, "kind": "MutatingAdmissionPolicy", "metadata": about,
         "spec": {
             "failurePolicy": "Ignore",
             "reinvocationPolicy": "Never",
             "matchConstraints": {"resourceRules": [
                 {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["nodes/status", "nodes"],
                  "operations": ["CREATE", "UPDATE"], "resourceNames": list(names)}]},
             "matchConditions": [
                 {"name": "counted",
                  "expression": "has(object.status.capacity) && has(object.status.allocatable)"}],
             "mutations": [
                 {"patchType": "JSONPatch", "jsonPatch": {"expression": f"[{patches}]"}}],
         }},
        {"apiVersion": kind, "kind": "MutatingAdmissionPolicyBinding", "metadata": about,
         "spec": {"policyName": _OVERCOMMITMENT}},
    ]  # fmt: skip


def _allow_policies(objects: Objects) -> None:
    """Let who enforces network policies read what they name."""
    about = {"name": _POLICIES_USER}
    objects.apply(
        [
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
             "metadata": about,
             "rules": [
                 {"apiGroups": [""],
                  "resources": ["pods", "nodes", "namespaces", "services", "endpoints"],
                  "verbs": ["get", "list", "watch"]},
                 {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"],
                  "verbs": ["get", "list", "watch"]},
                 {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"],
                  "verbs": ["list", "watch"]},
             ]},
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
             "metadata": about,
             "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                         "name": _POLICIES_USER},
             "subjects": [{"kind": "User", "name": _POLICIES_USER,
                           "apiGroup": "rbac.authorization.k8s.io"}]},
        ]
    )  # fmt: skip
