"""What numbers the workloads' options may be, as the workloads themselves say.

The file beside this one is written by ``python -m falaj.workloads.bounds``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from falaj.components.specification.limits import Between

_FILE = Path(__file__).with_suffix(".json")


@dataclass(frozen=True)
class WorkloadBound(Between):
    """What one option of a workload may be."""

    whole: bool = False
    """Whether it has to be a whole number."""


@cache
def _all() -> dict[str, dict[str, dict[str, float]]]:
    return json.loads(_FILE.read_text(encoding="utf-8"))


def bound(workload: str, option: str) -> WorkloadBound:
    """The bound of an option.

    Args:
        workload: ``dataset``, ``training``, ``optimization``, ``service`` or ``drift``.
        option: its name with ``_``.

    Raises:
        KeyError: there is no such option.
    """
    found = _all()[workload][option]
    return WorkloadBound(found["low"], found["high"], whole=bool(found["whole"]))
