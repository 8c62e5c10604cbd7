"""Lets stacks of the sandbox go to a test control plane: real admission, simulated machines."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

from falaj.engine.files import data_home
from falaj.engine.uplinks import leads_to
from falaj.sandbox.activation import CLUSTER_VARIABLE
from falaj.stacks.errors import StackError

if TYPE_CHECKING:
    from falaj.engine.controlplane.processes import Files
    from falaj.engine.controlplane.record import Record

_USUAL: Final = "cluster"
"""Folder of the control plane that ``falaj cluster up`` starts, in that for data."""


def use_cluster(kubeconfig: str, *, sandbox: bool) -> None:
    """Have the sandbox apply Kubernetes objects to a test control plane.

    Args:
        kubeconfig: path of its kubeconfig; empty for the one that ``falaj cluster up`` started.
        sandbox: whether the command goes to the sandbox.

    Raises:
        StackError: it doesn't, or no control plane runs.
    """
    if not sandbox:
        raise StackError(
            "--cluster: given without --sandbox; allowed: the sandbox, which alone knows test "
            "control planes\n  a real cluster is named in the stack's file: falaj:context"
        )
    os.environ[CLUSTER_VARIABLE] = kubeconfig or str(_running())


def is_used() -> bool:
    """Whether the sandbox applies objects to a test control plane."""
    return CLUSTER_VARIABLE in os.environ


def options(*, make: bool) -> str:
    """What a command needs to go to the same control plane; nothing where none is used.

    Args:
        make: whether it is for ``make``, which knows the one of ``falaj cluster up`` alone.
    """
    given = os.environ.get(CLUSTER_VARIABLE)
    if given is None:
        return ""
    usual = given == str((data_home() / _USUAL / "kubeconfig").absolute())
    if make and usual:
        return " CLUSTER=1"
    return " --cluster" if usual else f" --cluster {shlex.quote(given)}"


def registry() -> str | None:
    """Host and port of the registry beside the control plane that stacks go to, if there is one.

    Raises:
        EngineError: what the control plane wrote of itself can't be read.
    """
    given = os.environ.get(CLUSTER_VARIABLE)
    record = _control_plane(Path(given).parent)[1] if given else None
    return record.registry or None if record is not None and record.is_running else None


def authority_of(host: str) -> Path | None:
    """The authority of the registry beside the control plane that stacks go to; None for others.

    Args:
        host: a registry's, with its port.

    Raises:
        EngineError: what the control plane wrote of itself can't be read.
    """
    if not leads_to(host.partition(":")[0]):
        return None
    given = os.environ.get(CLUSTER_VARIABLE)
    files, record = _control_plane(Path(given).parent if given else data_home() / _USUAL)
    return files.authority if record is not None and record.registry == host else None


def _control_plane(folder: Path) -> tuple[Files, Record | None]:
    """The files of a control plane, and what it wrote of itself."""
    from falaj.engine.controlplane.processes import Files  # noqa: PLC0415 - it needs another extra
    from falaj.engine.controlplane.record import Record  # noqa: PLC0415

    files = Files(folder.absolute())
    return files, Record.read(files)


def _running() -> Path:
    files, record = _control_plane(data_home() / _USUAL)
    if record is None or not record.is_running:
        raise StackError("--cluster: no test control plane runs; start one with: falaj cluster up")
    return files.kubeconfig
