"""What a run is given beside its rows, opened: a teacher, weights to begin with, code."""

from __future__ import annotations

from falaj.workloads.errors import WorkloadError
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.training import distillation
from falaj.workloads.training import start as starts
from falaj.workloads.training.distillation import Teacher
from falaj.workloads.training.options import Requested
from falaj.workloads.training.own_code import OwnCode, find, read_folder
from falaj.workloads.training.snapshot import Dataset
from falaj.workloads.training.start import Start


def open_teacher_of(
    requested: Requested, keyring: KeyRing | None, dataset: Dataset
) -> Teacher | None:
    """Open the run whose answers are learned, if one was given.

    Raises:
        WorkloadError: it can't be used with these rows or parameters.
    """
    distillation.check_options(requested, dataset.task)
    if requested.teacher is None:
        return None
    return distillation.open_teacher(requested.teacher, keyring, dataset)


def open_start_of(requested: Requested, keyring: KeyRing | None, dataset: Dataset) -> Start | None:
    """Open the weights that a run begins with, if any were given.

    Raises:
        WorkloadError: they can't be used with these rows.
    """
    if requested.start is None:
        return None
    return starts.open_start(requested.start, keyring, dataset)


def read_code(requested: Requested, expected: str | None) -> OwnCode | None:
    """The code of a team's own model; refuses what was changed since its digest was taken."""
    if requested.code is None:
        return None
    code = read_folder(requested.code)
    find(code, requested.model)
    if expected is not None and code.digest != expected:
        raise WorkloadError(
            f"the code in {requested.code} was changed since this training was planned: run again "
            "to train with what is there now"
        )
    return code
