"""Microsoft.ContainerService: when clusters may be maintained."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from falaj.sandbox.clouds.azure import checks
from falaj.sandbox.clouds.azure.kinds import AzureKind
from falaj.sandbox.clouds.inputs import Inputs
from falaj.sandbox.clouds.model import Problem


def _maintenance_problems(inputs: Inputs) -> Iterator[Problem]:
    name = inputs.optional_string("configName")
    yield from checks.one_of(
        "configName",
        name,
        ("default", "aksManagedAutoUpgradeSchedule", "aksManagedNodeOSUpgradeSchedule"),
    )
    if name == "default" and inputs.is_given("maintenanceWindow"):
        yield Problem("maintenanceWindow", "doesn't go with 'default', which takes timeInWeek")
    if name not in (None, "default"):
        yield from checks.needs(inputs, "maintenanceWindow.durationHours", "say how long")
        yield from checks.needs(inputs, "maintenanceWindow.startTime", "say when, such as 02:00")
    yield from checks.between(inputs, "maintenanceWindow.durationHours", 4, 24, "hours")
    start = inputs.optional_string("maintenanceWindow.startTime")
    if start and not re.fullmatch(r"(?:[01]\d|2[0-3]):[0-5]\d", start):
        yield Problem("maintenanceWindow.startTime", f"{start!r} isn't a time such as 02:00")
    offset = inputs.optional_string("maintenanceWindow.utcOffset")
    if offset and not re.fullmatch(r"[+-](?:0\d|1[0-4]):[0-5]\d", offset):
        yield Problem("maintenanceWindow.utcOffset", f"{offset!r} isn't an offset such as +04:00")
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
        rules=(_maintenance_problems,),
    ),
)
