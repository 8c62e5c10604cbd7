"""Run one control plane: `python -m falaj.engine.controlplane.host FOLDER`.

Everything that runs is a child of this process, and ends with it. Standard input is its lifeline
where the settings say so: when the caller ends, however that may be, it is closed, and the control
plane ends as well.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from falaj.engine.controlplane import addons, bringup, real_machines
from falaj.engine.controlplane.processes import Files, Supervisor
from falaj.engine.controlplane.real_machines import MachineSupervisor
from falaj.engine.controlplane.record import Record, Settings
from falaj.engine.errors import EngineError

LOOK_SECONDS = 0.5
TRIES = 3
"""A port that was free may have been taken before its use."""
_TAKEN = "address already in use"


def main(folder: Path) -> int:
    """Keep the control plane of `folder` until asked to end."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _leave)
    files = Files(folder)
    settings = Settings.read(files)
    supervisor, machines = Supervisor(files.logs), Supervisor(files.logs)
    try:
        given, real = _bring_up(files, settings, supervisor, machines)
        while True:
            if _cut(settings.lifeline):
                break
            _keep_away(given, real)
            if real is not None:
                real.keep()
            if ended := supervisor.ended():
                Record(os.getpid(), "failed", ended).write(files)
                return 1
    except EngineError as error:
        Record(os.getpid(), "failed", str(error)).write(files)
        return 1
    except KeyboardInterrupt:
        pass
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        machines.kill()
        supervisor.stop()
        if network := bringup.network_of(settings):
            real_machines.remove_network(network)
    remove(files)
    return 0


def remove(files: Files) -> None:
    """Remove what a control plane wrote; the folder too when nothing else is in it."""
    if Settings.path(files).exists() and (network := bringup.network_of(Settings.read(files))):
        real_machines.remove(files, network)
    for path in (files.certificates, files.logs, files.folder / "etcd", files.folder / "users"):
        shutil.rmtree(path, ignore_errors=True)
    shutil.rmtree(files.configuration("").parent / "configuration", ignore_errors=True)
    for path in (files.kubeconfig, Settings.path(files), Record.path(files), files.away):
        path.unlink(missing_ok=True)
    if files.folder.is_dir() and not any(files.folder.iterdir()):
        files.folder.rmdir()


def _bring_up(
    files: Files, settings: Settings, supervisor: Supervisor, machines: Supervisor
) -> tuple[bringup.Given, MachineSupervisor | None]:
    network = bringup.network_of(settings)
    for left in reversed(range(TRIES)):
        ports = bringup.pick_ports(network)
        bringup.prepare(files, ports, network, settings.real_registry)
        given = bringup.Given(settings, files, ports, supervisor)
        try:
            bringup.serve(given)
            addons.add(given)
            bringup.run(given)
            addons.run(given)
        except EngineError as error:
            supervisor.stop()
            shutil.rmtree(files.folder / "etcd", ignore_errors=True)
            if not left or _TAKEN not in str(error):
                raise
        else:
            real = None
            if network is not None:
                real = MachineSupervisor(given, network, machines)
                real.start()
            _ready(given)
            return given, real
    raise AssertionError("the last try raises")


def _ready(given: bringup.Given) -> None:
    network = given.network
    registry = f"{network.inner}:{given.ports.registry}" if network is not None else ""
    Record(os.getpid(), "ready", "", given.supervisor.processes, registry).write(given.files)


def _keep_away(given: bringup.Given, real: MachineSupervisor | None) -> None:
    """Kill everything while a file asks for it, or start it again with the data that it left."""
    files, supervisor = given.files, given.supervisor
    if files.away.exists() and supervisor.processes:
        supervisor.kill()
        Record(os.getpid(), "away").write(files)
    elif not files.away.exists() and not supervisor.processes:
        bringup.serve(given)
        bringup.run(given)
        addons.run(given)
        if real is not None:
            real.start_registry()
        _ready(given)


def _cut(lifeline: bool) -> bool:
    """Wait a moment; whether the lifeline was cut meanwhile."""
    if not lifeline:
        time.sleep(LOOK_SECONDS)
        return False
    readable, _, _ = select.select([0], [], [], LOOK_SECONDS)
    return bool(readable) and not os.read(0, 1)


def _leave(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
