"""Where records of runs are kept, as on one machine and in clusters."""

from __future__ import annotations

from typing import Annotated, Final, NotRequired, TypedDict

from falaj.components.specification.arguments import Usual
from falaj.components.specification.workload_bounds import form

SERVER: Final = form("tracking", "server")
EXPERIMENT: Final = form("tracking", "experiment")


class TrackedArgs(TypedDict):
    """What a tracking server or file is told of runs beside themselves."""

    experiment: NotRequired[Annotated[str, EXPERIMENT, Usual(EXPERIMENT.default)]]
    """What runs are kept under there."""
