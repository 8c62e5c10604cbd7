"""A Helm chart as a resource: the vendor's provider renders it, and each object is one of its own.

The SDK has a class for it, too. Its import takes longer than all components together, and settings
are read where no SDK of Kubernetes is installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi

from falaj.components.kubernetes._objects import sdk_version


class Chart(pulumi.ComponentResource):
    """``kubernetes:helm.sh/v4:Chart``; hooks of the chart are not run."""

    def __init__(
        self,
        resource_name: str,
        *,
        chart: str,
        version: str,
        name: str,
        namespace: str,
        values: Mapping[str, Any],
        opts: pulumi.ResourceOptions,
    ) -> None:
        """Register the chart.

        Args:
            resource_name: its name in the program.
            chart: ``oci://`` reference without version.
            version: the chart's.
            name: the release's name.
            namespace: where its objects are made.
            values: above the chart's own.
            opts: options of the resource.
        """
        super().__init__(
            "kubernetes:helm.sh/v4:Chart",
            resource_name,
            {
                "chart": chart,
                "version": version,
                "name": name,
                "namespace": namespace,
                "values": dict(values),
                "resources": None,
            },
            pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(version=sdk_version())),
            remote=True,
        )
