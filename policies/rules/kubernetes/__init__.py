"""Rules of the pack `kubernetes`."""

from __future__ import annotations

from falaj.policies.model import Rule
from falaj.policies.rules.kubernetes import (
    admission,
    backups,
    charts,
    credentials,
    egress,
    gateways,
    hosts_served,
    images,
    mesh,
    model_sources,
    network_policies,
    placement,
    pod_security,
    rbac,
    restricted_data,
    scheduling,
    services,
    settings,
    storage,
)

RULES: tuple[Rule, ...] = (
    *pod_security.RULES,
    *images.RULES,
    *placement.RULES,
    *scheduling.RULES,
    *network_policies.RULES,
    *services.RULES,
    *gateways.RULES,
    *hosts_served.RULES,
    *mesh.RULES,
    *egress.RULES,
    *model_sources.RULES,
    *storage.RULES,
    *backups.RULES,
    *settings.RULES,
    *rbac.RULES,
    *credentials.RULES,
    *charts.RULES,
    *admission.RULES,
    *restricted_data.RULES,
)
