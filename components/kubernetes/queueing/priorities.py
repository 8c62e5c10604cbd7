"""Priorities of jobs and pods.

Kueue orders, admits and pre-empts whole workloads by them. The scheduler itself pre-empts for
none but the most urgent: taking one pod out of a gang stops the whole of it.
"""

from __future__ import annotations

from typing import Final

from falaj.components.kubernetes._metadata import metadata
from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes._placed import InCluster

URGENT: Final = "falaj-urgent"
PRIORITIES: Final[dict[str, int]] = {
    "falaj-low": 100,
    "falaj-normal": 1_000,
    "falaj-high": 10_000,
    URGENT: 100_000,
}
"""Priority by name; a higher one goes first."""
DEFAULT: Final = "falaj-normal"
_MEANING: Final = {
    "falaj-low": "Sweeps and experiments that may wait and be stopped.",
    "falaj-normal": "Training as planned.",
    "falaj-high": "Training with a date, and services that people wait for.",
    URGENT: "What a business stands still without. Only for tenants that were given it.",
}


def priorities(placed: InCluster, component: str) -> list[Manifest]:
    """The classes of priority, for Kueue and for pods."""
    found: list[Manifest] = []
    for name, value in PRIORITIES.items():
        about = metadata(placed, component, name)
        found += [
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": about,
                "value": value,
                "globalDefault": False,
                "preemptionPolicy": "PreemptLowerPriority" if name == URGENT else "Never",
                "description": _MEANING[name],
            },
            {
                "apiVersion": "kueue.x-k8s.io/v1beta2",
                "kind": "WorkloadPriorityClass",
                "metadata": about,
                "value": value,
                "description": _MEANING[name],
            },
        ]
    return found
