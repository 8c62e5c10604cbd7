"""Microsoft.ContainerService: when clusters may be maintained."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.sandbox.clouds.azure.kinds import AzureKind
from falaj.sandbox.clouds.inputs import Inputs
from falaj.sandbox.clouds.model import Problem
from falaj.sandbox.clouds.rules import (
    all_of,
    between,
    equals,
    formed,
    given,
    one_of,
    other_than,
    refused,
    required,
    when,
)


def _maintenance_problems(inputs: Inputs) -> Iterator[Problem]:
    kinds = [
        kind
        for kind in ("daily", "weekly", "absoluteMonthly", "relativeMonthly")
        if inputs.is_given(f"maintenanceWindow.schedule.{kind}")
    ]
    if len(kinds) > 1:
        yield Problem(
            "maintenanceWindow.schedule", f"gives {' and '.join(kinds)}; give one of them"
        )


KINDS: Final = (
    AzureKind(
        "azure-native:containerservice:MaintenanceConfiguration",
        "Microsoft.ContainerService/managedClusters/{resourceName}/maintenanceConfigurations/"
        "{configName}",
        rules=(
            one_of(
                "configName",
                ("default", "aksManagedAutoUpgradeSchedule", "aksManagedNodeOSUpgradeSchedule"),
            ),
            refused(
                "maintenanceWindow", "doesn't go with 'default', which takes timeInWeek",
                all_of(equals("configName", "default"), given("maintenanceWindow")),
            ),
            when(
                other_than("configName", "default"),
                required("maintenanceWindow.durationHours", "say how long"),
                required("maintenanceWindow.startTime", "say when, such as 02:00"),
            ),
            between("maintenanceWindow.durationHours", 4, 24, "hours"),
            formed(
                "maintenanceWindow.startTime", r"(?:[01]\d|2[0-3]):[0-5]\d",
                "isn't a time such as 02:00",
            ),
            formed(
                "maintenanceWindow.utcOffset", r"[+-](?:0\d|1[0-4]):[0-5]\d",
                "isn't an offset such as +04:00",
            ),
            _maintenance_problems,
        ),
    ),
)  # fmt: skip
