"""What the API server has against the types in policies' expressions, as it tells by their status.

A control plane leaves the controller that finds it out: it takes longer than all others together.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from falaj.engine.controlplane import ControlPlane, binaries
from falaj.engine.controlplane.processes import UNUSED_CONTROLLERS, Supervisor

_NAME = "kube-controller-manager"


@contextmanager
def types_checked(plane: ControlPlane, folder: Path) -> Generator[None]:
    """Meanwhile each policy's status says what is wrong in it; logs go into `folder`."""
    command = Path(binaries.ensure((binaries.CORE,))[binaries.CORE]) / _NAME
    supervisor = Supervisor(folder)
    supervisor.start("type-checks", [
        str(command),
        f"--kubeconfig={plane.files.configuration(f'{_NAME}.kubeconfig')}",
        f"--controllers={','.join(UNUSED_CONTROLLERS)}",
        "--leader-elect=false",
        "--secure-port=0",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={plane.files.pair('service-account').key}",
    ])  # fmt: skip
    try:
        yield
    finally:
        supervisor.stop()
