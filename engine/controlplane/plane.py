"""A running control plane: start it, use it, end it."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
from kubernetes.client import ApiClient

from falaj.engine.controlplane import (
    addons,
    binaries,
    host,
    inotify,
    prerequisites,
    processes,
    real_machines,
)
from falaj.engine.controlplane.addons import install_definitions
from falaj.engine.controlplane.bringup import network_of
from falaj.engine.controlplane.certificates import Authority
from falaj.engine.controlplane.machine_network import NAMESPACES, new_network
from falaj.engine.controlplane.machines import Machines, Site, parse_pools
from falaj.engine.controlplane.objects import Manifest, Objects, wait_for
from falaj.engine.controlplane.processes import Files
from falaj.engine.controlplane.real_machines import RealMachines
from falaj.engine.controlplane.record import HOST, Record, Settings, State
from falaj.engine.errors import EngineError
from falaj.engine.files import cache_home, exclusive
from falaj.engine.progress import to_stderr

START_SECONDS = 600.0
END_SECONDS = 30.0
_STEP_SECONDS = 0.05


class ControlPlane:
    """One control plane that runs in a folder."""

    def __init__(self, folder: Path, lifeline: subprocess.Popen[bytes] | None = None) -> None:
        """Take the one that runs in `folder`; raises EngineError when none does.

        It ends with `lifeline`, the process that keeps it, where this process started that.
        """
        self.files = Files(folder)
        record = Record.read(self.files)
        if record is None or not record.is_running:
            raise EngineError(f"no control plane runs in {folder}; `falaj cluster up` starts one")
        self.record = record
        self._lifeline = lifeline
        self._users: dict[tuple[str, tuple[str, ...]], Objects] = {}

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.files.kubeconfig

    @cached_property
    def objects(self) -> Objects:
        """Objects, as the administrator."""
        return Objects.of(str(self.kubeconfig))

    @property
    def client(self) -> ApiClient:
        """The official client, as the administrator."""
        return self.objects.client

    def apply(
        self, manifests: Sequence[Manifest], *, dry_run: bool = False
    ) -> list[dict[str, Any]]:
        """Apply manifests server-side and strictly, as the administrator. Raises ApiException."""
        return self.objects.apply(manifests, dry_run=dry_run)

    @cached_property
    def real(self) -> RealMachines:
        """The real machines, where it has some."""
        settings = Settings.read(self.files)
        return RealMachines(self.objects, self.files, settings.real, self.record.registry)

    @cached_property
    def machines(self) -> Machines:
        """The simulated machines."""
        return Machines(self.objects)

    def nodes(self, pools: str, site: Site | None = None) -> list[str]:
        """Make the pools named in `pools` (`h200=4,cpu=2`) have so many nodes; return their names.

        Nodes that are too many are removed, and other pools stay as they are. Waits until all
        are ready.
        """
        return self.machines.set(parse_pools(pools), site or Site())

    def define(self, *names: str, kinds: Collection[str] = ()) -> None:
        """Install the CRDs of add-ons such as `cert-manager`, unless they are there.

        With `kinds` only those of these kinds: the others' schemas may be most of what the API
        server has to take in.

        Raises EngineError: a name that isn't known, a kind that none of them defines, or their
        module can't be had.
        """
        binaries.ensure((addons.DEFINITIONS,))
        wanted = addons.definitions(names)
        if kinds:
            known = {each["spec"]["names"]["kind"] for each in wanted}
            if unknown := set(kinds) - known:
                raise EngineError(
                    f"no {', '.join(sorted(unknown))} is defined by {', '.join(names)}; defined "
                    f"are {', '.join(sorted(known))}"
                )
            wanted = [each for each in wanted if each["spec"]["names"]["kind"] in kinds]
        install_definitions(self.objects, wanted)

    def user_kubeconfig(self, name: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig of the user `name` of `groups`, by a client certificate."""
        authority = Authority(self.files.certificates)
        users = self.files.folder / "users"
        users.mkdir(mode=0o700, exist_ok=True)
        number = len(list(users.iterdir()))
        pair = authority.client(name, groups, file=f"user-{number}")
        text = processes.kubeconfig(
            self.objects.client.configuration.host, self.files.authority, pair
        )
        return processes.write_private(users / f"{number}.kubeconfig", text)

    def as_user(self, name: str, groups: Sequence[str] = ()) -> Objects:
        """Objects, as the user `name` of `groups`: what RBAC and admission let them do."""
        key = (name, tuple(groups))
        if key not in self._users:
            self._users[key] = Objects.of(str(self.user_kubeconfig(name, groups)))
        return self._users[key]

    def take_away(self) -> None:
        """Kill every process at once, as a power cut does; what etcd has stays for `bring_back`.

        Raises TimeoutError: the process that keeps it doesn't answer.
        """
        self.files.away.touch(mode=0o600)
        self._wait_for("away", END_SECONDS)

    def bring_back(self) -> None:
        """Start again what was taken away: same data, same addresses, same certificates.

        Raises TimeoutError: not within `START_SECONDS`. Raises EngineError: it doesn't start.
        """
        self.files.away.unlink(missing_ok=True)
        self._wait_for("ready", START_SECONDS)

    def _wait_for(self, state: State, seconds: float) -> None:
        def reached() -> bool:
            record = Record.read(self.files)
            if record is None or not record.is_running:
                reason = record.reason if record else ""
                raise EngineError(
                    f"the control plane isn't {state}, but has ended: {reason}\n"
                    f"logs: {self.files.logs}"
                )
            self.record = record
            return record.state == state

        wait_for(reached, f"the control plane is {state}", seconds)

    def stop(self) -> None:
        """End every process and remove what was written."""
        for objects in self._users.values():
            objects.close()
        if "objects" in self.__dict__:
            self.objects.close()
        stop(self.files.folder)
        if self._lifeline is not None:
            self._lifeline.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def start(
    folder: Path | None = None,
    nodes: str = "",
    controllers: Sequence[str] = (),
    *,
    crds: Sequence[str] = (),
    controller_settings: Mapping[str, dict[str, Any]] | None = None,
    site: Site | None = None,
    webhooks: bool = True,
    real: int = 0,
    detached: bool = False,
) -> ControlPlane:
    """Start a control plane and return it when it is ready.

    Args:
        folder: where it keeps its files; default: a new folder in the system's temporary one.
        nodes: simulated machines, such as `h200=64,h200:mig-1g.18gb=4,cpu=20`.
        controllers: what runs beside it: `kueue`, `jobset`, `trainer`.
        crds: modules whose CRDs are installed as well, such as `cert-manager`.
        controller_settings: configuration by controller, as its own configuration file has it.
            Default: the platform's.
        site: where the machines stand.
        webhooks: whether those that charts declare are called. Their pods are simulated and answer
            nothing, so that a stack which installs whole charts needs False.
        real: real machines beside the simulated ones, as many: each has a kubelet and containers.
        detached: whether it goes on when this process ends; default: it ends too, even if this
            process is killed.

    Raises:
        EngineError: one runs there already, the folder holds other things, or it doesn't start.
    """
    pools = parse_pools(nodes)
    if real and (lacking := prerequisites.lacking()):
        raise EngineError("this computer can't run real machines; it lacks " + "; ".join(lacking))
    if real:
        inotify.ensure(inotify.OF_A_PLANE + real * inotify.OF_A_MACHINE, raise_limit=True)
    else:
        inotify.ensure(inotify.OF_A_PLANE, raise_limit=False)
    folder = Path(tempfile.mkdtemp(prefix="falaj-cluster-")) if folder is None else folder
    files = Files(folder.absolute())
    _claim(files)
    settings = Settings(
        binaries=binaries.ensure(
            (
                binaries.CORE,
                *controllers,
                *([addons.DEFINITIONS] if crds else []),
                *(binaries.REAL if real else ()),
            )
        ),
        lifeline=not detached,
        controllers=tuple(controllers),
        webhooks=webhooks,
        definitions=tuple(crds),
        controller_settings=dict(controller_settings or {}),
        real=real,
        real_labels=real_machines.labels(site or Site()) if real else {},
        real_registry=f"registry.{(site or Site()).region}.example.ae",
        network=_network() if real else None,
    )
    settings.write(files)
    process = _start_host(files, settings, detached=detached)
    try:
        _wait(files, process)
        plane = ControlPlane(files.folder, process)
        if pools:
            plane.machines.set(pools, site or Site())
    except BaseException:
        process.terminate()
        process.wait()
        raise
    return plane


def stop(folder: Path) -> bool:
    """End the control plane of `folder` and remove its files; whether one ran."""
    files = Files(folder.absolute())
    record = Record.read(files)
    running = record is not None and record.is_running
    if record is not None and running:
        process = psutil.Process(record.pid)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(END_SECONDS)
        except psutil.TimeoutExpired:
            process.kill()
    host.remove(files)
    return running


def _claim(files: Files) -> None:
    if Settings.path(files).exists():
        record = Record.read(files)
        if record is not None and record.is_running:
            raise EngineError(
                f"a control plane runs already in {files.folder} (process {record.pid}); use it "
                f"with the kubeconfig {files.kubeconfig}, or end it with `falaj cluster down`"
            )
        host.remove(files)  # one that was killed
    elif files.folder.is_dir() and any(files.folder.iterdir()):
        raise EngineError(f"{files.folder} holds other things; name an empty folder or a new one")
    files.folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _network() -> dict[str, str]:
    """Make the network of a control plane with real machines; its names and addresses."""
    lock = cache_home() / "controlplane" / "networks.lock"
    with exclusive(lock, to_stderr, "a network for machines"):
        network = new_network()
        network.make()
    return asdict(network)


def _start_host(files: Files, settings: Settings, *, detached: bool) -> subprocess.Popen[bytes]:
    network = network_of(settings)
    inside = ["nsenter", f"--net={NAMESPACES / network.namespace}", "--"] if network else []
    files.logs.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (files.logs / "host.log").open("ab") as log:
        return subprocess.Popen(
            # The package knows this module already, which runpy warns of.
            [
                *inside,
                sys.executable,
                "-P",
                "-W",
                "ignore::RuntimeWarning",
                "-m",
                HOST,
                str(files.folder),
            ],
            stdin=subprocess.DEVNULL if detached else subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _wait(files: Files, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while (record := Record.read(files)) is None:
        if (code := process.poll()) is not None:
            log = (files.logs / "host.log").read_text(encoding="utf-8").strip()
            raise EngineError(f"the control plane did not start (exit code {code}): {log}")
        if time.monotonic() > deadline:
            raise EngineError(f"the control plane was not ready within {START_SECONDS:.0f} s")
        time.sleep(_STEP_SECONDS)
    if record.state == "failed":
        raise EngineError(f"the control plane did not start: {record.reason}\nlogs: {files.logs}")
